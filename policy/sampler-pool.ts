/**
 * The policies that can be sampled from: loaded from the artifact store by their hash when first asked for, the least recently
 * used one without episodes dropped when there are too many (a run switches policies only between stages and iterations) or
 * when their memory is needed. A policy with episodes is never dropped for another: the other has to wait.
 */
import { UserError } from '../environment/errors.ts';
import type { SampleRequest, SampleResult } from '../environment/types.ts';
import { loadModel } from './checkpoint.ts';
import { readConfig } from './model-config.ts';
import { disposeModel } from './model-parameters.ts';
import type { Model } from './model-parameters.ts';
import { SamplerBusyError, SessionLostError } from './sampler-errors.ts';
import { defaultSamplerMemory, samplerBytes } from './sampler-memory.ts';
import type { SamplerStatistics } from './sampler-metrics.ts';
import { DEFAULT_SLOTS, PolicySampler } from './sampler.ts';
import type { PolicySamplerOptions, SampleOptions } from './sampler.ts';

/** Resolves a policy's SHA-256 to its directory. */
export type PolicyDirectory = (sha256: string) => Promise<string>;

export interface SamplerPoolOptions extends PolicySamplerOptions {
  /** Policies that stay loaded while nobody uses them. */
  readonly residentPolicies?: number;
  /** Bytes of weights and caches of all policies together. */
  readonly memoryBytes?: number;
}

interface Resident {
  readonly sampler: Promise<PolicySampler>;
  /** Its weights are read where they are, and freed after the sampler. */
  model: Model | undefined;
  ready: PolicySampler | undefined;
  /** 0 until the configuration is read. */
  bytes: number;
  /** Requests that are not answered yet. */
  pending: number;
}

/** Between looks at what has become idle. */
const SWEEP_MS = 2_000;
/** Until another policy's episodes may have ended. */
const MEMORY_PATIENCE_SECONDS = 5;

export class SamplerPool {
  readonly #directory: PolicyDirectory;
  readonly #options: SamplerPoolOptions;
  readonly #memory: number;
  /** In order of use, the most recent last. */
  readonly #residents = new Map<string, Resident>();
  readonly #sweeper: NodeJS.Timeout;

  constructor(directory: PolicyDirectory, options: SamplerPoolOptions = {}) {
    this.#directory = directory;
    this.#options = options;
    this.#memory = options.memoryBytes ?? defaultSamplerMemory();
    this.#sweeper = setInterval(() => {
      for (const { ready } of this.#residents.values()) ready?.sweep();
      this.#dropExcess();
    }, SWEEP_MS);
    this.#sweeper.unref();
  }

  /** Rows of a sampling step: their number decides the bits of a result. */
  get slots(): number {
    return this.#options.slots ?? DEFAULT_SLOTS;
  }

  /**
   * @throws what PolicySampler.sample throws, what resolving and loading the policy throws (the next request tries again),
   * SamplerBusyError while other policies need the memory, or UserError for a policy that no memory is enough for
   */
  async sample(request: SampleRequest, options: SampleOptions = {}): Promise<SampleResult> {
    const { policy } = request;
    const resident = this.#residents.get(policy) ?? this.#load(policy);
    this.#residents.delete(policy);
    this.#residents.set(policy, resident);
    resident.pending++;
    try {
      return await (await resident.sampler).sample(request, options);
    } finally {
      resident.pending--;
    }
  }
  endSession(sessionId: string): void {
    for (const { ready } of this.#residents.values()) ready?.endSession(sessionId);
  }
  statistics(): Record<string, SamplerStatistics> {
    const loaded = [...this.#residents].flatMap(([policy, { ready }]) =>
      ready === undefined ? [] : [[policy, ready.statistics()] as const],
    );
    return Object.fromEntries(loaded);
  }
  close(): void {
    clearInterval(this.#sweeper);
    for (const policy of [...this.#residents.keys()]) this.#drop(policy);
  }

  /** Starts loading, once for all that ask meanwhile; a failure is forgotten with its entry. */
  #load(policy: string): Resident {
    // The first turn of the event loop belongs to whoever enters the resident into the table.
    const sampler = Promise.resolve().then(() => this.#make(policy, resident));
    const resident: Resident = { sampler, model: undefined, ready: undefined, bytes: 0, pending: 0 };
    sampler.catch(() => {
      if (this.#residents.get(policy) === resident) this.#drop(policy);
    });
    return resident;
  }

  async #make(policy: string, resident: Resident): Promise<PolicySampler> {
    const directory = await this.#directory(policy);
    this.#reserve(policy, resident, samplerBytes(readConfig(directory), this.slots));
    if (this.#residents.get(policy) !== resident) throw new SessionLostError('the samplers were closed');
    resident.model = loadModel(directory, 'actor');
    resident.ready = new PolicySampler(resident.model, this.#options);
    this.#dropExcess();
    return resident.ready;
  }

  #reserve(policy: string, resident: Resident, bytes: number): void {
    const needs = `sampling from policy ${policy} takes ${gibibytes(bytes)} of weights and cache`;
    if (bytes > this.#memory) {
      throw new UserError(
        `${needs}, and samplers may take ${gibibytes(this.#memory)}: fewer slots (TERMINAL_RSI_SAMPLER_SLOTS), a smaller policy, or more memory (TERMINAL_RSI_SAMPLER_GIB)`,
      );
    }
    const used = (): number => [...this.#residents.values()].reduce((sum, one) => sum + one.bytes, 0);
    for (const other of [...this.#residents.keys()]) {
      if (used() + bytes <= this.#memory) break;
      if (this.#isUnused(other)) this.#drop(other);
    }
    if (used() + bytes > this.#memory)
      throw new SamplerBusyError(
        `${needs}, and policies with episodes hold ${gibibytes(used())} of ${gibibytes(this.#memory)}`,
        MEMORY_PATIENCE_SECONDS,
      );
    resident.bytes = bytes;
  }

  #dropExcess(): void {
    for (const policy of [...this.#residents.keys()]) {
      if (this.#residents.size <= (this.#options.residentPolicies ?? 2)) return;
      if (this.#isUnused(policy)) this.#drop(policy);
    }
  }
  /** Episodes between turns keep their policy. */
  #isUnused(policy: string): boolean {
    const { ready, pending } = this.#residents.get(policy)!;
    return pending === 0 && ready !== undefined && ready.unused;
  }
  #drop(policy: string): void {
    const { ready, model } = this.#residents.get(policy)!;
    this.#residents.delete(policy);
    ready?.close();
    if (model !== undefined) disposeModel(model);
  }
}

function gibibytes(bytes: number): string {
  return `${(bytes / 2 ** 30).toFixed(2)} GiB`;
}
