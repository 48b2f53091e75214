/**
 * The trainer child process: started, watched, restarted with growing pauses, ended with its worker.
 *
 * Invariants:
 *  I1 At most one child at a time; the next one starts only after the exit of the one before (they share a port).
 *  I2 After `stop` none is running and none is started.
 *  I3 A child never outlives its worker: `stop` in an orderly end, the IPC channel's disconnect (policy/trainer/main.ts) in any other.
 */
import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { InfrastructureError } from '../environment/errors.ts';
import type { Logger } from './runtime.ts';
import { TRAINER_END_MS } from './stop-times.ts';

export interface TrainerProcessOptions {
  readonly url: string;
  readonly logger: Logger;
  /** Program to fork; the trainer's own unless a test has another. */
  readonly program?: string;
  readonly firstPauseMs?: number;
  /** Called with the process id of every start. */
  readonly onStart?: (pid: number) => void;
}

const MAIN = fileURLToPath(new URL('../policy/trainer/main.ts', import.meta.url));
const LONGEST_PAUSE_MS = 30_000;
/** A child that has been up this long has recovered: the next crash starts with the shortest pause again. */
const STABLE_MS = 60_000;

export class TrainerProcess {
  readonly url: string;
  readonly #logger: Logger;
  readonly #program: string;
  readonly #firstPauseMs: number;
  readonly #onStart: ((pid: number) => void) | undefined;
  #child: ChildProcess | undefined;
  #starts = 0;
  #stopped = false;
  #supervision: Promise<void> | undefined;
  readonly #pause = new AbortController();

  constructor({ url, logger, program = MAIN, firstPauseMs = 500, onStart }: TrainerProcessOptions) {
    this.url = url;
    this.#logger = logger;
    this.#program = program;
    this.#firstPauseMs = firstPauseMs;
    this.#onStart = onStart;
  }

  /** Process id of the running child, if there is one. */
  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** How often it was started again. */
  get restarts(): number {
    return Math.max(0, this.#starts - 1);
  }

  start(): void {
    this.#supervision ??= this.#supervise();
  }

  /** Resolves when the trainer answers. Throws InfrastructureError after `patienceMs`. */
  async ready(patienceMs = 600_000, signal?: AbortSignal): Promise<void> {
    const deadline = Date.now() + patienceMs;
    for (;;) {
      signal?.throwIfAborted();
      if (this.#stopped) throw new InfrastructureError(`trainer at ${this.url} was stopped while it was waited for`);
      if (await this.#answers()) return;
      if (Date.now() > deadline) throw new InfrastructureError(`trainer at ${this.url} does not answer after ${patienceMs / 1000} s`);
      await sleep(200);
    }
  }

  /** Kills a child that hangs; supervision starts the next one. */
  restart(reason: string): void {
    this.#logger.warn({ reason, trainerPid: this.pid }, 'restarting the trainer');
    this.#child?.kill('SIGKILL');
  }

  /** Asks the child to end, then kills it. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#pause.abort();
    const child = this.#child;
    if (child && child.exitCode === null && child.signalCode === null) {
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), TRAINER_END_MS);
      await once(child, 'exit');
      clearTimeout(timer);
    }
    await this.#supervision;
  }

  async #supervise(): Promise<void> {
    let pause = this.#firstPauseMs;
    while (!this.#stopped) {
      const startedAt = Date.now();
      const how = await this.#runOnce();
      if (this.#stopped) return;
      if (Date.now() - startedAt > STABLE_MS) pause = this.#firstPauseMs;
      this.#logger.error({ how, restartInMs: pause }, 'trainer process ended');
      await sleep(pause, undefined, { signal: this.#pause.signal }).catch(() => undefined);
      pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
    }
  }

  async #runOnce(): Promise<string> {
    const child = fork(this.#program, [], {
      execArgv: ['--import', import.meta.resolve('tsx')],
      env: { ...process.env, TERMINAL_RSI_TRAINER_PORT: String(Number(new URL(this.url).port) || 80) },
      // Its own process group: Ctrl-C in a terminal reaches the worker only, which lets the trainer write its checkpoint.
      detached: true,
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    this.#child = child;
    this.#starts++;
    this.#logger.info({ trainerPid: child.pid, url: this.url }, 'trainer process started');
    if (child.pid !== undefined) this.#onStart?.(child.pid);
    try {
      const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
      return signal ?? `exit status ${String(code)}`;
    } catch (error) {
      return `could not be started: ${error instanceof Error ? error.message : String(error)}`;
    } finally {
      this.#child = undefined;
    }
  }

  async #answers(): Promise<boolean> {
    try {
      const response = await fetch(`${this.url}/health`, { signal: AbortSignal.timeout(2_000) });
      if (!response.ok) return false;
      // Not the one that a lost worker left behind, which ends any moment.
      const { pid } = (await response.json()) as { pid?: unknown };
      return pid !== undefined && pid === this.pid;
    } catch {
      return false;
    }
  }
}
