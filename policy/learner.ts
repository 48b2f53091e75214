/**
 * A model that learns: its weights with what training adds to them, as steps on variables that stay in the native runtime. Accumulators
 * cost as much memory as the weights, moments twice as much; both are made when they are first needed.
 */
import { UserError } from '../environment/errors.ts';
import {
  adamInput,
  adamStep,
  clipFactor,
  createOptimizer,
  disposeOptimizer,
  loadOptimizer,
  momentName,
  normStep,
  saveOptimizer,
} from './adam.ts';
import type { Optimizer } from './adam.ts';
import { prepareBatch } from './batch.ts';
import { engineMode } from './engine/mode.ts';
import type { EngineMode } from './engine/mode.ts';
import { StepFunction, takeToHost } from './engine/step-function.ts';
import type { StepDescription, Variables } from './engine/step-function.ts';
import { Variable } from './engine/variable.ts';
import { NumericalError } from './errors.ts';
import { evaluate, evaluationStep } from './evaluation.ts';
import type { TokenOutput } from './evaluation.ts';
import { checkLoss, gradientName, lossInputs, lossStep, namedSums } from './loss-step.ts';
import { activationBytes, needsRecomputing } from './memory.ts';
import { disposeModel } from './model-parameters.ts';
import type { Model } from './model-parameters.ts';
import { offload } from './offload.ts';
import type { Restore } from './offload.ts';
import { defaultLanes } from './tensorflow.ts';
import type { AdamSettings, LossSpec, LossSums, SequenceBatch } from './types.ts';

export interface LearnerOptions {
  readonly mode?: EngineMode;
  /** Lanes that compute side by side; default: one for each thread on a CPU, one on a GPU. */
  readonly lanes?: number;
  /** Whether the gradient computes activations again; default: where they would take too much memory. */
  readonly recompute?: boolean | undefined;
  /** What `saveOptimizer` wrote; default: new moments. */
  readonly optimizerDirectory?: string | undefined;
}

export class Learner {
  readonly model: Model;
  readonly #mode: EngineMode;
  readonly #names: readonly string[];
  readonly #steps = new Map<string, StepFunction>();
  readonly #lanes: number;
  readonly #recompute: boolean | undefined;
  /** By lane, as far as lanes were used. */
  readonly #accumulators: Variables[] = [];
  /** Whether the accumulators hold gradients that no update has used yet. */
  #accumulated = false;
  #optimizer: Optimizer | undefined;
  #restore: Restore | undefined;

  /** Takes the model over. @throws UserError for an optimizer directory that does not fit */
  constructor(model: Model, { mode = engineMode(), lanes = defaultLanes(), recompute, optimizerDirectory }: LearnerOptions = {}) {
    this.model = model;
    this.#mode = mode;
    this.#lanes = lanes;
    this.#recompute = recompute;
    this.#names = [...model.params.keys()];
    if (optimizerDirectory !== undefined) this.#optimizer = loadOptimizer(model, optimizerDirectory);
  }

