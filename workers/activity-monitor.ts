/**
 * What the activities of this worker are doing, and when each last got anywhere. Every activity heartbeats on a timer, which
 * proves only that the process lives; progress is a heartbeat whose details differ from the ones before (episodes done, turns
 * sampled, steps trained). An activity without details has its start as its only progress.
 */
import type { ActivityInterceptorsFactory } from '@temporalio/worker';
import type { Context } from '@temporalio/activity';

export interface RunningActivity {
  readonly activity: string;
  readonly workflowId: string;
  readonly attempt: number;
  readonly stage?: string;
  readonly purpose?: string;
  readonly chunk?: number;
  readonly runningSeconds: number;
  readonly secondsSinceProgress: number;
  /** Of the last heartbeat. */
  readonly details?: unknown;
}

interface Watched {
  readonly what: Pick<RunningActivity, 'activity' | 'workflowId' | 'attempt' | 'stage' | 'purpose' | 'chunk'>;
  readonly startedAt: number;
  progressAt: number;
  /** JSON of the last details. */
  seen: string;
  details: unknown;
}

export class ActivityMonitor {
  readonly #running = new Set<Watched>();
  readonly #now: () => number;

  /** `now` in milliseconds, not turned back by anyone. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** The activities that run now, oldest first. */
  running(): RunningActivity[] {
    const now = this.#now();
    return [...this.#running].map(({ what, startedAt, progressAt, details }) => ({
      ...what,
      runningSeconds: (now - startedAt) / 1000,
      secondsSinceProgress: (now - progressAt) / 1000,
      ...(details === undefined ? {} : { details }),
    }));
  }

  /** For `interceptors.activity` of a worker. */
  readonly interceptor: ActivityInterceptorsFactory = (context) => ({
    inbound: {
      execute: async (input, next) => {
        const watched = this.#begin(context, input.args[0]);
        try {
          return await next(input);
        } finally {
          this.#running.delete(watched);
        }
      },
    },
  });

  #begin(context: Context, input: unknown): Watched {
    const { activityType, workflowExecution, attempt } = context.info;
    const startedAt = this.#now();
    const workflowId = workflowExecution?.workflowId ?? '';
    const what = { activity: activityType, workflowId, attempt, ...placeOf(input) };
    const watched: Watched = { what, startedAt, progressAt: startedAt, seen: '', details: undefined };
    this.#running.add(watched);
    // The context is this attempt's own, and whatever the activity calls to heartbeat ends here.
    const heartbeat = context.heartbeat;
    Object.assign(context, {
      heartbeat: (details?: unknown): void => {
        this.#observe(watched, details);
        heartbeat(details);
      },
    });
    return watched;
  }

  #observe(watched: Watched, details: unknown): void {
    const text = JSON.stringify(details) ?? '';
    watched.details = details;
    if (text === watched.seen) return;
    // The first details are those of the start.
    if (watched.seen !== '') watched.progressAt = this.#now();
    watched.seen = text;
  }
}

/** Stage, purpose and chunk, where the activity's input has them (workflows/contract.ts). */
export function placeOf(input: unknown): Pick<RunningActivity, 'stage' | 'purpose' | 'chunk'> {
  const { key, chunk } = (input ?? {}) as { key?: { stage?: unknown; purpose?: unknown }; chunk?: unknown };
  return {
    ...(typeof key?.stage === 'string' ? { stage: key.stage } : {}),
    ...(typeof key?.purpose === 'string' ? { purpose: key.purpose } : {}),
    ...(typeof chunk === 'number' ? { chunk } : {}),
  };
}
