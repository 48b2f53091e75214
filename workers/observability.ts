/**
 * What makes a worker process visible from outside, in one place for both workers: status server, gauges, and the activity
 * interceptors that they live on. Everything is off unless its address is set (workers/listen-address.ts, workers/tracing.ts).
 */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { Runtime } from '@temporalio/worker';
import type { ActivityInterceptorsFactory, NativeConnection, Worker } from '@temporalio/worker';
import { UserError } from '../environment/errors.ts';
import { ActivityMonitor } from './activity-monitor.ts';
import { assess } from './health.ts';
import type { Health, TemporalView, WorkerView } from './health.ts';
import { metricsAddress, statusAddress } from './listen-address.ts';
import { attemptCounter, WorkerGauges } from './metrics.ts';
import type { Logger } from './runtime.ts';
import { startStatusServer } from './status-server.ts';
import type { StatusServer } from './status-server.ts';
import { TrainerWatch } from './trainer-watch.ts';
import type { WatchedTrainer } from './trainer-watch.ts';

/**
 * Above the 600 s after which a training activity restarts its trainer by itself (TERMINAL_RSI_STALL_SECONDS), and above what one
 * turn of an agent may take: whoever is called because of it has something to do.
 */
const STUCK_SECONDS = 900;
const TICK_MS = 5_000;
const LAG_WINDOW_MS = 60_000;
const TEMPORAL_ANSWER_MS = 2_000;

export interface ObservabilityOptions {
  readonly name: string;
  readonly logger: Logger;
  /** Folder of the runs, for a worker that serves their reports. */
  readonly runs?: string;
  readonly trainer?: WatchedTrainer;
}

export class Observability {
  /** For `interceptors.activity` of the worker. */
  readonly interceptors: readonly ActivityInterceptorsFactory[];
  readonly #options: ObservabilityOptions;
  readonly #stuckAfterSeconds = stuckSeconds();
  readonly #monitor = new ActivityMonitor();
  readonly #gauges: WorkerGauges;
  readonly #trainer: TrainerWatch | undefined;
  readonly #server: StatusServer | undefined;
  readonly #delay = monitorEventLoopDelay({ resolution: 20 });
  #delaySince = performance.now();
  #ticker: NodeJS.Timeout | undefined;
  #waitingFor = 'start-up';
  #worker: Worker | undefined;
  #connection: NativeConnection | undefined;
  #temporalAnsweredAt: number | undefined;

