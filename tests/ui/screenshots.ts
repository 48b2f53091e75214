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

  /**
   * Writes docs/images/<name>.png: the whole width of the page, `height` pixels from its top; with `from`, only what comes from
   * that element on, with the page made `height` pixels taller for it.
   */
  async take(name: string, { height, from }: { readonly height: number; readonly from?: Locator }): Promise<void> {
    if (!this.#wanted) return;
    const before = this.#page.viewportSize() ?? { width: 1440, height: 900 };
    await this.#page.setViewportSize({ ...before, height: from ? before.height + height : height });
    // A click may have scrolled the page. As text, because this project's types know no document.
    await this.#page.evaluate("document.querySelector('#content')?.scrollTo(0, 0)");
    const start = await from?.boundingBox();
    await this.#page.screenshot({
      path: path.join(repoRoot, 'docs', 'images', `${name}.png`),
      animations: 'disabled',
      ...(start ? { clip: { x: start.x - 24, y: start.y - 24, width: before.width - start.x + 24, height } } : {}),
    });
    await this.#page.setViewportSize(before);
  }
}
