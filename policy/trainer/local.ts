/**
 * The embedded trainer: models, gradient accumulators and optimizers in this process's TensorFlow. The HTTP server wraps
 * it; scripts and tests use it directly.
 */
import { UserError } from '../../environment/errors.ts';
import { adamStep, createOptimizer, disposeOptimizer, loadOptimizer, saveOptimizer } from '../adam.ts';
import type { Optimizer } from '../adam.ts';
import { loadModel, readTokenizer, saveModel } from '../checkpoint.ts';
import type { TokenizerFiles } from '../checkpoint.ts';
import { lossAndGradients } from '../losses.ts';
import type { Gradients } from '../losses.ts';
import { disposeModel, tokenLogprobs, tokenValues } from '../model.ts';
import type { Model } from '../model.ts';
import { tf } from '../tensorflow.ts';
import type { AdamSettings, LossSpec, LossSums, ModelRole, SequenceBatch, TrainerClient } from '../types.ts';
import { TrainerLostError } from './errors.ts';

interface Loaded {
  readonly model: Model;
  /** A policy's; undefined for a critic. */
  readonly tokenizer: TokenizerFiles | undefined;
  optimizer: Optimizer | undefined;
  readonly optimizerDirectory: string | undefined;
  gradients: Gradients | undefined;
}

export class LocalTrainer implements TrainerClient {
  readonly #loaded = new Map<string, Loaded>();
  #next = 1;
  #tail: Promise<unknown> = Promise.resolve();

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
      const model = loadModel(request.directory, request.role);
      const handle = `${request.role}-${process.pid}-${this.#next++}`;
      this.#loaded.set(handle, {
        model,
        tokenizer: request.role === 'actor' ? readTokenizer(request.directory) : undefined,
        optimizer: undefined,
        optimizerDirectory: request.optimizer,
        gradients: undefined,
      });
      // Moments cost twice the weights; a model that is only evaluated never gets them, one that resumes must fail here if they are broken.
      if (request.optimizer !== undefined) this.#optimizer(this.#get(handle));
      return handle;
    });
  }

  forward(handle: string, output: 'logprobs' | 'values', batch: SequenceBatch): Promise<number[]> {
    return this.#serially(() => {
      const { model } = this.#get(handle);
      return Array.from(output === 'logprobs' ? tokenLogprobs(model, batch) : tokenValues(model, batch));
    });
  }

  forwardBackward(handle: string, loss: LossSpec, batch: SequenceBatch): Promise<LossSums> {
    return this.#serially(() => {
      const loaded = this.#get(handle);
      const { sums, gradients } = lossAndGradients(loaded.model, loss, batch);
      if (Number.isFinite(sums.loss)) this.#accumulate(loaded, gradients);
      else disposeAll(gradients);
      return sums;
    });
  }

  optimStep(handle: string, adam: AdamSettings): Promise<{ gradientNorm: number; step: number }> {
    return this.#serially(() => {
      const loaded = this.#get(handle);
      const gradients = loaded.gradients;
      if (gradients === undefined) throw new UserError(`optimStep of ${handle}: no gradients, expected a forwardBackward before it`);
      loaded.gradients = undefined;
      try {
        return adamStep(loaded.model, this.#optimizer(loaded), gradients, adam);
      } finally {
        disposeAll(gradients);
      }
    });
  }

  save(handle: string, request: { directory: string; optimizer?: string | undefined }): Promise<void> {
    return this.#serially(() => {
      const loaded = this.#get(handle);
      saveModel(loaded.model, request.directory, loaded.tokenizer && { tokenizer: loaded.tokenizer });
      if (request.optimizer !== undefined) saveOptimizer(this.#optimizer(loaded), request.optimizer);
    });
  }

  release(handle: string): Promise<void> {
    return this.#serially(() => {
      const loaded = this.#loaded.get(handle);
      if (loaded === undefined) return;
      this.#loaded.delete(handle);
      if (loaded.gradients !== undefined) disposeAll(loaded.gradients);
      if (loaded.optimizer !== undefined) disposeOptimizer(loaded.optimizer);
      disposeModel(loaded.model);
    });
  }

  #get(handle: string): Loaded {
    const loaded = this.#loaded.get(handle);
    if (loaded === undefined)
      throw new TrainerLostError(`no model with handle '${handle}': the trainer was restarted, or the model was released`);
    return loaded;
  }

  #optimizer(loaded: Loaded): Optimizer {
    loaded.optimizer ??=
      loaded.optimizerDirectory === undefined ? createOptimizer(loaded.model) : loadOptimizer(loaded.model, loaded.optimizerDirectory);
    return loaded.optimizer;
  }

  #accumulate(loaded: Loaded, gradients: Gradients): void {
    const previous = loaded.gradients;
    if (previous === undefined) {
      loaded.gradients = gradients;
      return;
    }
    loaded.gradients = new Map([...gradients].map(([name, gradient]) => [name, tf.add(previous.get(name)!, gradient)]));
    disposeAll(previous);
    disposeAll(gradients);
  }
}

function disposeAll(gradients: Gradients): void {
  for (const gradient of gradients.values()) gradient.dispose();
}
