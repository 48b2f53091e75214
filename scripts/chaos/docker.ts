/** A Docker daemon of the chaos command's own, with its own socket and folders, so that nobody else's containers are disturbed. */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import Docker from 'dockerode';
import { InfrastructureError } from '../../environment/errors.ts';

const UP_MS = 60_000;
const END_MS = 20_000;
const STARTS = 3;
const PAUSE_MS = 500;

export class DockerDaemon {
  readonly #folder: string;
  #process: ChildProcess | undefined;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  /** Starts one below `folder`. @throws InfrastructureError when it does not come up: no root, no dockerd */
  static async start(folder: string): Promise<DockerDaemon> {
    await mkdir(folder, { recursive: true });
    const daemon = new DockerDaemon(folder);
    await daemon.#up();
    return daemon;
  }

  get #socket(): string {
    return path.join(this.#folder, 'docker.sock');
  }
  /** For DOCKER_HOST. */
  get host(): string {
    return `unix://${this.#socket}`;
  }

  async #up(): Promise<void> {
    const file = path.join(this.#folder, 'dockerd.log');
    const log = openSync(file, 'a');
    const place = (name: string): string => path.join(this.#folder, name);
    const args = [
      ...['--host', this.host, '--data-root', place('lib'), '--exec-root', place('exec'), '--pidfile', place('docker.pid')],
      // The sandboxes have no network; without these two it needs no rights on the machine's own.
      ...['--bridge', 'none', '--iptables=false', '--containerd-namespace', 'terminal-rsi-chaos'],
    ];
    // In a network namespace of its own: a daemon without a bridge removes the machine's docker0, which others' containers use.
    const child = spawn('unshare', ['--net', 'dockerd', ...args], { stdio: ['ignore', log, log], detached: true });
    closeSync(log);
    this.#process = child;
    let problem: string | undefined;
    child.once('error', (error) => (problem = error.message));
    child.once('exit', (code, signal) => (problem ??= `it ended with ${signal ?? `exit status ${code}`}`));
    const client = new Docker({ socketPath: this.#socket });
    const deadline = Date.now() + UP_MS;
    while (
      !(await client.ping().then(
        () => true,
        () => false,
      ))
    ) {
      if (problem === undefined && Date.now() > deadline) problem = `no answer in ${UP_MS / 1000} s`;
      if (problem !== undefined) {
        await this.stop();
        throw new InfrastructureError(`a Docker daemon of its own does not come up: ${problem} (log: ${file})`);
      }
      await sleep(200);
    }
  }

  /**
   * Kills it and starts it again on the same folder, more than once if need be, as a service manager would: it waits in vain for
   * a containerd of before that is only just dying.
   */
  async restart(): Promise<void> {
    const child = this.#process;
    if (child && child.exitCode === null && child.signalCode === null) {
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
    for (let left = STARTS - 1; ; left--) {
      await sleep(PAUSE_MS);
      try {
        return await this.#up();
      } catch (error) {
        if (left === 0) throw error;
      }
    }
  }

  /** SIGTERM, which removes its containers' mounts; SIGKILL after 20 s. */
  async stop(): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (!child || child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGTERM');
    await Promise.race([once(child, 'exit'), sleep(END_MS, undefined, { ref: false })]);
    child.kill('SIGKILL');
    this.#unmount();
  }

  /** One that was killed leaves its own folder mounted on itself, once for each time. */
  #unmount(): void {
    for (;;) {
      try {
        execFileSync('umount', ['--lazy', path.join(this.#folder, 'lib')], { stdio: 'ignore' });
      } catch {
        return;
      }
    }
  }
}
