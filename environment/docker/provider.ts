/**
 * The Docker sandbox: a fresh container per sandbox, without network and capabilities, with limits on memory and processes.
 *
 * Nothing may be left behind. A container's name follows from its labels, so that a retry finds and removes what
 * a crashed attempt left; `close` removes it in every outcome; `sweep` removes by label what no living owner holds, and a
 * worker's first container is preceded by the removal of all that dead workers of this host left.
 *
 * An engine that is being restarted takes its containers with it. What they ran fails with EngineLostError and may start again
 * at once: `start` waits for the engine.
 */
import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import Docker from 'dockerode';
import { z } from 'zod';
import { remove, Semaphore, statusOf, typed } from './engine.ts';
import { putFiles } from './files.ts';
import { DockerSandbox } from './sandbox.ts';
import { fate, identify } from '../../workers/process-identity.ts';
import { InfrastructureError, TaskError, UserError } from '../errors.ts';
import { ensureShellImage, finished, hasImage, SHELL_IMAGE } from './shell-image.ts';
import type { Sandbox, SandboxLabels, SandboxProvider, Task } from '../types.ts';

export interface DockerProviderOptions {
  /** Default: the engine that DOCKER_HOST or the usual socket names. */
  readonly docker?: Docker;
  /** Containers being created at the same time: a daemon answers with errors when too many start at once. */
  readonly concurrentStarts?: number;
  /** Milliseconds for which `start` waits for an engine that does not answer. Default: two minutes, a slow restart. */
  readonly patienceMs?: number;
}

const label = {
  run: 'terminal-rsi.run',
  episode: 'terminal-rsi.episode',
  purpose: 'terminal-rsi.purpose',
  owner: 'terminal-rsi.owner',
} as const;
/** Host, process id and start of the process: an id alone is given to other processes later. */
const owner = JSON.stringify(identify(process.pid) ?? {});
const ownerSchema = z
  .string()
  .transform((text, context) => {
    try {
      return JSON.parse(text) as unknown;
    } catch {
      context.addIssue('expected JSON');
      return z.NEVER;
    }
  })
  .pipe(z.object({ host: z.string(), pid: z.number(), start: z.string() }));
type OwnerFate = ReturnType<typeof fate> | 'forgotten';
const PATIENCE_MS = 120_000;
/** Seconds for each RUN line of the environment. */
const runTimeoutSec = 120;
/** Keeps the container up, also when the agent kills every `sleep`. */
const keeper = ['/bin/sh', '-c', 'while :; do sleep 3600; done'];

export class DockerProvider implements SandboxProvider {
  readonly kind = 'docker';
  readonly #docker: Docker;
  readonly #starts: Semaphore;
  readonly #patienceMs: number;
  #swept: Promise<unknown> | undefined;
  readonly #images = new Map<string, Promise<void>>();
  readonly #live = new Map<string, DockerSandbox | undefined>();

  constructor(options: DockerProviderOptions = {}) {
    this.#docker = options.docker ?? new Docker();
    this.#starts = new Semaphore(options.concurrentStarts ?? 4);
    this.#patienceMs = options.patienceMs ?? PATIENCE_MS;
  }

  refusal(task: Task): string | undefined {
    const { needs } = task.environment;
    return needs.length > 0 ? `it needs ${needs.join(', ')}; the docker sandbox runs without network and devices` : undefined;
  }

