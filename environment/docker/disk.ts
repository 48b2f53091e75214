/**
 * Whether the disk that Docker writes to has room: containers that fill it would take the worker, the engine and other people's work
 * with them, and a verdict on a full disk would be a fake zero. Looked at before a build and before a start, and while containers run.
 */
import { statfs } from 'node:fs/promises';
import type Docker from 'dockerode';
import { InfrastructureError, UserError } from '../errors.ts';

const gigabyte = 2 ** 30;
const defaultMinFreeGb = 5;

/** Bytes that must stay free on Docker's disk: TERMINAL_RSI_MIN_FREE_GB, default 5. @throws UserError */
export function minFreeBytes(): number {
  return gigabytesOf('TERMINAL_RSI_MIN_FREE_GB', defaultMinFreeGb);
}

/** A number of gigabytes from the environment, in bytes. @throws UserError */
export function gigabytesOf(name: string, fallback: number): number {
  const text = process.env[name];
  const value = text === undefined || text === '' ? fallback : Number(text);
  if (!(value >= 0)) throw new UserError(`${name}: got ${text}, expected a number of gigabytes`);
  return value * gigabyte;
}

/** One engine's disk. */
export class DiskGate {
  readonly #docker: Docker;
  readonly #minFree: number;
  #root: Promise<string> | undefined;

  constructor(docker: Docker, minFree = minFreeBytes()) {
    this.#docker = docker;
    this.#minFree = minFree;
  }

  /** Bytes free for Docker; undefined where its disk cannot be seen from here (another machine, Docker Desktop). */
  async free(): Promise<number | undefined> {
    this.#root ??= this.#docker.info().then((info: { DockerRootDir: string }) => info.DockerRootDir);
    this.#root.catch(() => (this.#root = undefined));
    const root = await this.#root;
    if (!isLocal(this.#docker)) return undefined;
    return statfs(root).then(
      ({ bavail, bsize }) => bavail * bsize,
      () => undefined,
    );
  }

  /** Whether less is free than must be; false where that cannot be seen. */
  async isShort(): Promise<boolean> {
    const free = await this.free();
    return free !== undefined && free < this.#minFree;
  }

  /** @param purpose completes "not enough space to …" @throws InfrastructureError with the figures where less than the limit is free */
  async check(purpose: string): Promise<void> {
    const free = await this.free();
    if (free === undefined || free >= this.#minFree) return;
    throw new InfrastructureError(
      `not enough space to ${purpose}: ${gb(free)} GB free on the disk of ${await this.#root}, expected ${gb(this.#minFree)} GB; ` +
        'free some (docker system df shows what Docker holds), or lower TERMINAL_RSI_MIN_FREE_GB',
      { type: 'InsufficientDiskSpaceError' },
    );
  }
}

export interface DiskGuardOptions {
  /** Label that the guarded containers carry, `name=value`. */
  readonly label: string;
  readonly logger?: { warn(details: object, message: string): void };
  readonly everyMs?: number;
  /** A container that wrote less is not to blame. */
  readonly leastBytes?: number;
}

/**
 * While sandboxes run, one that fills the disk is killed before the disk is full: of those of this process the one that wrote most.
 * Its episode ends as if a command of the agent had killed the sandbox, which is what happened.
 */
export class DiskGuard {
  readonly #docker: Docker;
  readonly #gate: DiskGate;
  readonly #options: DiskGuardOptions;
  #watched = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(docker: Docker, gate: DiskGate, options: DiskGuardOptions) {
    this.#docker = docker;
    this.#gate = gate;
    this.#options = options;
  }

  /** A sandbox begins. @returns what to call when it is gone */
  watch(): () => void {
    this.#watched++;
    this.#schedule();
    let ended = false;
    return () => {
      if (!ended) this.#watched--;
      ended = true;
      if (this.#watched > 0) return;
      clearTimeout(this.#timer);
      this.#timer = undefined;
    };
  }

  #schedule(): void {
    this.#timer ??= setTimeout(() => {
      void this.#look()
        .catch(() => undefined) // an engine that does not answer writes nothing either
        .finally(() => {
          this.#timer = undefined;
          if (this.#watched > 0) this.#schedule();
        });
    }, this.#options.everyMs ?? lookMs).unref();
  }

  async #look(): Promise<void> {
    if (!(await this.#gate.isShort())) return;
    const running = await this.#docker.listContainers({ size: true, filters: { label: [this.#options.label], status: ['running'] } });
    // The published types do not know the sizes.
    const written = (running as readonly (Docker.ContainerInfo & { readonly SizeRw?: number })[]).map(({ Id, Names, SizeRw = 0 }) => ({
      id: Id,
      name: Names[0]?.slice(1),
      bytes: SizeRw,
    }));
    const [most] = written.sort((a, b) => b.bytes - a.bytes);
    if (!most || most.bytes < (this.#options.leastBytes ?? gigabyte)) return;
    this.#options.logger?.warn({ container: most.name, gigabytes: gb(most.bytes) }, 'killed a sandbox that was filling the disk');
    await this.#docker.getContainer(most.id).kill();
  }
}

/** Between two looks: a container writes a gigabyte in that time at most. */
const lookMs = 1000;

/** Whether the engine runs on this machine, as far as its address tells. */
export function isLocal(docker: Docker): boolean {
  const { socketPath } = docker.modem as { socketPath?: string };
  return process.platform === 'linux' && socketPath !== undefined;
}

function gb(bytes: number): string {
  return (bytes / gigabyte).toFixed(1);
}
