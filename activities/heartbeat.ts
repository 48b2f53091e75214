/** Heartbeats on a timer, so that a long episode or training step does not look like a dead worker. */
import { heartbeat } from '@temporalio/activity';

/** A sixth of the heartbeat time-out in workflows/activity-options.ts: a few may be late without harm. */
const INTERVAL_MS = 5_000;

/** Heartbeats `details()` now and every few seconds, until `stop` is called. */
export function startHeartbeat(details: () => unknown): { stop(): void } {
  heartbeat(details());
  const timer = setInterval(() => heartbeat(details()), INTERVAL_MS);
  return { stop: () => clearInterval(timer) };
}
