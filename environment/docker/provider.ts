/**
 * The Docker sandbox: a fresh container per sandbox, without a network unless the task asks for one, with limits on memory, processes
 * and privileges.
 *
 * Nothing may be left behind. A container's name follows from its labels, so that a retry finds and takes or removes what an
 * earlier attempt left; `close` removes it in every outcome; the reaper removes what no living owner holds, and a
 * process's first container is preceded by a round of it.
 *
 * An engine that is being restarted takes its containers with it. What they ran fails with EngineLostError and may start again
 * at once: `start` waits for the engine.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import Docker from 'dockerode';
import { AllowlistProxy } from './allowlist-proxy.ts';
import { Attachment, policiesOf } from './attachment.ts';
import { DiskGate, DiskGuard, isLocal } from './disk.ts';
import { remove, Semaphore, statusOf, typed } from './engine.ts';
import { putFiles } from './files.ts';
import { EnvironmentImages } from './images.ts';
import type { EnvironmentImage } from './images.ts';
import { containerName, label, labelsOf, owner, ownerFate } from './labels.ts';
import { isPlain, limitsOf } from './limits.ts';
import { BridgeNetworks } from './networks.ts';
import { Reaper } from './reaper.ts';
import type { ReaperOptions } from './reaper.ts';
import { sandboxOfKiller } from './processes.ts';
import { DockerSandbox } from './sandbox.ts';
import { createContainer, startContainer } from './start.ts';
import { InfrastructureError, TaskError } from '../errors.ts';
import { resolveEnv } from '../tasks/env-templates.ts';
import { withImageWorkdir } from '../tasks/workdir.ts';
import type { Sandbox, SandboxLabels, SandboxProvider, Task } from '../types.ts';

export interface DockerProviderOptions {
  /** Default: the engine that DOCKER_HOST or the usual socket names. */
  readonly docker?: Docker;
  /** Containers being started at the same time. Default: four in this process, whatever number of providers it has for this engine. */
  readonly concurrentStarts?: number;
  /** Milliseconds for which `start` waits for an engine that does not answer. Default: two minutes, a slow restart. */
  readonly patienceMs?: number;
  /** Milliseconds after which one answer of the engine counts as lost. Default: one minute. */
  readonly answerMs?: number;
  /** Bytes that must be free on Docker's disk. Default: TERMINAL_RSI_MIN_FREE_GB. */
  readonly minFreeBytes?: number;
  /** Default: TERMINAL_RSI_SUBNETS. */
  readonly subnets?: string;
  /** Asked before a container of another host is removed; default: nobody knows. */
  readonly isOpen?: ReaperOptions['isOpen'];
  readonly logger?: ReaperOptions['logger'];
}

const PATIENCE_MS = 120_000;
const ANSWER_MS = 60_000;
/** More starts at the same time make an engine answer with errors. */
const CONCURRENT_STARTS = 4;
/** Seconds for each RUN line of an environment that is not built. */
const runTimeoutSec = 120;
/** After somebody removed the image or the network that was just looked up. */
const startAttempts = 3;
/** Keeps the container up, also when the agent kills every `sleep`. */
const keeper = ['/bin/sh', '-c', 'while :; do sleep 3600; done'];

/** One per engine, for all providers of this process. */
const throttles = new Map<string, Semaphore>();
/** Names of all containers that this process works with, or is about to: what else carries its name, a failed removal left. */
const held = new Set<string>();

export class DockerProvider implements SandboxProvider {
  readonly kind = 'docker';
  /** Removes what crashed owners left, of this provider's engine. */
  readonly reaper: Reaper;
  readonly #docker: Docker;
  readonly #starts: Semaphore;
  readonly #patienceMs: number;
  readonly #answerMs: number;
  readonly #gate: DiskGate;
  readonly #guard: DiskGuard;
  readonly #logger: ReaperOptions['logger'];
  readonly #images: EnvironmentImages;
  readonly #networks: BridgeNetworks;
  readonly #proxy = new AllowlistProxy();
  readonly #live = new Map<string, DockerSandbox | undefined>();
  #reaped: Promise<unknown> | undefined;
  #networked = false;
  /** Until the engine says that its storage driver cannot. */
  #limitsStorage = true;

