/** HTML by tagged template: everything interpolated is escaped, except what is HTML already. */

export class Html {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

type Content = string | number | Html | undefined | false | readonly Content[];

/** Text that is HTML already: style sheets, rendered SVG. Never for text from a run. */
export function trusted(text: string): Html {
  return new Html(text);
}

export function html(parts: TemplateStringsArray, ...values: readonly Content[]): Html {
  return new Html(parts.map((part, i) => (i === 0 ? part : render(values[i - 1]) + part)).join(''));
}

function render(value: Content): string {
  if (value === undefined || value === false) return '';
  if (value instanceof Html) return value.text;
  if (typeof value === 'object') return value.map(render).join('');
  return escapeHtml(String(value));
}

/** Escapes for element content and quoted attributes; control characters become visible pictures (U+2400 …). */
export function escapeHtml(text: string): string {
  const entities: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
  return (
    text
      .replace(/[&<>"']/g, (character) => entities[character] ?? character)
      // eslint-disable-next-line no-control-regex -- control characters are what is replaced
      .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g, (c) =>
        String.fromCodePoint(c === '\u007f' ? 0x2421 : 0x2400 + c.charCodeAt(0)),
      )
  );
}