  /** Call it after `installRuntime` and before anything that waits. @throws UserError when a setting is wrong */
  constructor(options: ObservabilityOptions) {
    this.#options = options;
    const { logger, runs, trainer } = options;
    const { metricMeter } = Runtime.instance();
    this.#gauges = new WorkerGauges(metricMeter);
    this.#trainer = trainer && new TrainerWatch(trainer, (tokens) => this.#gauges.sampled(tokens));
    this.interceptors = [this.#monitor.interceptor, attemptCounter(metricMeter)];
    const address = statusAddress();
    if (!address && !metricsAddress()) return;
    this.#delay.enable();
    this.#ticker = setInterval(() => void this.#tick(), TICK_MS).unref();
    if (address)
      this.#server = startStatusServer({ address, logger, health: () => this.health(), ...(runs === undefined ? {} : { runs }) });
  }

  /** What start-up waits for from now on, for `/health`. */
  waitingFor(what: string): void {
    this.#waitingFor = what;
  }

  /** From now on `/health` tells of this worker. */
  watch(worker: Worker, connection: NativeConnection): void {
    this.#worker = worker;
    this.#connection = connection;
  }

  /** The trainer and the Temporal server are asked now; takes at most two seconds. */
  async health(): Promise<Health> {
    const [temporal] = await Promise.all([this.#askTemporal(), this.#trainer?.ask()]);
    return this.#health(temporal);
  }

  close(): void {
    clearInterval(this.#ticker);
    this.#delay.disable();
    this.#server?.close();
  }

  #health(temporal?: TemporalView): Health {
    const activities = this.#monitor.running();
    const worker = this.#worker && workerView(this.#worker);
    const training = activities.find(({ details }) => typeof details === 'object' && details !== null && 'step' in details);
    const trainer = this.#trainer && { ...this.#trainer.health(), ...(training ? { lastStep: training.details } : {}) };
    const observed = {
      ...(worker ? { worker } : {}),
      activities,
      stuckAfterSeconds: this.#stuckAfterSeconds,
      ...(temporal ? { temporal } : {}),
      ...(trainer ? { trainer } : {}),
    };
    return {
      schema: 'terminal-rsi/health@1',
      ...assess({ ...observed, waitingFor: this.#waitingFor }),
      process: { name: this.#options.name, pid: process.pid, upSeconds: process.uptime(), rssBytes: process.memoryUsage.rss() },
      ...observed,
      eventLoop: this.#eventLoop(),
    };
  }

  async #tick(): Promise<void> {
    await this.#trainer?.ask();
    this.#gauges.tell(this.#health());
    if (performance.now() - this.#delaySince < LAG_WINDOW_MS) return;
    this.#delay.reset();
    this.#delaySince = performance.now();
  }

  #eventLoop(): Health['eventLoop'] {
    // The histogram counts the sampling interval itself; NaN and a huge minimum while it is empty.
    const milliseconds = (nanoseconds: number): number => Math.max(0, Math.round(nanoseconds / 1e4) / 100 - 20) || 0;
    const { mean, max } = this.#delay;
    return {
      meanMs: milliseconds(mean),
      p99Ms: milliseconds(this.#delay.percentile(99)),
      maxMs: milliseconds(max),
      windowSeconds: Math.round((performance.now() - this.#delaySince) / 1000),
    };
  }

  async #askTemporal(): Promise<TemporalView | undefined> {
    const connection = this.#connection;
    if (!connection) return undefined;
    try {
      await connection.withDeadline(Date.now() + TEMPORAL_ANSWER_MS, () => connection.workflowService.getSystemInfo({}));
      this.#temporalAnsweredAt = performance.now();
      return { answers: true, secondsSinceAnswer: 0 };
    } catch {
      const at = this.#temporalAnsweredAt;
      return { answers: false, ...(at === undefined ? {} : { secondsSinceAnswer: (performance.now() - at) / 1000 }) };
    }
  }
}

function workerView(worker: Worker): WorkerView {
  const { options } = worker;
  const { runState, activityPollerState, workflowPollerState, numInFlightWorkflowActivations, numCachedWorkflows } = worker.getStatus();
  const workflows = options.workflowsPath !== undefined || options.workflowBundle !== undefined;
  return {
    queue: options.taskQueue,
    identity: options.identity,
    state: runState,
    ...slotsOf(worker),
    activityPoller: activityPollerState,
    ...(workflows ? { workflowPoller: workflowPollerState } : {}),
    workflowTasksInFlight: numInFlightWorkflowActivations,
    cachedWorkflows: numCachedWorkflows,
  };
}

/** The SDK turns the number of slots into a tuner, which its types do not show. */
function slotsOf(worker: Worker): Pick<WorkerView, 'slots'> {
  const { tuner } = worker.options as { tuner?: { activityTaskSlotSupplier?: { numSlots?: number } } };
  const slots = tuner?.activityTaskSlotSupplier?.numSlots;
  return slots === undefined ? {} : { slots };
}

/** TERMINAL_RSI_STUCK_SECONDS */
function stuckSeconds(): number {
  const text = process.env['TERMINAL_RSI_STUCK_SECONDS'];
  const seconds = Number(text ?? STUCK_SECONDS);
  if (!(seconds > 0)) throw new UserError(`TERMINAL_RSI_STUCK_SECONDS: got ${JSON.stringify(text)}, expected a number of seconds above 0`);
  return seconds;
}