  /** [B·T] output for each masked token, 0 elsewhere. */
  forward(output: TokenOutput, batch: SequenceBatch): Float32Array {
    this.resident();
    const prepared = prepareBatch(batch, this.model.config, this.#lanes);
    const step = (lanes: number): StepFunction =>
      this.#step(evaluationStep(this.model.config, output), lanes, () => Array.from({ length: lanes }, () => this.#weights()));
    return evaluate(step, prepared, batch);
  }

  /**
   * Adds a micro-batch's gradients to the accumulators. A loss that is not finite is returned, and drops what was accumulated: no step must
   * be taken with it.
   */
  forwardBackward(loss: LossSpec, batch: SequenceBatch): LossSums {
    checkLoss(loss, this.model.role, batch.rows * batch.length);
    this.resident();
    const { predicted, lanes } = prepareBatch(batch, this.model.config, this.#lanes);
    while (this.#accumulators.length < lanes.length) {
      const parameters = [...this.model.params];
      this.#accumulators.push(Object.fromEntries(parameters.map(([name, { shape }]) => [gradientName(name), new Variable(shape)])));
    }
    const variables = (): Variables[] => lanes.map((_, lane) => ({ ...this.#weights(), ...this.#accumulators[lane] }));
    const [rows, length] = lanes[0]!.inputs.tokens.shape as [number, number];
    const activations = activationBytes(this.model.config, { rows: rows * lanes.length, length }, false);
    const recompute = this.#recompute ?? needsRecomputing(activations);
    const description = lossStep(this.model.config, loss, recompute ? { recompute } : {});
    const inputs = lanes.map((lane) => lossInputs(loss, lane));
    const results = predicted === 0 ? [] : this.#step(description, lanes.length, variables).run(inputs);
    const sums = namedSums(
      loss,
      predicted,
      results.map(([values]) => takeToHost(values!)),
    );
    if (Number.isFinite(sums.loss)) this.#accumulated = true;
    else this.#dropGradients();
    return sums;
  }

  #dropGradients(): void {
    this.#accumulated = false;
    for (const lane of this.#accumulators) for (const accumulator of Object.values(lane)) accumulator.zero();
  }

  /** What has been accumulated, by parameter name. */
  gradients(): Map<string, Float32Array> {
    this.resident();
    if (this.#accumulators.length === 0) return new Map();
    const lanes = (name: string): Float32Array[] => this.#accumulators.map((accumulators) => accumulators[gradientName(name)]!.read());
    return new Map(this.#names.map((name) => [name, lanes(name).reduce((sum, lane) => sum.map((value, i) => value + lane[i]!))]));
  }

  /**
   * Clips the accumulated gradients by their global norm, updates weights and moments, and clears the accumulators.
   * @throws UserError without gradients, NumericalError before anything changes when the norm is not finite (the gradients are dropped)
   */
  optimStep(adam: AdamSettings): { gradientNorm: number; step: number } {
    if (!this.#accumulated) throw new UserError(`optimStep: no gradients, expected a forwardBackward before it`);
    this.resident();
    this.#accumulated = false;
    const optimizer = this.optimizer();
    const step = optimizer.step + 1;
    const lanes = this.#accumulators.length;
    const accumulators = Object.fromEntries(
      this.#accumulators.flatMap((own, lane) => this.#names.map((name) => [gradientName(name, lane), own[gradientName(name)]!])),
    );
    const gradientNorm = this.#step(normStep(this.#names, lanes), 1, () => [accumulators]).runToHost({})[0]![0]!;
    if (!Number.isFinite(gradientNorm)) {
      this.#dropGradients();
      throw new NumericalError(`${this.model.role}, optimizer step ${step}: gradient norm is ${gradientNorm}, expected a finite number`);
    }
    const moments = (moment: 'first' | 'second'): Variables =>
      Object.fromEntries([...optimizer[moment]].map(([name, variable]) => [momentName(moment, name), variable]));
    const update = this.#step(adamStep(this.#names, lanes), 1, () => [
      { ...this.#weights(), ...accumulators, ...moments('first'), ...moments('second') },
    ]);
    update.runToHost({ settings: adamInput(adam, step, clipFactor(gradientNorm, adam.maxGradientNorm)) });
    optimizer.step = step;
    return { gradientNorm, step };
  }

  optimizer(): Optimizer {
    this.resident();
    return (this.#optimizer ??= createOptimizer(this.model));
  }
  /** Writes moments and step count to a new directory. */
  saveOptimizer(directory: string): void {
    saveOptimizer(this.optimizer(), directory);
  }

  /** Bytes of weights, accumulators and moments in memory. */
  get residentBytes(): number {
    if (this.#restore !== undefined) return 0;
    return 4 * this.#variables().reduce((sum, { size }) => sum + size, 0);
  }
  /** Moves weights, accumulators and moments to a new file until `resident` or the next use. @throws InfrastructureError when it cannot be written */
  offload(file: string): void {
    this.#restore ??= offload(this.#variables(), file);
  }
  /** Brings back what was offloaded. Everything here does it by itself; for the model's users. */
  resident(): void {
    this.#restore?.();
    this.#restore = undefined;
  }

  /** Frees everything, the model too. */
  dispose(): void {
    this.resident();
    for (const step of this.#steps.values()) step.dispose();
    this.#steps.clear();
    for (const lane of this.#accumulators.splice(0)) for (const accumulator of Object.values(lane)) accumulator.dispose();
    if (this.#optimizer !== undefined) disposeOptimizer(this.#optimizer);
    this.#optimizer = undefined;
    disposeModel(this.model);
  }

  #variables(): Variable[] {
    const { first, second } = this.#optimizer ?? { first: new Map<string, Variable>(), second: new Map<string, Variable>() };
    return [
      ...this.model.params.values(),
      ...this.#accumulators.flatMap((lane) => Object.values(lane)),
      ...first.values(),
      ...second.values(),
    ];
  }
  #weights(): Variables {
    return Object.fromEntries(this.model.params);
  }
  #step(description: StepDescription, lanes: number, variables: () => readonly Variables[]): StepFunction {
    const key = `${lanes} ${description.key}`;
    let step = this.#steps.get(key);
    if (step === undefined) {
      step = new StepFunction(this.#mode, description, variables());
      this.#steps.set(key, step);
    }
    return step;
  }
}
