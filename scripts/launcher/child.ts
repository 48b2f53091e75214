/**
 * One long-running child process of the launcher: output to a log file, started again with growing pauses when it dies or stays
 * unhealthy, and stopped with SIGTERM first and SIGKILL after a grace period.
 *
 * Children lead their own process group: a Ctrl-C on the terminal reaches only the launcher, which then decides the order
 * in which they stop.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { createWriteStream, mkdirSync } from 'node:fs';
import { open } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { watchHealth, type HealthWatchOptions } from './health-watch.ts';

export interface ChildOptions {
  /** For messages and the log file's name. */
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  readonly cwd: string;
  readonly logFile: string;
  /** Where it tells how it is; one that stays unhealthy is killed and so started again. */
  readonly health?: Omit<HealthWatchOptions, 'onUnhealthy'>;
  /** Called when the process ended although nobody asked it to. */
  readonly onCrash: (message: string) => void;
  /** Called with the process id of every start. */
  readonly onStart?: (pid: number) => void;
}

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
/** A process that lived this long starts again at the first pause. */
const HEALTHY_MS = 60_000;

export class SupervisedChild {
  readonly name: string;
  readonly logFile: string;
  readonly #options: ChildOptions;
  #process: ChildProcess | undefined;
  #stopping = false;
  #pause = FIRST_PAUSE_MS;
  #restart: NodeJS.Timeout | undefined;
  #watch: { stop(): void } | undefined;
  #crashes = 0;

  constructor(options: ChildOptions) {
    this.name = options.name;
    this.logFile = options.logFile;
    this.#options = options;
    mkdirSync(path.dirname(options.logFile), { recursive: true });
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /** How often it died unasked. */
  get crashes(): number {
    return this.#crashes;
  }

  start(): void {
    const { command, args, env, cwd, logFile, name, health, onCrash } = this.#options;
    const log = createWriteStream(logFile, { flags: 'a' });
    const started = Date.now();
    const child = spawn(command, [...args], { cwd, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
    this.#process = child;
    child.stdout.pipe(log, { end: false });
    child.stderr.pipe(log, { end: false });
    if (child.pid !== undefined) this.#options.onStart?.(child.pid);
    const onUnhealthy = (why: string): void => {
      onCrash(`${name} has been unhealthy for too long: ${why}; ending it`);
      child.kill('SIGKILL');
    };
    this.#watch = health && watchHealth({ ...health, onUnhealthy });
    let ended = false;
    const onEnd = (how: string): void => {
      if (ended) return;
      ended = true;
      this.#process = undefined;
      this.#watch?.stop();
      log.end();
      if (this.#stopping) return;
      this.#crashes++;
      if (Date.now() - started > HEALTHY_MS) this.#pause = FIRST_PAUSE_MS;
      onCrash(`${name} ${how}; starting it again in ${(this.#pause / 1000).toFixed(1)} s (log: ${logFile})`);
      this.#restart = setTimeout(() => this.start(), this.#pause);
      this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE_MS);
    };
    child.once('error', (error) => onEnd(`could not be started: ${error.message}`));
    child.once('exit', (code, signal) => onEnd(signal ? `was ended by ${signal}` : `ended with exit code ${code}`));
  }

  /** SIGTERM, then SIGKILL to its whole process group after `graceMs`. Returns when it is gone. */
  async stop(graceMs: number): Promise<void> {
    this.#stopping = true;
    clearTimeout(this.#restart);
    this.#watch?.stop();
    const child = this.#process;
    if (child?.pid === undefined) return;
    const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    child.kill('SIGTERM');
    await Promise.race([gone, sleep(graceMs, undefined, { ref: false })]);
    // What a worker started in its group, e.g. a shell. Its trainer leads a group of its own, and ends with the worker's channel.
    signalGroup(child.pid, 'SIGKILL');
    await gone;
  }

  /** SIGKILL to the whole process group, now. */
  kill(): void {
    this.#stopping = true;
    clearTimeout(this.#restart);
    if (this.#process?.pid !== undefined) signalGroup(this.#process.pid, 'SIGKILL');
  }
}

/** Signals a process group; nothing happens when it is gone. */
export function signalGroup(pid: number, signal: NodeJS.Signals): void {
  signalProcess(-pid, signal);
}

/** Signals a process (a group, where the id is negative); nothing happens when it is gone. */
export function signalProcess(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** The last `lines` lines of a log file, for an error message. Empty when there is no file. */
export async function logTail(file: string, lines: number): Promise<string> {
  const handle = await open(file, 'r').catch(() => undefined);
  if (!handle) return '';
  try {
    const { size } = await handle.stat();
    const length = Math.min(size, 8192);
    const { buffer } = await handle.read(Buffer.alloc(length), 0, length, size - length);
    return buffer.toString('utf8').trimEnd().split('\n').slice(-lines).join('\n');
  } finally {
    await handle.close();
  }
}
