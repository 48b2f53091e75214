/** Running many small works at once, a bounded number at a time. */

/**
 * Calls `work` for every item, at most `limit` at a time. The first error aborts the signal that the others got; it is
 * thrown only when all have ended, so that no sandbox is left behind by work nobody waits for.
 */
export async function forEachConcurrently<T>(
  items: readonly T[],
  limit: number,
  outer: AbortSignal,
  work: (item: T, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const failed = new AbortController();
  const signal = AbortSignal.any([outer, failed.signal]);
  let next = 0;
  let first: Error | undefined;
  const lane = async (): Promise<void> => {
    while (next < items.length && !signal.aborted) {
      const item = items[next++] as T;
      try {
        await work(item, signal);
      } catch (error) {
        first ??= error instanceof Error ? error : new Error(String(error));
        failed.abort(first);
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, lane));
  if (first) throw first;
  outer.throwIfAborted();
}
