/** The README's pictures of the Temporal UI, made by its test when UPDATE_SCREENSHOTS=1 asks for it. */
import path from 'node:path';
import type { Locator, Page } from 'playwright-core';
import { repoRoot } from '../../records/paths.ts';

export class Screenshots {
  readonly #page: Page;
  readonly #wanted = process.env['UPDATE_SCREENSHOTS'] === '1';

  constructor(page: Page) {
    this.#page = page;
  }

  /** Writes docs/images/<name>.png: the whole width of the page, `height` pixels from its top, or from `below` its header. */
  async take(name: string, { height, below }: { readonly height: number; readonly below?: Locator }): Promise<void> {
    if (!this.#wanted) return;
    const before = this.#page.viewportSize() ?? { width: 1440, height: 900 };
    await this.#page.setViewportSize({ ...before, height });
    // As text, because this project's types know no document. A click may have scrolled the page.
    if (below) await below.evaluate("node => { node.style.scrollMarginTop = '64px'; node.scrollIntoView(); }");
    else await this.#page.evaluate("document.querySelector('#content')?.scrollTo(0, 0)");
    await this.#page.screenshot({ path: path.join(repoRoot, 'docs', 'images', `${name}.png`), animations: 'disabled' });
    await this.#page.setViewportSize(before);
  }
}
