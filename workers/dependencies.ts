/** What the workers' activities are built from: the artifact store, sandboxes, tasks, policies and the trainer's clients. */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import Docker from 'dockerode';
import { countArtifact } from '../activities/metrics.ts';
import type { GpuDependencies, Numerics, PolicyText, RolloutDependencies, TrainerSupervisor } from '../activities/dependencies.ts';
import { DockerProvider } from '../environment/docker/provider.ts';
import type { ReaperOptions } from '../environment/docker/reaper.ts';
import { EmbeddedProvider } from '../environment/embedded/provider.ts';
import { InfrastructureError, TaskError, UserError } from '../environment/errors.ts';
import { openDataset } from '../environment/tasks/datasets.ts';
import { TaskCache } from '../environment/tasks/task.ts';
import type { SandboxKind, SandboxProvider } from '../environment/types.ts';
import { loadCodec } from '../policy/codec.ts';
import type { Device } from '../policy/tensorflow.ts';
import { HttpSampler, HttpTrainer } from '../policy/trainer/client.ts';
import { openStore } from '../records/artifacts.ts';
import { dataDirectory } from '../records/paths.ts';
import { suiteDirectory } from '../suites/suites.ts';
import { addressUrl, statusAddress } from './listen-address.ts';
import type { Logger } from './runtime.ts';
import { trainerUrl } from './trainer-url.ts';

/** Between two rounds of the reaper. */
const REAP_MS = 5 * 60_000;

/** @param isOpen asked before a container of another host is removed (workers/open-workflows.ts) */
export function rolloutDependencies(
  logger: Logger,
  isOpen?: ReaperOptions['isOpen'],
): RolloutDependencies & { reapIfDocker(): Promise<void>; close(): Promise<void> } {
  const makeDocker = (): DockerProvider => {
    const docker = new DockerProvider({ logger, ...(isOpen ? { isOpen } : {}) });
    docker.reaper.start(REAP_MS);
    return docker;
  };
  const providers = new Map<SandboxKind, SandboxProvider>();
  const tasks = new TaskCache(logger);
  const policies = new Map<string, Promise<PolicyText>>();
  const status = statusAddress();
  const dependencies: RolloutDependencies = {
    store: openStore(countArtifact),
    data: dataDirectory(),
    ...(status ? { reportUrl: (runKey) => `${addressUrl(status)}/reports/${runKey}/` } : {}),
    sampler: new HttpSampler(trainerUrl()),
    numerics,
    provider(kind) {
      let provider = providers.get(kind);
      // Made when first asked for: a machine without Docker runs embedded tasks all the same.
      if (!provider) providers.set(kind, (provider = kind === 'docker' ? makeDocker() : new EmbeddedProvider()));
      return provider;
    },
    async task({ suite, id, checksum, dir }) {
      const directory = dir ?? path.join(suiteDirectory(suite), id);
      const task = await tasks.load(directory);
      if (task.checksum !== checksum) {
        throw new TaskError(
          `task ${suite}/${id} in ${directory} has checksum ${task.checksum}, expected ${checksum}: it changed after the run began`,
        );
      }
      return task;
    },
    dataset: (place, selection) => openDataset(place, { ...selection, logger }),
    policy(directory) {
      const known = policies.get(directory) ?? readPolicy(directory);
      policies.set(directory, known);
      known.catch(() => policies.delete(directory));
      return known;
    },
  };
  return {
    ...dependencies,
    /** What a lost worker left goes at the start, also where this one will run embedded tasks alone. Never throws. */
    async reapIfDocker() {
      const answers = await new Docker().ping().then(
        () => true,
        () => false,
      );
      try {
        if (answers) dependencies.provider('docker');
      } catch (error) {
        logger.error({ err: error }, 'no reaper'); // a wrong setting, which the first Docker task says again
      }
    },
    async close() {
      await Promise.all([...providers.values()].map((provider) => provider.close()));
    },
  };
}

/** What of the trainer's GET /health is recorded. */
interface Health extends Pick<Numerics, 'threads' | 'samplerSlots' | 'node'> {
  readonly device: Device;
  readonly engine: { readonly mode: string; readonly fallbacks: readonly string[] };
}

async function numerics(): Promise<Numerics> {
  const token = process.env['TERMINAL_RSI_TRAINER_TOKEN'];
  try {
    const response = await fetch(`${trainerUrl()}/health`, {
      ...(token === undefined ? {} : { headers: { authorization: `Bearer ${token}` } }),
      signal: AbortSignal.timeout(20_000),
    });
    const health = (await response.json()) as Health;
    const { kind, name, driver, tensorFloat32, tensorflow } = health.device;
    return {
      device: kind,
      deviceName: name,
      ...(driver !== undefined && { driver }),
      ...(tensorFloat32 !== undefined && { tensorFloat32 }),
      tensorflow,
      engine: health.engine.mode,
      ...(health.engine.fallbacks.length > 0 && { fallbacks: health.engine.fallbacks }),
      threads: health.threads,
      samplerSlots: health.samplerSlots,
      node: health.node,
    };
  } catch (cause) {
    throw new InfrastructureError(`the trainer at ${trainerUrl()} does not tell its settings`, { cause });
  }
}

/** Seconds without a training step after which the trainer is restarted; TERMINAL_RSI_STALL_SECONDS. */
const STALL_SECONDS = 600;

export function gpuDependencies(trainer: TrainerSupervisor): GpuDependencies {
  const stallSeconds = Number(process.env['TERMINAL_RSI_STALL_SECONDS'] ?? STALL_SECONDS);
  if (!(stallSeconds > 0))
    throw new UserError(`TERMINAL_RSI_STALL_SECONDS: got ${process.env['TERMINAL_RSI_STALL_SECONDS']}, expected a number above 0`);
  return { store: openStore(countArtifact), data: dataDirectory(), client: new HttpTrainer(trainerUrl()), trainer, stallSeconds };
}

async function readPolicy(directory: string): Promise<PolicyText> {
  const file = path.join(directory, 'config.json');
  const { max_position_embeddings: contextLength } = JSON.parse(await readFile(file, 'utf8')) as { max_position_embeddings?: unknown };
  if (typeof contextLength !== 'number')
    throw new UserError(`${file}: max_position_embeddings is ${JSON.stringify(contextLength)}, expected a number of tokens`);
  return { codec: loadCodec(directory), contextLength };
}
