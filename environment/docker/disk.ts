/**
 * Whether the disk that Docker writes to has room: containers that fill it would take the worker, the engine and other people's work
 * with them, and a verdict on a full disk would be a fake zero. Looked at before a build and before a start.
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

/** Whether the engine runs on this machine, as far as its address tells. */
export function isLocal(docker: Docker): boolean {
  const { socketPath } = docker.modem as { socketPath?: string };
  return process.platform === 'linux' && socketPath !== undefined;
}

function gb(bytes: number): string {
  return (bytes / gigabyte).toFixed(1);
}
