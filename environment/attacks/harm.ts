/** Whether an attack harmed the process that ran it, by what a process can measure of itself: memory, a blocked event loop, stray errors. */

export interface Harm {
  readonly harmed: boolean;
  /** What was beyond its bound, in words. */
  readonly why: readonly string[];
  /** Bytes that the process grew by at its largest. */
  readonly memoryGrowth: number;
  /** Milliseconds for which the event loop stood still at the longest. */
  readonly stallMs: number;
}
export interface HarmBounds {
  readonly memoryGrowth: number;
  readonly stallMs: number;
}

/** A worker of 500 MB that holds eight episodes must not grow by more than this for one; a heartbeat is due every few seconds. */
export const dockerBounds: HarmBounds = { memoryGrowth: 256 * 1024 * 1024, stallMs: 2_000 };
/** Commands run on the worker's own thread there, each bounded by counts to seconds, in memory of the worker's (environment/embedded/provider.ts). */
export const embeddedBounds: HarmBounds = { memoryGrowth: 768 * 1024 * 1024, stallMs: 15_000 };

const SAMPLE_MS = 20;

/** Watches this process while `work` goes on. Errors of `work` itself are thrown; those that nobody caught are harm. */
export async function watchHarm<T>(bounds: HarmBounds, work: () => Promise<T>): Promise<{ readonly value: T; readonly harm: Harm }> {
  const stray: string[] = [];
  const onStray = (error: unknown): void => void stray.push(`nobody caught: ${error instanceof Error ? error.message : String(error)}`);
  process.on('unhandledRejection', onStray);
  process.on('uncaughtException', onStray);
  const before = process.memoryUsage.rss();
  let most = before;
  let stallMs = 0;
  let last = performance.now();
  const sample = (): void => {
    most = Math.max(most, process.memoryUsage.rss());
    const now = performance.now();
    stallMs = Math.max(stallMs, now - last - SAMPLE_MS);
    last = now;
  };
  const sampler = setInterval(sample, SAMPLE_MS);
  try {
    const value = await work();
    sample();
    const memoryGrowth = most - before;
    const why = [
      ...stray,
      ...(memoryGrowth > bounds.memoryGrowth
        ? [`memory grew by ${mebibytes(memoryGrowth)}, more than ${mebibytes(bounds.memoryGrowth)}`]
        : []),
      ...(stallMs > bounds.stallMs ? [`the event loop stood still for ${Math.round(stallMs)} ms, more than ${bounds.stallMs} ms`] : []),
    ];
    return { value, harm: { harmed: why.length > 0, why, memoryGrowth, stallMs } };
  } finally {
    clearInterval(sampler);
    process.off('unhandledRejection', onStray);
    process.off('uncaughtException', onStray);
  }
}

const mebibytes = (bytes: number): string => `${Math.round(bytes / 1024 / 1024)} MiB`;