  async start(task: Task, labels: SandboxLabels, signal?: AbortSignal): Promise<Sandbox> {
    const refusal = this.refusal(task);
    if (refusal !== undefined) throw new TaskError(`${task.id}: ${refusal}`);
    await this.#engine(signal);
    // What cannot be removed now costs memory, and is no reason to run nothing.
    await (this.#swept ??= this.#sweep([label.owner], ['gone']).catch(() => undefined));
    const name = this.#reserveName(labels);
    let sandbox: DockerSandbox | undefined;
    try {
      await this.#image(task.environment.image);
      const container = await this.#starts.run(async () => {
        signal?.throwIfAborted();
        const created = await this.#create(name, task, labels);
        sandbox = new DockerSandbox(created, task, {
          user: '',
          setNetwork: () => Promise.reject(new InfrastructureError('the network of a container cannot be changed')),
          closed: () => this.#live.delete(name),
        });
        this.#live.set(name, sandbox);
        await putFiles(created, task.environment.files, '/');
        await created.start();
        return sandbox;
      });
      for (const line of task.environment.run) {
        const result = await container.exec(line, { timeoutSec: runTimeoutSec, cwd: '/', ...(signal ? { signal } : {}) });
        if (result.exitCode !== 0)
          throw new TaskError(
            `${task.id}: RUN ${line} exited with ${result.exitCode}: ${(result.stderr || result.stdout).trim().slice(-300)}`,
          );
      }
      return container;
    } catch (error) {
      if (sandbox) await sandbox.close();
      else this.#live.delete(name);
      signal?.throwIfAborted();
      throw typed(error, 'start a container');
    }
  }

  async sweep(runKey: string): Promise<number> {
    try {
      return await this.#sweep([`${label.run}=${runKey}`], ['gone', 'forgotten']);
    } catch (error) {
      throw typed(error, `sweep the containers of run ${runKey}`);
    }
  }

  async #sweep(filter: string[], fates: readonly OwnerFate[]): Promise<number> {
    const found = await this.#docker.listContainers({ all: true, filters: { label: filter } });
    const abandoned = found.filter((container) => fates.includes(this.#ownerOf(container)));
    await Promise.all(abandoned.map((container) => remove(this.#docker.getContainer(container.Id))));
    return abandoned.length;
  }

  /** Waits for an engine that does not answer. @throws EngineLostError after the patience, or the signal's reason */
  async #engine(signal?: AbortSignal): Promise<void> {
    for (const end = performance.now() + this.#patienceMs; ; await sleep(500, undefined, signal && { signal })) {
      signal?.throwIfAborted();
      try {
        await this.#docker.ping();
        return;
      } catch (error) {
        if (performance.now() >= end) throw typed(error, 'start a container');
      }
    }
  }

  async close(): Promise<void> {
    await Promise.all([...this.#live.values()].map((sandbox) => sandbox?.close() ?? Promise.resolve()));
  }

  /** `forgotten`: by another provider of this process. Other hosts alone can tell of their processes, but what does not run is nobody's. */
  #ownerOf({ Names, Labels, State }: Docker.ContainerInfo): OwnerFate {
    if (Names.some((name) => this.#live.has(name.slice(1)))) return 'alive';
    const held = Labels[label.owner] ?? '';
    if (held === owner) return 'forgotten';
    const known = ownerSchema.safeParse(held);
    const found = known.success ? fate(known.data) : 'unknown';
    return found === 'unknown' && State === 'exited' ? 'gone' : found;
  }

  /** The name follows from the labels; only a second living sandbox with equal labels in this process gets a number behind it. */
  #reserveName(labels: SandboxLabels): string {
    const digest = createHash('sha256').update([labels.runKey, labels.episodeId, labels.purpose].join('\0')).digest('hex').slice(0, 20);
    const base = `terminal-rsi-${labels.purpose}-${digest}`;
    let name = base;
    for (let number = 2; this.#live.has(name); number++) name = `${base}-${number}`;
    this.#live.set(name, undefined);
    return name;
  }

  async #create(name: string, task: Task, labels: SandboxLabels): Promise<Docker.Container> {
    const { image, env, memoryMb, pidsLimit } = task.environment;
    const bytes = memoryMb * 1024 * 1024;
    const options: Docker.ContainerCreateOptions = {
      name,
      Image: image,
      Entrypoint: keeper,
      Cmd: [],
      Hostname: 'localhost', // else a new one per container, seen in observations
      WorkingDir: task.workdir,
      User: '0',
      Env: Object.entries({ HOME: '/root', ...env }).map(([key, value]) => `${key}=${value}`),
      Labels: { [label.run]: labels.runKey, [label.episode]: labels.episodeId, [label.purpose]: labels.purpose, [label.owner]: owner },
      HostConfig: {
        NetworkMode: 'none',
        CapDrop: ['ALL'],
        SecurityOpt: ['no-new-privileges'],
        Init: true, // reaps orphans: otherwise zombies fill the pids limit
        Memory: bytes,
        MemorySwap: bytes,
        PidsLimit: pidsLimit,
        LogConfig: { Type: 'none', Config: {} },
        RestartPolicy: { Name: 'no' },
      },
    };
    try {
      return await this.#docker.createContainer(options);
    } catch (error) {
      if (statusOf(error) !== 409) throw error;
      await remove(this.#docker.getContainer(name)); // a crashed attempt's leftover
      return await this.#docker.createContainer(options);
    }
  }

  /** Makes sure that the image is there, once per image. */
  #image(name: string): Promise<void> {
    const known = this.#images.get(name);
    if (known) return known;
    const making = name === SHELL_IMAGE ? ensureShellImage(this.#docker).then(() => undefined) : this.#pull(name);
    this.#images.set(name, making);
    making.catch(() => this.#images.delete(name));
    return making;
  }

  async #pull(name: string): Promise<void> {
    if (await hasImage(this.#docker, name)) return;
    try {
      await finished(this.#docker, await this.#docker.pull(/[:@]/.test(name) ? name : `${name}:latest`));
    } catch (error) {
      throw new UserError(
        `the image ${name} is not on this machine and cannot be pulled: ${(error as Error).message}. Load it with docker load or docker build, or use the tasks that start FROM ${SHELL_IMAGE}`,
      );
    }
  }
}
