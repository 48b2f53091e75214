/**
 * What `GET /health` answers, and the rule by which a stuck worker is told from a busy one. Pure: workers/observability.ts
 * collects what it looks at.
 *
 *   failed     the worker gave up, or one of its pollers did: it will take no task again
 *   starting   not polling yet
 *   draining   asked to end
 *   stuck      something is running, and nothing that runs has got anywhere for the limit; or the trainer has not answered for as long
 *   busy       something is running
 *   ok         idle
 *
 * One activity that stands still beside others that move does not make the worker stuck: `why` names it. A Temporal server that
 * does not answer is told in `why` too and changes nothing: another worker in this one's place could not reach it either.
 * A worker whose event loop is blocked answers nothing at all.
 */
import type { State, WorkerStatus } from '@temporalio/worker';
import type { RunningActivity } from './activity-monitor.ts';
import type { TrainerHealth } from './trainer-watch.ts';

export type HealthStatus = 'starting' | 'ok' | 'busy' | 'stuck' | 'draining' | 'failed';

export interface Health {
  readonly schema: 'terminal-rsi/health@1';
  readonly status: HealthStatus;
  readonly why?: string;
  readonly process: { readonly name: string; readonly pid: number; readonly upSeconds: number; readonly rssBytes: number };
  /** Absent until the worker is made. */
  readonly worker?: WorkerView;
  readonly activities: readonly RunningActivity[];
  readonly stuckAfterSeconds: number;
  /** How late the event loop ran its timers, over the last `windowSeconds`. */
  readonly eventLoop: { readonly meanMs: number; readonly p99Ms: number; readonly maxMs: number; readonly windowSeconds: number };
  readonly temporal?: TemporalView;
  /** GPU worker only. */
  readonly trainer?: TrainerHealth;
}
export interface WorkerView {
  readonly queue: string;
  readonly identity: string;
  readonly state: State;
  /** How many activities may run at a time; absent where the SDK decides. */
  readonly slots?: number;
  readonly activityPoller: WorkerStatus['activityPollerState'];
  /** Absent for a worker without workflows. */
  readonly workflowPoller?: WorkerStatus['workflowPollerState'];
  readonly workflowTasksInFlight: number;
  readonly cachedWorkflows: number;
}
export interface TemporalView {
  readonly answers: boolean;
  readonly secondsSinceAnswer?: number;
}

export interface Observed extends Pick<Health, 'worker' | 'activities' | 'stuckAfterSeconds' | 'temporal' | 'trainer'> {
  /** What start-up is waiting for. */
  readonly waitingFor: string;
}

/** @returns 503 for a worker that a supervisor should start again, else 200 */
export function httpStatus(status: HealthStatus): number {
  return status === 'stuck' || status === 'failed' ? 503 : 200;
}

export function assess(observed: Observed): { status: HealthStatus; why?: string } {
  const { worker, activities, stuckAfterSeconds: limit } = observed;
  if (!worker || worker.state === 'INITIALIZED') return { status: 'starting', why: `waiting for ${observed.waitingFor}` };
  if (worker.state === 'FAILED') return { status: 'failed', why: 'the worker ended with an error: see its log' };
  if (worker.state !== 'RUNNING') return draining(worker.state, activities);
  const poller = deadPoller(worker);
  if (poller !== undefined) return { status: 'failed', why: poller };

  const still = activities.filter(({ secondsSinceProgress }) => secondsSinceProgress > limit);
  if (activities.length > 0 && still.length === activities.length) {
    return { status: 'stuck', why: `nothing that runs has made progress for ${limit} s: ${still.map(describe).join('; ')}` };
  }
  const silence = trainerSilence(observed);
  if (silence !== undefined && silence.seconds > limit) return { status: 'stuck', why: silence.text };

  const remarks = [...still.map(describe), ...(silence ? [silence.text] : []), ...temporalSilence(observed)];
  const why = remarks.length > 0 ? { why: remarks.join('; ') } : {};
  return { status: activities.length > 0 ? 'busy' : 'ok', ...why };
}

function draining(state: State, activities: readonly RunningActivity[]): { status: HealthStatus; why: string } {
  const waits = activities.length > 0 ? `, waiting for ${activities.map(({ activity }) => activity).join(', ')}` : '';
  return { status: 'draining', why: `the worker is ${state}${waits}` };
}

/** A worker that runs without polling looks alive and takes no task. */
function deadPoller({ activityPoller, workflowPoller }: WorkerView): string | undefined {
  if (activityPoller !== 'POLLING') return `the activity poller is ${activityPoller}`;
  if (workflowPoller !== undefined && workflowPoller !== 'POLLING') return `the workflow poller is ${workflowPoller}`;
  return undefined;
}

function describe({ activity, workflowId, attempt, secondsSinceProgress }: RunningActivity): string {
  return `${activity} of ${workflowId}, attempt ${attempt}, without progress for ${Math.round(secondsSinceProgress)} s`;
}

function trainerSilence({ trainer }: Observed): { seconds: number; text: string } | undefined {
  if (!trainer || trainer.responding) return undefined;
  const seconds = trainer.secondsSinceAnswer;
  return { seconds, text: `the trainer at ${trainer.url} has not answered for ${Math.round(seconds)} s (${trainer.restarts} restarts)` };
}

function temporalSilence({ temporal }: Observed): string[] {
  if (!temporal || temporal.answers) return [];
  const since = temporal.secondsSinceAnswer;
  return [`the Temporal server does not answer${since === undefined ? '' : ` since ${Math.round(since)} s`}`];
}
