/**
 * The images that sandboxes start from. A Dockerfile that is more than files, variables and commands on the shell image is built
 * once and kept as `terminal-rsi/env:<hash>`: the hash covers the build context, the base images' ids and the platform, so that a
 * changed file or base gives another image and nothing else does.
 *
 * When an image was last used stands in the engine itself: using it sets its tag anew, which the engine dates. So all
 * processes of one engine see the same, and above TERMINAL_RSI_IMAGE_GB those that nobody used for longest are removed. Only
 * images with our label are ever removed, and never one that a container uses.
 */
import { createHash } from 'node:crypto';
import type Docker from 'dockerode';
import { InfrastructureError, TaskError, UserError } from '../errors.ts';
import type { EnvironmentSpec } from '../types.ts';
import { BASE_IMAGE, ensureBaseImage } from './base-image.ts';
import { buildImage } from './build.ts';
import { DiskGate, gigabytesOf } from './disk.ts';
import { Semaphore, statusOf } from './engine.ts';
import { ensureShellImage, finished, hasImage, SHELL_IMAGE } from './shell-image.ts';

const label = { image: 'terminal-rsi.image', baseBytes: 'terminal-rsi.base-bytes' } as const;
/** Builds at the same time in this process: each takes a core and a disk. */
const concurrentBuilds = 2;
/** How long a use is good for, and how long an image stays after it whatever the limit: a start between look-up and create needs it. */
const touchMs = 5 * 60_000;
const restMs = 2 * touchMs;

export interface EnvironmentImage {
  readonly name: string;
  /** The user that the image names; '' = root. */
  readonly user: string;
  /** '' where the image names none. */
  readonly workdir: string;
  /** Whether it holds the environment's files and RUN lines, or they are still to be laid over it. */
  readonly built: boolean;
}

export interface ImagesOptions {
  readonly gate?: DiskGate;
  /** Bytes that built images may take above their bases. Default: TERMINAL_RSI_IMAGE_GB, 40. */
  readonly limitBytes?: number;
  /** How long an image is kept after its last use in any case. Milliseconds. */
  readonly restMs?: number;
  /** Names and labels them, so that a test sees its own alone. Default: `env`. */
  readonly set?: string;
}

export class EnvironmentImages {
  readonly #docker: Docker;
  readonly #gate: DiskGate;
  readonly #limit: number;
  readonly #restMs: number;
  readonly #set: string;
  readonly #builds = new Semaphore(concurrentBuilds);
  readonly #known = new Map<string, { readonly image: Promise<EnvironmentImage>; touched: number }>();
  readonly #closing = new AbortController();
  #platform: Promise<string> | undefined;

  constructor(docker: Docker, options: ImagesOptions = {}) {
    this.#docker = docker;
    this.#gate = options.gate ?? new DiskGate(docker);
    this.#limit = options.limitBytes ?? gigabytesOf('TERMINAL_RSI_IMAGE_GB', 40);
    this.#restMs = options.restMs ?? restMs;
    this.#set = options.set ?? 'env';
  }

