/** The rollout worker as a process that can be killed and started again. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile } from 'node:fs/promises';
import path from 'node:path';
import { repoRoot } from '../../records/paths.ts';

export class StressWorker {
  readonly #env: Readonly<Record<string, string>>;
  readonly #log: string;
  #child: ChildProcess | undefined;
  /** Largest resident size seen, in bytes, of all processes so far. */
  #peak = 0;

  constructor(data: string, address: string) {
    // Nothing of the caller's: another data folder or server must not be disturbed.
    const own = Object.entries(process.env).filter(([name]) => !/^(TEMPORAL|TERMINAL_RSI|NODE_TEST)_/.test(name));
    this.#env = { ...(Object.fromEntries(own) as Record<string, string>), TEMPORAL_ADDRESS: address, TERMINAL_RSI_DATA: data };
    this.#log = path.join(data, 'rollout-worker.log');
  }

  get peakBytes(): number {
    return this.#peak;
  }

  /** Starts a process and waits until it polls. */
  async start(): Promise<void> {
    const log = await open(this.#log, 'a');
    const child = spawn(process.execPath, ['--import', 'tsx', path.join(repoRoot, 'workers/rollout-worker.ts')], {
      cwd: repoRoot,
      env: this.#env,
      stdio: ['ignore', log.fd, log.fd, 'ipc'],
    });
    await log.close();
    this.#child = child;
    const ended = once(child, 'exit').then(async () => {
      throw new Error(`the rollout worker ended before it was ready:\n${(await readFile(this.#log, 'utf8')).slice(-3000)}`);
    });
    ended.catch(() => undefined);
    await Promise.race([once(child, 'message'), ended]);
  }

  /** kill -9, then waits until the process is gone. @returns its id */
  async kill(): Promise<number> {
    const child = this.#running();
    child.kill('SIGKILL');
    await once(child, 'exit');
    return child.pid ?? 0;
  }

  /** The graceful end. */
  async stop(): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGTERM');
    await once(child, 'exit');
  }

  async sampleMemory(): Promise<void> {
    const status = await readFile(`/proc/${this.#child?.pid ?? 0}/status`, 'utf8').catch(() => '');
    const [, kilobytes = '0'] = /^VmHWM:\s+(\d+)/m.exec(status) ?? [];
    this.#peak = Math.max(this.#peak, Number(kilobytes) * 1024);
  }

  #running(): ChildProcess {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) throw new Error('the rollout worker ended by itself');
    return child;
  }
}
