/** What activities are built from. Workers make it once (workers/dependencies.ts); tests give parts of their own. */
import type { Dataset, DatasetOptions } from '../environment/tasks/datasets.ts';
import type { EpisodeCodec, Sampler, SandboxKind, SandboxProvider, Task } from '../environment/types.ts';
import type { TrainerClient } from '../policy/types.ts';
import type { ArtifactStore } from '../records/artifacts.ts';
import type { TaskListing } from '../workflows/contract.ts';

export interface RolloutDependencies {
  readonly store: ArtifactStore;
  /** The data folder: journals and reports live below it. */
  readonly data: string;
  /** Address of a run's report in a browser; absent where this worker serves none. */
  readonly reportUrl?: (runKey: string) => string;
  readonly sampler: Sampler;
  /** What decides the trainer's bits beside its inputs, for the ledger; absent where no trainer is asked. */
  readonly numerics?: () => Promise<Numerics>;
  provider(kind: SandboxKind): SandboxProvider;
  /** Throws TaskError when the directory is not the task that the listing names. */
  task(listing: Pick<TaskListing, 'suite' | 'id' | 'checksum' | 'dir'>): Promise<Task>;
  /** As environment/tasks/datasets.ts has it. */
  dataset(place: string, selection: Pick<DatasetOptions, 'include' | 'exclude' | 'limit'>): Promise<Dataset>;
  /** Codec and context length in tokens of the policy in this directory. */
  policy(directory: string): Promise<PolicyText>;
}
export interface Numerics {
  /** CPU or GPU. */
  readonly device: string;
  /** The processor's or GPU's model. */
  readonly deviceName?: string | undefined;
  /** Of a GPU. */
  readonly driver?: string | undefined;
  readonly tensorFloat32?: boolean | undefined;
  readonly tensorflow?: string | undefined;
  /** graph or eager, and why some steps ran eagerly although graphs were asked for. */
  readonly engine?: string | undefined;
  readonly fallbacks?: readonly string[] | undefined;
  /** Lanes side by side, on a CPU. */
  readonly threads: number;
  readonly samplerSlots: number;
  readonly node: string;
}
export interface PolicyText {
  readonly codec: EpisodeCodec;
  readonly contextLength: number;
}

export interface GpuDependencies {
  readonly store: ArtifactStore;
  readonly data: string;
  readonly client: TrainerClient;
  readonly trainer: TrainerSupervisor;
  /** Seconds without a finished training step after which the trainer counts as hung. */
  readonly stallSeconds: number;
}
/** The part of workers/trainer-process.ts that activities use. */
export interface TrainerSupervisor {
  ready(patienceMs?: number, signal?: AbortSignal): Promise<void>;
  restart(reason: string): void;
}