  constructor(options: DockerProviderOptions = {}) {
    this.#docker = options.docker ?? new Docker();
    this.#starts = options.concurrentStarts === undefined ? throttleOf(this.#docker) : new Semaphore(options.concurrentStarts);
    this.#patienceMs = options.patienceMs ?? PATIENCE_MS;
    this.#answerMs = options.answerMs ?? ANSWER_MS;
    this.#gate = new DiskGate(this.#docker, options.minFreeBytes);
    this.#logger = options.logger;
    const logger = options.logger ? { logger: options.logger } : {};
    this.#guard = new DiskGuard(this.#docker, this.#gate, { label: `${label.owner}=${owner}`, ...logger });
    this.#images = new EnvironmentImages(this.#docker, { gate: this.#gate });
    this.#networks = new BridgeNetworks(this.#docker, options.subnets);
    this.reaper = new Reaper(this.#docker, {
      isOpen: options.isOpen ?? (() => Promise.resolve(undefined)),
      ...logger,
      isHeld: (name) => held.has(sandboxOfKiller(name) ?? name),
      networks: this.#networks,
      images: this.#images,
    });
  }

  refusal(task: Task): string | undefined {
    const { needs } = task.environment;
    if (needs.length > 0) return `it needs ${needs.join(', ')}, which the docker sandbox does not have`;
    if (policiesOf(task).some(({ mode }) => mode === 'allowlist') && !isLocal(this.#docker))
      return 'its network has an allow-list, which needs a Docker engine on the same Linux machine, reached by its socket';
    return undefined;
  }

  async locate(task: Task, signal?: AbortSignal): Promise<Task> {
    if (this.refusal(task) !== undefined) return task; // `start` says so
    await this.#engine(signal);
    try {
      return withImageWorkdir(task, (await this.#images.ensure(task.environment, task.id, signal)).workdir);
    } catch (error) {
      signal?.throwIfAborted();
      throw typed(error, 'look into an image');
    }
  }

  async start(task: Task, labels: SandboxLabels, signal?: AbortSignal): Promise<Sandbox> {
    const refusal = this.refusal(task);
    if (refusal !== undefined) throw new TaskError(`${task.id}: ${refusal}`);
    await this.#engine(signal);
    // What cannot be removed now costs memory, and is no reason to run nothing.
    await (this.#reaped ??= this.reaper.reapOnce().catch(() => undefined));
    const name = this.#reserveName(containerName(labels));
    try {
      for (let attempt = 1; ; attempt++) {
        const image = await this.#images.ensure(task.environment, task.id, signal);
        try {
          return await this.#withinBudget(task, signal, (budget) => this.#start(name, task, labels, image, budget));
        } catch (error) {
          if (attempt === startAttempts || !isMissing(error)) throw error;
          await this.#images.forget(image.name);
        }
      }
    } catch (error) {
      this.#release(name);
      signal?.throwIfAborted();
      throw typed(error, 'start a container');
    }
  }

  async sweep(runKey: string): Promise<number> {
    try {
      const found = await this.#docker.listContainers({ all: true, filters: { label: [`${label.run}=${runKey}`] } });
      const abandoned = found.filter((container) => this.#isAbandoned(container));
      await Promise.all(abandoned.map((container) => remove(this.#docker.getContainer(container.Id))));
      return abandoned.length;
    } catch (error) {
      throw typed(error, `sweep the containers of run ${runKey}`);
    }
  }

  async close(): Promise<void> {
    this.#images.close();
    await this.reaper.stop();
    await Promise.all([...this.#live.values()].map((sandbox) => sandbox?.close() ?? Promise.resolve()));
    await this.#proxy.close();
    // Networks that are left cost nothing but their addresses: the next reaper takes them.
    if (this.#networked) await this.#networks.sweep({ restMs: 0 }).catch(() => undefined);
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

  /** Ends `work` at the environment's time limit, which does not count the wait for other containers' starts. */
  async #withinBudget<T>(task: Task, signal: AbortSignal | undefined, work: (budget: Budget) => Promise<T>): Promise<T> {
    const { buildTimeoutSec: seconds } = task.environment;
    const expiry = new AbortController();
    let timer: NodeJS.Timeout | undefined;
    const begin = (): void => {
      if (seconds * 1000 < 2 ** 31) timer = setTimeout(() => expiry.abort(), seconds * 1000);
    };
    try {
      return await work({ signal: signal ? AbortSignal.any([signal, expiry.signal]) : expiry.signal, begin });
    } catch (error) {
      if (!expiry.signal.aborted || signal?.aborted === true) throw error;
      throw new InfrastructureError(`${task.id}: its container was not ready within ${seconds} s (build_timeout_sec)`, {
        type: 'EnvironmentStartTimeoutError',
      });
    } finally {
      clearTimeout(timer);
    }
  }

  async #start(name: string, task: Task, labels: SandboxLabels, image: EnvironmentImage, { signal, begin }: Budget): Promise<Sandbox> {
    const attachment = new Attachment(this.#docker, this.#networks, this.#proxy, task);
    let sandbox: DockerSandbox | undefined;
    try {
      const started = await this.#starts.run(async () => {
        begin();
        signal.throwIfAborted();
        await this.#gate.check('start a container');
        const container = await this.#create(name, task, labels, image, attachment, signal);
        const unwatch = this.#guard.watch();
        sandbox = new DockerSandbox(container, task, {
          user: image.user,
          setNetwork: (policy) => attachment.set(policy),
          closed: () => {
            unwatch();
            attachment.close();
            if (this.#live.get(name) === sandbox) this.#release(name);
          },
        });
        this.#live.set(name, sandbox);
        if (!image.built) await putFiles(container, task.environment.files, '/');
        await startContainer(container, { answerMs: this.#answerMs, signal });
        await attachment.started(container);
        return sandbox;
      });
      for (const line of image.built ? [] : task.environment.run) {
        const result = await started.exec(line, { timeoutSec: runTimeoutSec, cwd: '/', signal });
        if (result.exitCode !== 0)
          throw new TaskError(
            `${task.id}: RUN ${line} exited with ${result.exitCode}: ${(result.stderr || result.stdout).trim().slice(-300)}`,
            { type: 'SandboxBuildFailedError' },
          );
      }
      return started;
    } catch (error) {
      if (sandbox) await sandbox.close();
      else attachment.close();
      // The name stays reserved for another try.
      this.#live.set(name, undefined);
      held.add(name);
      throw error;
    }
  }

  async #create(
    name: string,
    task: Task,
    labels: SandboxLabels,
    image: EnvironmentImage,
    attachment: Attachment,
    signal: AbortSignal,
  ): Promise<Docker.Container> {
    const { env, hostname, host } = await attachment.settings();
    this.#networked ||= host.NetworkMode !== 'none';
    const home = isPlain(task.environment, image) ? { HOME: '/root' } : {}; // elsewhere the user's own
    const variables = { ...home, ...env, ...resolveEnv(task.environment.env, `${task.id}: [environment]`) };
    const options = {
      name,
      Image: image.name,
      Entrypoint: keeper,
      Cmd: [],
      Hostname: hostname, // else a new one per container, seen in observations
      WorkingDir: task.workdir,
      User: '0',
      Env: Object.entries(variables).map(([key, value]) => `${key}=${value}`),
      Labels: labelsOf(task, labels),
      HostConfig: { ...limitsOf(task, image), ...host },
    };
    const patience = { answerMs: this.#answerMs, signal };
    const { storageMb } = task.environment;
    if (storageMb !== undefined && this.#limitsStorage) {
      try {
        const HostConfig = { ...options.HostConfig, StorageOpt: { size: `${storageMb}M` } };
        return await createContainer(this.#docker, { ...options, HostConfig }, patience);
      } catch (error) {
        if (!/storage-opt/.test((error as Error).message)) throw error;
        this.#limitsStorage = false;
        this.#logger?.warn({ err: error }, "the engine's storage cannot limit a container's disk: storage_mb is not enforced");
      }
    }
    return createContainer(this.#docker, options, patience);
  }

  /** By another process, or by another provider of this one. What does not run and cannot be asked for is nobody's. */
  #isAbandoned({ Names, Labels, State }: Docker.ContainerInfo): boolean {
    if (Names.some((name) => this.#live.has(name.slice(1)))) return false;
    const held = Labels[label.owner];
    const fate = ownerFate(held);
    return held === owner || fate === 'gone' || (fate === 'unknown' && State === 'exited');
  }

  /** Only a second living sandbox with equal labels in this process gets a number behind its name. */
  #reserveName(base: string): string {
    let name = base;
    for (let number = 2; this.#live.has(name); number++) name = `${base}-${number}`;
    this.#live.set(name, undefined);
    held.add(name);
    return name;
  }

  #release(name: string): void {
    this.#live.delete(name);
    held.delete(name);
  }
}

interface Budget {
  readonly signal: AbortSignal;
  /** Starts the clock. */
  readonly begin: () => void;
}

function throttleOf(docker: Docker): Semaphore {
  const { socketPath, host, port } = docker.modem as { socketPath?: string; host?: string; port?: number };
  const engine = socketPath ?? `${host}:${port}`;
  const known = throttles.get(engine) ?? new Semaphore(CONCURRENT_STARTS);
  throttles.set(engine, known);
  return known;
}

/** The image or the network is gone that was there when it was looked up. */
function isMissing(error: unknown): boolean {
  return statusOf(error) === 404 && /no such image|network \S+ not found/i.test((error as Error).message);
}
