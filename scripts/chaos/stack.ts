/**
 * The stack of one data folder as a service manager would run it: the launcher (scripts/up.ts) as a process of its own, started
 * again when it dies. Everything below the launcher is supervised by the product itself; this file only finds the processes.
 */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from '@temporalio/client';
import { InfrastructureError } from '../../environment/errors.ts';
import { repoRoot } from '../../records/paths.ts';
import { logTail } from '../launcher/child.ts';
import { connectClient } from '../launcher/connection.ts';
import { isAlive, readState, type KnownProcess } from '../launcher/state.ts';

export const PROCESS_NAMES = ['Temporal server', 'rollout worker', 'GPU worker', 'trainer', 'launcher'] as const;
export type ProcessName = (typeof PROCESS_NAMES)[number];
export type Pids = Readonly<Partial<Record<ProcessName, number>>>;

const MARKERS = { 'rollout worker': 'workers/rollout-worker.ts', 'GPU worker': 'workers/gpu-worker.ts' } as const;
/** As `Restart=always` of systemd has it, with a short pause. */
const RESTART_MS = 500;
const UP_MS = 180_000;
const END_MS = 40_000;

export class ChaosStack {
  readonly data: string;
  readonly #env: NodeJS.ProcessEnv;
  #launcher: ChildProcess | undefined;
  #stopping = false;
  #restart: NodeJS.Timeout | undefined;
  #client: { readonly address: string; readonly client: Promise<Client> } | undefined;

  constructor(data: string, extra: NodeJS.ProcessEnv = {}) {
    this.data = data;
    // A server, trainer or folder that this person's environment names is not to be disturbed.
    const own = Object.entries(process.env).filter(([name]) => !/^(TEMPORAL|TERMINAL_RSI|NODE_TEST)_/.test(name));
    this.#env = { ...Object.fromEntries(own), ...extra, TERMINAL_RSI_DATA: data };
  }

  get logs(): string {
    return path.join(this.data, 'logs');
  }
  get #launcherLog(): string {
    return path.join(this.logs, 'launcher.log');
  }

  /** Starts the launcher and waits until server and workers are up. */
  async start(signal: AbortSignal): Promise<void> {
    await mkdir(this.logs, { recursive: true });
    this.#spawn();
    await this.untilReplaced(PROCESS_NAMES, {}, signal);
  }

  #spawn(): void {
    const log = openSync(this.#launcherLog, 'a');
    const args = ['--import', 'tsx', path.join(repoRoot, 'scripts', 'up.ts')];
    const child = spawn(process.execPath, args, { cwd: repoRoot, env: this.#env, detached: true, stdio: ['ignore', log, log] });
    closeSync(log);
    this.#launcher = child;
    child.once('exit', () => {
      if (this.#launcher === child) this.#launcher = undefined;
      if (!this.#stopping) this.#restart = setTimeout(() => this.#spawn(), RESTART_MS);
    });
  }

  /** Waits until these processes are up, none of them one of `before`. @throws InfrastructureError after three minutes */
  async untilReplaced(names: readonly ProcessName[], before: Pids, signal: AbortSignal): Promise<Pids> {
    const deadline = Date.now() + UP_MS;
    for (;;) {
      signal.throwIfAborted();
      const pids = await this.pids();
      const missing = names.filter((name) => pids[name] === undefined || pids[name] === before[name]);
      if (missing.length === 0) return pids;
      if (Date.now() > deadline) {
        const log = await logTail(this.#launcherLog, 12);
        throw new InfrastructureError(`${missing.join(', ')} not up after ${UP_MS / 1000} s. The end of ${this.#launcherLog}:\n${log}`);
      }
      await sleep(50);
    }
  }

  /** Process ids of what is alive now. */
  async pids(): Promise<Pids> {
    const { server, launcher, workers } = await readState(this.data);
    const known: Partial<Record<ProcessName, KnownProcess | undefined>> = { 'Temporal server': server, launcher };
    for (const name of ['rollout worker', 'GPU worker'] as const)
      known[name] = workers.find(({ marker }) => MARKERS[name].includes(marker) || marker.includes(MARKERS[name]));
    const pids: Partial<Record<ProcessName, number>> = {};
    for (const name of PROCESS_NAMES) {
      const process = known[name];
      if (isAlive(process)) pids[name] = process.pid;
    }
    const trainer = pids['GPU worker'] === undefined ? undefined : childOf(pids['GPU worker'], 'policy/trainer/main');
    return trainer === undefined ? pids : { ...pids, trainer };
  }

  /** A client of this stack's server, where it is now: a new launcher's server may get another port. */
  async client(): Promise<Client> {
    const { server } = await readState(this.data);
    if (!server) throw new InfrastructureError(`${this.data} has no Temporal server`);
    if (this.#client?.address !== server.address) {
      await this.#disconnect();
      const client = connectClient(server.address, 60_000);
      client.catch(() => (this.#client = undefined));
      this.#client = { address: server.address, client };
    }
    return this.#client.client;
  }

  async #disconnect(): Promise<void> {
    const before = this.#client;
    this.#client = undefined;
    await before?.client.then(
      ({ connection }) => connection.close(),
      () => undefined,
    );
  }

  /** The graceful end: SIGTERM to the launcher, which ends the rest. Kills what is left after 40 s. */
  async stop(): Promise<void> {
    this.#stopping = true;
    clearTimeout(this.#restart);
    await this.#disconnect();
    const launcher = this.#launcher;
    if (launcher && launcher.exitCode === null && launcher.signalCode === null) {
      const ended = new Promise((resolve) => launcher.once('exit', resolve));
      launcher.kill('SIGTERM');
      await Promise.race([ended, sleep(END_MS, undefined, { ref: false })]);
    }
    await this.kill();
  }

  /** SIGKILL to everything that belongs to the data folder. */
  async kill(): Promise<void> {
    this.#stopping = true;
    clearTimeout(this.#restart);
    // The launcher first, so that it starts nothing again. Twice, because it may have started something just before.
    for (let round = 0; round < 2; round++) {
      const pids = await this.pids();
      for (const pid of [
        this.#launcher?.pid,
        pids.launcher,
        pids['GPU worker'],
        pids['rollout worker'],
        pids.trainer,
        pids['Temporal server'],
      ])
        if (pid !== undefined) sendSignal(pid, 'SIGKILL');
      await sleep(50);
    }
  }
}

/** Signals a process. @returns false when it is gone already */
export function sendSignal(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
    throw error;
  }
}

/** Waits until a process that got SIGKILL is gone: one that its parent has not yet waited for has no command line any more. */
export async function untilGone(pid: number): Promise<void> {
  while (isAlive({ pid, marker: ' ' })) await sleep(5);
}

function childOf(parent: number, marker: string): number | undefined {
  return children(parent).find((pid) => isAlive({ pid, marker }));
}

function children(parent: number): number[] {
  try {
    return readFileSync(`/proc/${parent}/task/${parent}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
  } catch {
    if (process.platform === 'linux') return [];
  }
  const table = execFileSync('ps', ['-A', '-o', 'pid=,ppid='], { encoding: 'utf8' }).split('\n');
  return table
    .map((line) => line.trim().split(/\s+/).map(Number))
    .flatMap(([pid, ppid]) => (pid !== undefined && ppid === parent ? [pid] : []));
}
