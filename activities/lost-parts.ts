/**
 * Work that loses what it runs on (the trainer's session, the Docker engine) starts again within the attempt: a restart of
 * seconds should cost the episodes in flight, and neither an attempt nor the wait before the next one.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { InfrastructureError } from '../environment/errors.ts';

/** More often than this in one work, something else is wrong. */
const RESTARTS = 20;
const LONGEST_PAUSE_MS = 10_000;
/** `code` of errors that say so: the part is being restarted, and the work can start anew. */
const LOST = new Set<unknown>(['session-lost', 'trainer-lost', 'engine-lost']);

/** Calls `work(restart)` until it does not lose a part. @throws its error, or the signal's reason */
export async function startingAgain<T>(
  signal: AbortSignal,
  work: (restart: number) => Promise<T>,
  { onRestart, firstPauseMs = 250 }: { readonly onRestart?: () => void; readonly firstPauseMs?: number } = {},
): Promise<T> {
  for (let restart = 0; ; restart++) {
    try {
      return await work(restart);
    } catch (error) {
      signal.throwIfAborted();
      const lost = error instanceof InfrastructureError && LOST.has((error as { code?: unknown }).code);
      if (!lost || restart === RESTARTS) throw error;
      onRestart?.();
      await sleep(Math.min(firstPauseMs * 2 ** restart, LONGEST_PAUSE_MS), undefined, { signal });
    }
  }
}
