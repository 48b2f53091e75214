/**
 * Adam and AdamW (Kingma & Ba 2015; Loshchilov & Hutter 2019) with clipping of the global gradient norm, as torch computes them. Own
 * code, because tf.train.adam has another epsilon convention, no weight decay, and no state that can be saved by parameter name.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../environment/errors.ts';
import { writeDirectoryAtomically } from './checkpoint-files.ts';
import { NumericalError } from './errors.ts';
import type { Gradients } from './losses.ts';
import type { Model } from './model.ts';
import { readSafetensors, type TensorEntry, writeSafetensors } from './safetensors.ts';
import { tf } from './tensorflow.ts';
import type { AdamSettings } from './types.ts';

export interface Optimizer {
  /** Optimizer steps taken. */
  step: number;
  /** First and second moment by parameter name, in the parameters' shapes. */
  readonly first: Map<string, tf.Variable>;
  readonly second: Map<string, tf.Variable>;
}

/** Zero moments for every parameter of the model. */
export function createOptimizer(model: Model): Optimizer {
  const zeros = (): Map<string, tf.Variable> =>
    new Map([...model.params].map(([name, p]) => [name, tf.tidy(() => tf.variable(tf.zeros(p.shape), false))]));
  return { step: 0, first: zeros(), second: zeros() };
}

export function disposeOptimizer(optimizer: Optimizer): void {
  for (const moments of [optimizer.first, optimizer.second]) {
    for (const moment of moments.values()) moment.dispose();
    moments.clear();
  }
}

/** Euclidean norm over all gradients together. */
export function globalNorm(gradients: Iterable<tf.Tensor>): number {
  return tf.tidy(() => {
    const squares = [...gradients].map((g) => tf.sum(tf.square(g)));
    return tf.sqrt(tf.addN(squares)).dataSync<'float32'>()[0] as number;
  });
}

/** torch.nn.utils.clip_grad_norm_: the factor that brings `norm` down to `maximum`, 1 where it is not above. */
export function clipFactor(norm: number, maximum: number): number {
  return Math.min(1, maximum / (norm + 1e-6));
}

/**
 * One update of the model's parameters in place. Weight decay is decoupled and applies to matrices only, not to norm gains. Throws
 * NumericalError before anything changes if the gradient norm is not finite. Does not dispose the gradients.
 */
export function adamStep(
  model: Model,
  optimizer: Optimizer,
  gradients: Gradients,
  settings: AdamSettings,
): { gradientNorm: number; step: number } {
  const gradientNorm = globalNorm(gradients.values());
  if (!Number.isFinite(gradientNorm)) {
    throw new NumericalError(
      `${model.role}, optimizer step ${optimizer.step + 1}: gradient norm is ${gradientNorm}, expected a finite number`,
    );
  }
  const step = optimizer.step + 1;
  const factor = clipFactor(gradientNorm, settings.maxGradientNorm);
  for (const [name, parameter] of model.params) {
    const gradient = gradients.get(name);
    const first = optimizer.first.get(name);
    const second = optimizer.second.get(name);
    if (gradient === undefined || first === undefined || second === undefined) {
      throw new Error(`parameter ${name}: no gradient or no moments for it`);
    }
    const decay = parameter.rank >= 2 ? settings.weightDecay : 0;
    adamUpdate(parameter, first, second, gradient, { ...settings, weightDecay: decay }, step, factor);
  }
  optimizer.step = step;
  return { gradientNorm, step };
}

/** The formula for one parameter: updates parameter and moments in place. `step` counts from 1. */
export function adamUpdate(
  parameter: tf.Variable,
  first: tf.Variable,
  second: tf.Variable,
  gradient: tf.Tensor,
  settings: Omit<AdamSettings, 'maxGradientNorm'>,
  step: number,
  gradientFactor = 1,
): void {
  const { beta1, beta2, learningRate, epsilon, weightDecay } = settings;
  tf.tidy(() => {
    const g = gradientFactor === 1 ? gradient : tf.mul(gradient, gradientFactor);
    const m = tf.add(tf.mul(first, beta1), tf.mul(g, 1 - beta1));
    const v = tf.add(tf.mul(second, beta2), tf.mul(tf.square(g), 1 - beta2));
    const denominator = tf.add(tf.mul(tf.sqrt(v), 1 / Math.sqrt(1 - beta2 ** step)), epsilon);
    const change = tf.mul(tf.div(m, denominator), learningRate / (1 - beta1 ** step));
    const decayed = weightDecay === 0 ? parameter : tf.mul(parameter, 1 - learningRate * weightDecay);
    parameter.assign(tf.sub(decayed, change));
    first.assign(m);
    second.assign(v);
  });
}

/** Writes moments and step count to a new directory, all or nothing. */
export function saveOptimizer(optimizer: Optimizer, directory: string): void {
  const tensors = new Map<string, TensorEntry>();
  for (const moment of ['first', 'second'] as const) {
    for (const [name, values] of optimizer[moment]) {
      tensors.set(`${moment}.${name}`, { shape: values.shape, data: values.dataSync<'float32'>() });
    }
  }
  writeDirectoryAtomically(directory, (temporary) => {
    writeSafetensors(join(temporary, 'optimizer.safetensors'), tensors);
    writeFileSync(join(temporary, 'optimizer.json'), `${JSON.stringify({ step: optimizer.step })}\n`);
  });
}

/** Reads what `saveOptimizer` wrote, for the parameters of `model`. Throws UserError naming file, tensor, found and expected. */
export function loadOptimizer(model: Model, directory: string): Optimizer {
  const stepFile = join(directory, 'optimizer.json');
  let step: unknown;
  try {
    step = (JSON.parse(readFileSync(stepFile, 'utf8')) as { step: unknown }).step;
  } catch (error) {
    throw new UserError(`${stepFile}: ${(error as Error).message}, expected what saveOptimizer writes`);
  }
  if (typeof step !== 'number' || !Number.isInteger(step) || step < 0)
    throw new UserError(`${stepFile}: step is ${JSON.stringify(step)}, expected a whole number`);
  const file = join(directory, 'optimizer.safetensors');
  const tensors = readSafetensors(file);
  const read = (moment: string): Map<string, Float32Array> => {
    const values = new Map<string, Float32Array>();
    for (const [name, parameter] of model.params) {
      const found = tensors.get(`${moment}.${name}`);
      if (found === undefined || found.shape.join() !== parameter.shape.join()) {
        const shape = found === undefined ? 'is missing' : `has shape [${found.shape.join(',')}]`;
        throw new UserError(`${file}: tensor ${moment}.${name} ${shape}, expected [${parameter.shape.join(',')}]`);
      }
      values.set(name, found.data);
    }
    return values;
  };
  // Everything is checked before the first variable exists, so that a wrong file leaks nothing.
  const [first, second] = [read('first'), read('second')];
  const variables = (values: Map<string, Float32Array>): Map<string, tf.Variable> =>
    new Map(
      [...model.params].map(([name, p]) => [name, tf.tidy(() => tf.variable(tf.tensor(values.get(name) as Float32Array, p.shape), false))]),
    );
  return { step, first: variables(first), second: variables(second) };
}
