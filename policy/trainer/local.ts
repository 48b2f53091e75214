/**
 * The embedded trainer: models, gradient accumulators and optimizers in this process's TensorFlow. The HTTP server wraps
 * it; scripts and tests use it directly.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadModel, readTokenizer, saveModel } from '../checkpoint.ts';
import type { TokenizerFiles } from '../checkpoint.ts';
import { Learner } from '../learner.ts';
import { memoryLimit } from '../memory.ts';
import { disposeModel } from '../model-parameters.ts';
import type { Model } from '../model-parameters.ts';
import type { AdamSettings, LossSpec, LossSums, ModelRole, SequenceBatch, TrainerClient } from '../types.ts';
import { TrainerLostError } from './errors.ts';

/** Share of the memory that models may take before idle ones are offloaded. */
const RESIDENT_SHARE = 0.6;

interface Loaded {
  readonly learner: Learner;
  /** A policy's; undefined for a critic. */
  readonly tokenizer: TokenizerFiles | undefined;
}

export class LocalTrainer implements TrainerClient {
  readonly #loaded = new Map<string, Loaded>();
  readonly #limit: number;
  #folder: string | undefined;
  #next = 1;
  #tail: Promise<unknown> = Promise.resolve();

  /** @param memory bytes that models may take together; those used longest ago wait on disk when it is more */
  constructor(memory = RESIDENT_SHARE * memoryLimit()) {
    this.#limit = memory;
  }

  /** Calls run one after the other, each in its own turn of the event loop: sampling steps get in between. */
  #serially<T>(work: () => T): Promise<T> {
    const run = this.#tail.then(async () => {
      await new Promise(setImmediate);
      return work();
    });
    this.#tail = run.catch(() => undefined);
    return run;
  }
  /** Resolves when no call is running or waiting. */
  async settled(): Promise<void> {
    await this.#tail;
  }
  handles(): string[] {
    return [...this.#loaded.keys()];
  }

  load(request: { role: ModelRole; directory: string; optimizer?: string | undefined }): Promise<string> {
    return this.#serially(() => {
      const tokenizer = request.role === 'actor' ? readTokenizer(request.directory) : undefined;
      const model = loadModel(request.directory, request.role);
      const handle = `${request.role}-${process.pid}-${this.#next++}`;
      this.#loaded.set(handle, { learner: learnerOf(model, request.optimizer), tokenizer });
      return handle;
    });
  }

  forward(handle: string, output: 'logprobs' | 'values', batch: SequenceBatch): Promise<number[]> {
    return this.#serially(() => Array.from(this.#use(handle).learner.forward(output, batch)));
  }

  forwardBackward(handle: string, loss: LossSpec, batch: SequenceBatch): Promise<LossSums> {
    return this.#serially(() => this.#use(handle).learner.forwardBackward(loss, batch));
  }

  optimStep(handle: string, adam: AdamSettings): Promise<{ gradientNorm: number; step: number }> {
    return this.#serially(() => this.#use(handle).learner.optimStep(adam));
  }

  save(handle: string, request: { directory: string; optimizer?: string | undefined }): Promise<void> {
    return this.#serially(() => {
      const { learner, tokenizer } = this.#use(handle);
      saveModel(learner.model, request.directory, tokenizer && { tokenizer });
      if (request.optimizer !== undefined) learner.saveOptimizer(request.optimizer);
    });
  }

  release(handle: string): Promise<void> {
    return this.#serially(() => {
      this.#loaded.get(handle)?.learner.dispose();
      this.#loaded.delete(handle);
      if (this.#loaded.size === 0 && this.#folder !== undefined) {
        rmSync(this.#folder, { recursive: true, force: true });
        this.#folder = undefined;
      }
    });
  }

  /** The model for a call that computes; idle ones make room for it. */
  #use(handle: string): Loaded {
    const loaded = this.#get(handle);
    // Last in the map is used last.
    this.#loaded.delete(handle);
    this.#loaded.set(handle, loaded);
    loaded.learner.resident();
    for (const [other, { learner }] of this.#loaded) {
      const resident = [...this.#loaded.values()].reduce((sum, one) => sum + one.learner.residentBytes, 0);
      if (other === handle || resident <= this.#limit) break;
      this.#folder ??= mkdtempSync(join(tmpdir(), 'terminal-rsi-idle-'));
      learner.offload(join(this.#folder, other));
    }
    return loaded;
  }
  #get(handle: string): Loaded {
    const loaded = this.#loaded.get(handle);
    if (loaded === undefined)
      throw new TrainerLostError(`no model with handle '${handle}': the trainer was restarted, or the model was released`);
    return loaded;
  }
}

function learnerOf(model: Model, optimizerDirectory: string | undefined): Learner {
  try {
    return new Learner(model, { optimizerDirectory });
  } catch (error) {
    disposeModel(model);
    throw error;
  }
}
