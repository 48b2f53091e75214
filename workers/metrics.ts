/**
 * Prometheus metrics of a worker process: the SDK's own, what activities count (activities/metrics.ts), and the state of the
 * worker. All of them come from one endpoint that the SDK's native threads serve, so that it answers even while this process's
 * event loop is blocked. docs/observability.md lists every name.
 */
import type { ActivityInterceptorsFactory, RuntimeOptions } from '@temporalio/worker';
import { ApplicationFailure, CancelledFailure } from '@temporalio/common';
import type { MetricCounter, MetricGauge, MetricMeter } from '@temporalio/common';
import type { Health } from './health.ts';
import { addressText } from './listen-address.ts';
import type { ListenAddress } from './listen-address.ts';

/**
 * Seconds. The SDK's own buckets end where a queue gets interesting: a chunk waits for those before it, and a training activity
 * of one run for that of another.
 */
const WAIT_BUCKETS = [0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 1_800, 3_600, 7_200, 14_400, 43_200];
/** Error types come from code, but from whichever code throws: more than these are counted as `other`. */
const MOST_ERROR_TYPES = 32;

/** For `Runtime.install`. Durations are in seconds and names end in their unit, as Prometheus asks for. */
export function metricsExporter(address: ListenAddress): NonNullable<NonNullable<RuntimeOptions['telemetryOptions']>['metrics']> {
  return {
    attachServiceName: false,
    prometheus: {
      bindAddress: addressText(address),
      countersTotalSuffix: true,
      unitSuffix: true,
      useSecondsForDurations: true,
      histogramBucketOverrides: {
        activity_schedule_to_start_latency: WAIT_BUCKETS,
        activity_execution_latency: WAIT_BUCKETS,
        activity_succeed_endtoend_latency: WAIT_BUCKETS,
      },
    },
  };
}

/** Counts attempts after the first, and how attempts fail. */
export function attemptCounter(meter: MetricMeter): ActivityInterceptorsFactory {
  const retries = meter.createCounter('terminal_rsi_activity_retries', '', 'Attempts after the first that this worker started');
  const failures = meter.createCounter('terminal_rsi_activity_failures', '', 'Attempts that ended with an error');
  const seen = new Set<string>();
  const bounded = (type: string): string => {
    if (seen.size < MOST_ERROR_TYPES) seen.add(type);
    return seen.has(type) ? type : 'other';
  };
  return ({ info }) => ({
    inbound: {
      async execute(input, next) {
        const activity = info.activityType;
        if (info.attempt > 1) retries.add(1, { activity });
        try {
          return await next(input);
        } catch (error) {
          const { type, retryable } = kindOf(error);
          failures.add(1, { activity, error_type: bounded(type), retryable });
          throw error;
        }
      },
    },
  });
}

/** A cancelled attempt says why in its message: CANCELLED, WORKER_SHUTDOWN, TIMED_OUT, PAUSED, RESET … */
function kindOf(error: unknown): { type: string; retryable: boolean } {
  if (error instanceof CancelledFailure) return { type: error.message, retryable: error.message !== 'CANCELLED' };
  if (error instanceof ApplicationFailure) return { type: error.type ?? 'ApplicationFailure', retryable: error.nonRetryable !== true };
  return { type: error instanceof Error ? error.name : typeof error, retryable: true };
}

/** The worker's state, told every few seconds. */
export class WorkerGauges {
  readonly #stuck: MetricGauge;
  readonly #progress: MetricGauge;
  readonly #tick: MetricGauge;
  readonly #lag: MetricGauge;
  readonly #trainerUp: MetricGauge;
  readonly #restarts: MetricCounter;
  readonly #sampled: MetricCounter;
  readonly #rate: MetricGauge;
  readonly #queued: MetricGauge;
  readonly #firstToken: MetricGauge;
  #restartsTold = 0;

  constructor(meter: MetricMeter) {
    const gauge = (name: string, help: string, unit = ''): MetricGauge => meter.createGauge(`terminal_rsi_${name}`, 'float', unit, help);
    this.#stuck = gauge('worker_stuck', '1 while /health says stuck or failed, else 0');
    this.#progress = gauge('worker_without_progress_seconds', 'Since anything that runs last made progress; 0 when idle', 'seconds');
    this.#tick = gauge('event_loop_tick_timestamp_seconds', 'When the event loop last ran its timers, seconds since 1970', 'seconds');
    this.#lag = gauge('event_loop_lag_seconds', 'How late timers ran, 99th percentile of the last minute', 'seconds');
    this.#trainerUp = gauge('trainer_up', '1 while the trainer answers, else 0');
    this.#rate = gauge('sampling_tokens_per_second', 'Tokens that the trainer sampled per second');
    this.#queued = gauge('sampling_requests_queued', 'Requests that wait for a slot of the sampler');
    this.#firstToken = gauge('sampling_time_to_first_token_seconds', '95th percentile over the latest requests', 'seconds');
    this.#restarts = meter.createCounter('terminal_rsi_trainer_restarts', '', 'Starts of the trainer after the first');
    this.#sampled = meter.createCounter('terminal_rsi_sampled_tokens', '', 'Tokens that the trainer sampled');
  }

  sampled(tokens: number): void {
    this.#sampled.add(tokens);
  }

  tell({ status, activities, eventLoop, trainer }: Pick<Health, 'status' | 'activities' | 'eventLoop' | 'trainer'>): void {
    this.#stuck.set(status === 'stuck' || status === 'failed' ? 1 : 0);
    this.#progress.set(activities.length === 0 ? 0 : Math.min(...activities.map(({ secondsSinceProgress }) => secondsSinceProgress)));
    this.#tick.set(Date.now() / 1000);
    this.#lag.set(eventLoop.p99Ms / 1000);
    if (!trainer) return;
    this.#trainerUp.set(trainer.responding ? 1 : 0);
    this.#rate.set(trainer.tokensPerSecond ?? 0);
    this.#queued.set(trainer.queued ?? 0);
    this.#firstToken.set(trainer.secondsToFirstToken ?? 0);
    this.#restarts.add(trainer.restarts - this.#restartsTold);
    this.#restartsTold = trainer.restarts;
  }
}