  /**
   * The image of an environment, built or fetched if need be. Callers that want the same image wait for one build; one that gives up
   * leaves the build to the others.
   * @param place the task, for messages
   * @throws TaskError for a Dockerfile that cannot be built, InfrastructureError for an engine or a network that fails (both of type
   * SandboxBuildFailedError), UserError for a base image that is not here
   */
  async ensure(environment: EnvironmentSpec, place: string, signal?: AbortSignal): Promise<EnvironmentImage> {
    signal?.throwIfAborted();
    const key = needsBuild(environment) ? `build ${environment.build?.hash}` : environment.image;
    let known = this.#known.get(key);
    if (!known || !(await this.#touch(await this.#wait(known.image, signal), known))) {
      const image = needsBuild(environment) ? this.#built(environment, place) : this.#fetched(environment.image);
      known = { image, touched: Date.now() };
      this.#known.set(key, known);
      image.catch(() => this.#known.delete(key));
    }
    return this.#wait(known.image, signal);
  }

  /** After the engine said that it has no such image: somebody removed it. */
  async forget(name: string): Promise<void> {
    for (const [key, { image }] of [...this.#known]) {
      const found = await image.catch(() => undefined);
      if (found?.name === name) this.#known.delete(key);
    }
  }

  /** Removes what is above the limit, least recently used first, and what failed or doubled builds left. Returns how many were removed. */
  async prune(): Promise<number> {
    const images = await this.#docker.listImages({ filters: { label: [`${label.image}=${this.#set}`] } });
    const used = new Set((await this.#docker.listContainers({ all: true })).map(({ ImageID }) => ImageID));
    const candidates: { name: string; bytes: number; lastUse: number }[] = [];
    let total = 0;
    for (const { Id, RepoTags, Size, Labels } of images) {
      const tag = RepoTags?.find((name) => name.startsWith(`terminal-rsi/${this.#set}:`));
      const bytes = Math.max(0, Size - Number(Labels?.[label.baseBytes] ?? 0));
      total += bytes;
      if (!used.has(Id)) candidates.push({ name: tag ?? Id, bytes, lastUse: tag === undefined ? 0 : await this.#lastUse(Id) });
    }
    let removed = 0;
    for (const { name, bytes, lastUse } of candidates.sort((a, b) => a.lastUse - b.lastUse)) {
      const leftover = lastUse === 0;
      if (!leftover && (total <= this.#limit || Date.now() - lastUse < this.#restMs)) continue;
      if (!(await removeImage(this.#docker, name))) continue;
      total -= bytes;
      removed++;
    }
    return removed;
  }

  /** Ends running builds. */
  close(): void {
    this.#closing.abort(new InfrastructureError('the provider is closed'));
  }

  async #wait<T>(result: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    if (!signal) return result;
    let onAbort: (() => void) | undefined;
    const aborted = new Promise<never>((_, reject) => signal.addEventListener('abort', (onAbort = () => reject(signal.reason as Error))));
    return Promise.race([result, aborted]).finally(() => onAbort && signal.removeEventListener('abort', onAbort));
  }

  /** Notes the use of a built image. False where it is gone. */
  async #touch(image: EnvironmentImage, known: { touched: number }): Promise<boolean> {
    if (!image.built || Date.now() - known.touched < Math.min(touchMs, this.#restMs / 2)) return true;
    known.touched = Date.now();
    return this.#tag(image.name);
  }

  async #tag(name: string): Promise<boolean> {
    const [repo = '', tag = ''] = name.split(':');
    try {
      await this.#docker.getImage(name).tag({ repo, tag });
      return true;
    } catch (error) {
      if (statusOf(error) === 404) return false;
      throw error;
    }
  }

  async #lastUse(id: string): Promise<number> {
    const found = await this.#docker
      .getImage(id)
      .inspect()
      .catch(() => undefined);
    return Date.parse((found as { Metadata?: { LastTagTime?: string } } | undefined)?.Metadata?.LastTagTime ?? '') || Date.now();
  }

  async #built(environment: EnvironmentSpec, place: string): Promise<EnvironmentImage> {
    const { build } = environment;
    if (!build) throw new TaskError(`${place}: ${environment.notSimple ?? 'its environment'} needs a build, and there is no Dockerfile`);
    const bases = await Promise.all(baseImages(dockerfileOf(environment)).map((name) => this.#base(name)));
    this.#platform ??= this.#docker.version().then(({ Os, Arch }) => `${Os}/${Arch}`);
    this.#platform.catch(() => (this.#platform = undefined));
    const identity = [build.hash, await this.#platform, ...bases.map(({ id }) => id)];
    const name = `terminal-rsi/${this.#set}:${createHash('sha256').update(identity.join('\0')).digest('hex').slice(0, 32)}`;
    if (!(await this.#tag(name))) {
      await this.#builds.run(async () => {
        await this.#gate.check(`build the image of ${place}`);
        await buildImage(this.#docker, {
          place,
          name,
          context: build.context,
          labels: { [label.image]: this.#set, [label.baseBytes]: String(bases.at(-1)?.bytes ?? 0) },
          timeoutSec: environment.buildTimeoutSec,
          signal: this.#closing.signal,
        });
      });
      await this.prune().catch(() => 0); // the reaper tries again
    }
    return this.#describe(name, true);
  }

  async #fetched(name: string): Promise<EnvironmentImage> {
    await this.#base(name);
    return this.#describe(name, false);
  }

  async #describe(name: string, built: boolean): Promise<EnvironmentImage> {
    const { Config: config } = await this.#docker.getImage(name).inspect();
    return { name, user: config.User, workdir: config.WorkingDir, built };
  }

  /** An image that is not ours to build. */
  async #base(name: string): Promise<{ readonly id: string; readonly bytes: number }> {
    if (name === SHELL_IMAGE) await ensureShellImage(this.#docker);
    else if (name === BASE_IMAGE) await ensureBaseImage(this.#docker);
    else if (!(await hasImage(this.#docker, name))) await this.#pull(name);
    const { Id, Size } = await this.#docker.getImage(name).inspect();
    return { id: Id, bytes: Size };
  }

  async #pull(name: string): Promise<void> {
    await this.#gate.check(`fetch the image ${name}`);
    try {
      await finished(this.#docker, await this.#docker.pull(/[:@][^/]*$/.test(name) ? name : `${name}:latest`));
    } catch (error) {
      throw new UserError(
        `the image ${name} is not on this machine and cannot be pulled: ${(error as Error).message}. Load it with docker load or docker build, or use the tasks that start FROM ${SHELL_IMAGE} or ${BASE_IMAGE}, which are made on demand`,
      );
    }
  }
}

/** Whether an environment is more than the provider lays over an image by itself. */
export function needsBuild({ build, simple, image, run }: EnvironmentSpec): boolean {
  if (!simple) return true;
  return build !== undefined && image !== SHELL_IMAGE && run.length > 0;
}

function dockerfileOf({ build }: EnvironmentSpec): string {
  return Buffer.from(build?.context.get('Dockerfile')?.data ?? '').toString('utf8');
}

/** The images that a Dockerfile starts its stages from, the last stage's last. Those named by a variable without default are the build's to find. */
export function baseImages(dockerfile: string): string[] {
  const defaults = new Map<string, string>();
  const stages = new Set<string>();
  const bases: string[] = [];
  for (const line of dockerfile.replace(/\\\r?\n/g, ' ').split(/\r?\n/)) {
    const [, argument, value = ''] = /^\s*ARG\s+(\w+)=["']?([^"'\s]*)/i.exec(line) ?? [];
    if (argument !== undefined && bases.length === 0) defaults.set(argument, value);
    const [, from, stage] = /^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$/i.exec(line) ?? [];
    if (from === undefined) continue;
    const name = from.replace(/\$\{(\w+)(?::?-([^}]*))?\}|\$(\w+)/g, (_, braced?: string, fallback?: string, bare?: string) => {
      return defaults.get(braced ?? bare ?? '') ?? fallback ?? '$';
    });
    if (!name.includes('$') && name !== 'scratch' && !stages.has(name.toLowerCase())) bases.push(name);
    if (stage !== undefined) stages.add(stage.toLowerCase());
  }
  return bases;
}

/** Removes an image unless something uses it. @returns whether it is gone by this call */
export async function removeImage(docker: Docker, name: string): Promise<boolean> {
  try {
    await docker.getImage(name).remove();
    return true;
  } catch (error) {
    if (statusOf(error) === 404 || statusOf(error) === 409) return false;
    // Two removals beside each other trip over a layer that both held; the name is gone all the same.
    if (/unrecognized image ID/.test((error as Error).message)) return !(await hasImage(docker, name));
    throw error;
  }
}
