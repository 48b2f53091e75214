/** The two worker processes as tests start and end them: children with their logs in the data folder. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile } from 'node:fs/promises';
import path from 'node:path';
import { repoRoot } from '../records/paths.ts';

export type WorkerName = 'rollout-worker' | 'gpu-worker';

export interface WorkerProcessesOptions {
  /** Address of the Temporal server. */
  readonly address: string;
  /** Data folder. */
  readonly data: string;
  readonly trainerUrl: string;
}

export class WorkerProcesses {
  readonly #options: WorkerProcessesOptions;
  readonly #children = new Map<WorkerName, ChildProcess>();

  constructor(options: WorkerProcessesOptions) {
    this.#options = options;
  }

  /** Starts a worker with `env` beside this process's environment, and waits for its `ready` message. */
  async start(name: WorkerName, env: Readonly<Record<string, string>> = {}): Promise<void> {
    const { address, data, trainerUrl } = this.#options;
    const file = path.join(data, `${name}.log`);
    const log = await open(file, 'a');
    const child = spawn(process.execPath, ['--import', 'tsx', path.join(repoRoot, 'workers', `${name}.ts`)], {
      cwd: repoRoot,
      env: { ...process.env, TEMPORAL_ADDRESS: address, TERMINAL_RSI_DATA: data, TERMINAL_RSI_TRAINER_URL: trainerUrl, ...env },
      stdio: ['ignore', log.fd, log.fd, 'ipc'],
    });
    await log.close();
    this.#children.set(name, child);
    const ended = once(child, 'exit').then(async () => {
      throw new Error(`${name} ended before it was ready:\n${await readFile(file, 'utf8')}`);
    });
    await Promise.race([once(child, 'message'), ended]);
    ended.catch(() => undefined);
  }

  /** Asks all to end, and waits until they have. */
  async stop(): Promise<void> {
    await Promise.all([...this.#children.values()].map(end));
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGTERM');
  await once(child, 'exit');
}
