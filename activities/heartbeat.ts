/** Heartbeats on a timer, so that a long episode or training step does not look like a dead worker. */
import { heartbeat } from '@temporalio/activity';

/** For a person who watches; far below the heartbeat time-out in workflows/activity-options.ts, so that a few may be late. */
const INTERVAL_MS = 2_000;

/** Heartbeats `details()` now and every few seconds, until `stop` is called. */
export function startHeartbeat(details: () => unknown): { stop(): void } {
  heartbeat(details());
  const timer = setInterval(() => heartbeat(details()), INTERVAL_MS);
  return { stop: () => clearInterval(timer) };
}

/** `work` with a heartbeat on a timer: for activities that have no progress to tell. */
export function beating<I, O>(work: (input: I) => Promise<O>): (input: I) => Promise<O> {
  return async (input) => {
    const beat = startHeartbeat(() => undefined);
    try {
      return await work(input);
    } finally {
      beat.stop();
    }
  };
}
