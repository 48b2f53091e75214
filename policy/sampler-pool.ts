/**
 * The policies that can be sampled from: loaded from the artifact store when first asked for, the least recently used one
 * without episodes dropped when there are more than the limit (a run switches policies only between stages and iterations).
 */
import type { SampleRequest, SampleResult } from '../environment/types.ts';
import { loadModel } from './checkpoint.ts';
import { disposeModel } from './model.ts';
import { PolicySampler } from './sampler.ts';
import type { PolicySamplerOptions, SampleOptions, SamplerStatistics } from './sampler.ts';

/** Resolves a policy's SHA-256 to its directory. */
export type PolicyDirectory = (sha256: string) => Promise<string>;

export interface SamplerPoolOptions extends PolicySamplerOptions {
  readonly residentPolicies?: number;
}

export class SamplerPool {
  readonly #directory: PolicyDirectory;
  readonly #options: SamplerPoolOptions;
  /** In order of use, the most recent last. */
  readonly #samplers = new Map<string, Promise<PolicySampler>>();
  readonly #ready = new Map<string, PolicySampler>();
  readonly #pending = new Map<string, number>();
  readonly #sweeper: NodeJS.Timeout;

  constructor(directory: PolicyDirectory, options: SamplerPoolOptions = {}) {
    this.#directory = directory;
    this.#options = options;
    this.#sweeper = setInterval(() => {
      for (const sampler of this.#ready.values()) sampler.sweep();
      this.#evict();
    }, 5_000);
    this.#sweeper.unref();
  }

  /** Rows of a sampling step: their number decides the bits of a result. undefined: the sampler's default. */
  get slots(): number | undefined {
    return this.#options.slots;
  }

  /** @throws what PolicySampler.sample throws, or what resolving and loading the policy throws */
  async sample(request: SampleRequest, options: SampleOptions = {}): Promise<SampleResult> {
    const { policy } = request;
    this.#pending.set(policy, (this.#pending.get(policy) ?? 0) + 1);
    try {
      const sampler = await this.#get(policy);
      return await sampler.sample(request, options);
    } finally {
      const left = this.#pending.get(policy)! - 1;
      if (left > 0) this.#pending.set(policy, left);
      else this.#pending.delete(policy);
    }
  }
  endSession(sessionId: string): void {
    for (const sampler of this.#ready.values()) sampler.endSession(sessionId);
  }
  statistics(): Record<string, SamplerStatistics> {
    return Object.fromEntries([...this.#ready].map(([policy, sampler]) => [policy, sampler.statistics()]));
  }
  close(): void {
    clearInterval(this.#sweeper);
    for (const policy of [...this.#ready.keys()]) this.#drop(policy);
  }

  #get(policy: string): Promise<PolicySampler> {
    const known = this.#samplers.get(policy);
    const sampler = known ?? this.#load(policy);
    this.#samplers.delete(policy);
    this.#samplers.set(policy, sampler);
    return sampler;
  }

  async #load(policy: string): Promise<PolicySampler> {
    try {
      const model = loadModel(await this.#directory(policy), 'actor');
      // The sampler copies the weights into its own layout.
      const sampler = new PolicySampler(model, this.#options);
      disposeModel(model);
      this.#ready.set(policy, sampler);
      this.#evict();
      return sampler;
    } catch (error) {
      this.#samplers.delete(policy);
      throw error;
    }
  }

  #evict(): void {
    for (const policy of this.#samplers.keys()) {
      if (this.#ready.size <= (this.#options.residentPolicies ?? 2)) return;
      // Episodes between turns keep their policy; what they leave behind is swept once it idles too long.
      const unused = !this.#pending.has(policy) && this.#ready.get(policy)?.statistics().busySlots === 0;
      if (unused) this.#drop(policy);
    }
  }
  #drop(policy: string): void {
    this.#ready.get(policy)?.close();
    this.#ready.delete(policy);
    this.#samplers.delete(policy);
  }
}
