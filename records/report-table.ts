/** A data table of the report page: first column and first row are headers. */
import { html, trusted, type Html } from './html.ts';

/** Prose is aligned to the left, figures to the right. */
const isText = (cell: string | number | Html | undefined): boolean => typeof cell === 'string' && /\p{L}{3,}.*\s.*\p{L}{3,}/u.test(cell);

/** `lastIsTotal` sets the last row off as the sum of the others. */
export function table(
  caption: string,
  header: readonly string[],
  rows: readonly (readonly (string | number | Html | undefined)[])[],
  lastIsTotal = false,
): Html {
  return html`<div class="scroll">
    <table>
      ${
        caption
          ? html`<caption>
              ${caption}
            </caption>`
          : ''
      }
      <thead>
        <tr>
          ${header.map((cell) => html`<th scope="col">${cell}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${rows.map((row, i) => html`<tr${lastIsTotal && i === rows.length - 1 ? trusted(' class="total"') : ''}>${row.map((cell, j) => (j === 0 ? html`<th scope="row">${cell}</th>` : html`<td${isText(cell) ? trusted(' class="text"') : ''}>${cell ?? '–'}</td>`))}</tr>\n`)}
      </tbody>
    </table>
  </div>`;
}
