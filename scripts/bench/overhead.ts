/** How much of a run's wall time was orchestration, from its histories: the time in which no activity was running. */
import { activityTraces } from '../../records/history.ts';
import type { ActivityTrace, WorkflowHistory } from '../../records/history.ts';
import { isArchive, openArchive } from '../../records/audit/archive.ts';
import { openRun } from '../audit/open-run.ts';

export interface Overhead {
  /** From the first event of the run to the last one of any of its workflows. */
  readonly wallSeconds: number;
  /** No activity was running, but one was waiting for a worker. */
  readonly waitingSeconds: number;
  /** No activity was running or waiting: workflow tasks, children being started, pauses. */
  readonly betweenSeconds: number;
}

/** `run`: a workflow id, a run key, or an archive of `npm run export`. */
export async function runOverhead(run: string): Promise<string> {
  const source = (await isArchive(run)) ? await openArchive(run) : await openRun(run, (message) => process.stderr.write(`${message}\n`));
  try {
    const { wallSeconds, waitingSeconds, betweenSeconds } = overheadOf(source.histories);
    const percent = (seconds: number): string => `${((100 * seconds) / wallSeconds).toFixed(2)} %`;
    return [
      `${source.from}: ${wallSeconds.toFixed(1)} s`,
      `no activity was running for ${(waitingSeconds + betweenSeconds).toFixed(1)} s, ${percent(waitingSeconds + betweenSeconds)}`,
      `  an activity waited for a worker: ${waitingSeconds.toFixed(1)} s, ${percent(waitingSeconds)}`,
      `  between activities: ${betweenSeconds.toFixed(1)} s, ${percent(betweenSeconds)}`,
      '',
    ].join('\n');
  } finally {
    await source.close();
  }
}

/** Attempts that were tried again count as running, with the waits between them: they are no orchestration. */
export function overheadOf(histories: readonly Pick<WorkflowHistory, 'events'>[]): Overhead {
  const times = histories.flatMap(({ events }) => events.map(({ eventTime }) => Date.parse(eventTime)));
  const end = times.reduce((a, b) => Math.max(a, b), -Infinity);
  const start = times.reduce((a, b) => Math.min(a, b), Infinity);
  const traces = histories.flatMap((history) => activityTraces(history));
  const scheduled = traces.map(({ scheduledAt, closedAt = end }): Interval => [scheduledAt, closedAt]);
  const running = traces
    .filter(wasStarted)
    .map(({ attempts, scheduledAt, startedAt, closedAt = end }): Interval => [attempts > 1 ? scheduledAt : startedAt, closedAt]);
  const [any, busy] = [covered(scheduled), covered(running)];
  return { wallSeconds: (end - start) / 1000, waitingSeconds: (any - busy) / 1000, betweenSeconds: (end - start - any) / 1000 };
}

function wasStarted(trace: ActivityTrace): trace is ActivityTrace & { startedAt: number } {
  return trace.startedAt !== undefined;
}

type Interval = [from: number, to: number];
/** Length of the union. */
function covered(intervals: readonly Interval[]): number {
  let [length, reached] = [0, -Infinity];
  for (const [from, to] of [...intervals].sort(([a], [b]) => a - b)) {
    length += Math.max(0, to - Math.max(from, reached));
    reached = Math.max(reached, to);
  }
  return length;
}
