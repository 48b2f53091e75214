/** The frame that the report of a run and the page of an audit share: it loads nothing and runs no script. */
import { html, trusted, type Html } from './html.ts';
import { REPORT_STYLE } from './report-style.ts';

/** `header`: what stands between the title and the links to the sections. `style` comes after that of all reports. */
export function framedPage(
  title: string,
  header: Html,
  sections: readonly (readonly [id: string, name: string, body: Html | ''])[],
  style = '',
): string {
  return html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'" />
        <title>${title}</title>
        <style>
          ${trusted(REPORT_STYLE + style)}
        </style>
      </head>
      <body>
        <main>
          <header>
            <h1>${title}</h1>
            ${header}
            <nav aria-label="Sections">${sections.map(([id, name]) => html`<a href="#${id}">${name}</a> `)}</nav>
          </header>
          ${sections.map(
            ([id, name, body]) =>
              html`<section id="${id}">
                <h2>${name}</h2>
                ${body}
              </section> `,
          )}
        </main>
      </body>
    </html> `.text;
}
