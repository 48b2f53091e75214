/**
 * Asks a worker's health endpoint again and again, and tells when it has been unhealthy for too long: a process can live and still
 * do nothing. Counts answers, not time: a laptop that slept has missed a single one.
 */

export interface HealthWatchOptions {
  readonly url: string;
  /** Called once, with the last reason. */
  readonly onUnhealthy: (why: string) => void;
  /** How long without a good answer, in milliseconds. */
  readonly patienceMs?: number;
  /** The same before the first good answer: loading the modules takes long on a busy machine. */
  readonly startPatienceMs?: number;
  readonly intervalMs?: number;
}

/** Stated in docs/durability.md. */
const PATIENCE_MS = 60_000;
const START_PATIENCE_MS = 180_000;
const INTERVAL_MS = 5_000;

export function watchHealth({
  url,
  onUnhealthy,
  patienceMs = PATIENCE_MS,
  startPatienceMs = START_PATIENCE_MS,
  intervalMs = INTERVAL_MS,
}: HealthWatchOptions): { stop(): void } {
  let patience = startPatienceMs;
  let bad = 0;
  let stopped = false;
  let timer: NodeJS.Timeout | undefined;
  const ask = async (): Promise<void> => {
    const why = await complaint(url, intervalMs);
    if (stopped) return;
    if (why === undefined) {
      bad = 0;
      patience = patienceMs;
    } else if (++bad * intervalMs >= patience) {
      onUnhealthy(why);
      return;
    }
    timer = setTimeout(() => void ask(), intervalMs);
  };
  timer = setTimeout(() => void ask(), intervalMs);
  return {
    stop() {
      stopped = true;
      clearTimeout(timer);
    },
  };
}

/** What is wrong, or undefined for a good answer within `timeoutMs`. */
async function complaint(url: string, timeoutMs: number): Promise<string | undefined> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(timeoutMs) });
    if (response.ok) {
      await response.body?.cancel();
      return undefined;
    }
    const { status, why } = (await response.json().catch(() => ({}))) as { status?: string; why?: string };
    return [status ?? `HTTP ${response.status}`, ...(why === undefined ? [] : [why])].join(': ');
  } catch (error) {
    return error instanceof Error && error.name === 'TimeoutError' ? 'it does not answer' : `it cannot be reached (${String(error)})`;
  }
}
