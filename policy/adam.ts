/**
 * Adam and AdamW (Kingma & Ba 2015; Loshchilov & Hutter 2019) with clipping of the global gradient norm, as torch computes them. Own
 * code, because tf.train.adam has another epsilon convention, no weight decay, and no state that can be saved by parameter name.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../environment/errors.ts';
import { writeDirectoryAtomically } from './checkpoint-files.ts';
import type { HostTensor, StepDescription, Tensors } from './engine/step-function.ts';
import { Variable } from './engine/variable.ts';
import { gradientName } from './loss-step.ts';
import type { Model } from './model-parameters.ts';
import { readSafetensors, type TensorEntry, writeSafetensors } from './safetensors.ts';
import { tf } from './tensorflow.ts';
import type { AdamSettings } from './types.ts';

export interface Optimizer {
  /** Optimizer steps taken. */
  step: number;
  /** First and second moment by parameter name, in the parameters' shapes. */
  readonly first: Map<string, Variable>;
  readonly second: Map<string, Variable>;
}

/** Zero moments for every parameter of the model. */
export function createOptimizer(model: Model): Optimizer {
  const zeros = (): Map<string, Variable> => new Map([...model.params].map(([name, p]) => [name, new Variable(p.shape)]));
  return { step: 0, first: zeros(), second: zeros() };
}

export function disposeOptimizer(optimizer: Optimizer): void {
  for (const moments of [optimizer.first, optimizer.second]) {
    for (const moment of moments.values()) moment.dispose();
    moments.clear();
  }
}

/** Output: the Euclidean norm over all accumulated gradients together. Variables: the accumulators of all lanes under `gradientName`. */
export function normStep(names: readonly string[], lanes: number): StepDescription {
  return {
    key: `gradient norm of ${names.length}, ${lanes} lanes`,
    build: (_, variables) => ({ outputs: [globalNorm(names.map((name) => () => gradientOf(name, variables, lanes)))] }),
  };
}
/** A parameter's gradient over all lanes. */
function gradientOf(name: string, variables: Tensors, lanes: number): tf.Tensor {
  const parts = Array.from({ length: lanes }, (_, lane) => variables[gradientName(name, lane)] as tf.Tensor);
  return parts.length === 1 ? (parts[0] as tf.Tensor) : tf.addN(parts);
}
/** `gradients` are made one after the other, so that they need not exist at once. */
export function globalNorm(gradients: readonly (() => tf.Tensor)[]): tf.Tensor {
  return tf.sqrt(tf.addN(gradients.map((gradient) => tf.tidy(() => tf.sum(tf.square(gradient()))))));
}

/** torch.nn.utils.clip_grad_norm_: the factor that brings `norm` down to `maximum`, 1 where it is not above. */
export function clipFactor(norm: number, maximum: number): number {
  return Math.min(1, maximum / (norm + 1e-6));
}

/** Names of a parameter's moments among a step's variables. */
export function momentName(moment: 'first' | 'second', parameter: string): string {
  return `${moment} moment ${parameter}`;
}

/**
 * One update of weights and moments, which also clears the accumulators. Input: `settings` of `adamInput`. Weight decay is decoupled and
 * applies to matrices only, not to norm gains and biases. Variables: weights, accumulators, moments.
 */
export function adamStep(names: readonly string[], lanes: number): StepDescription {
  return {
    key: `adam of ${names.length}, ${lanes} lanes`,
    build: ({ settings }, variables) => {
      const values = tf.unstack(settings as tf.Tensor);
      const assign: Record<string, tf.Tensor> = {};
      for (const name of names) {
        const [parameter, first, second] = [name, momentName('first', name), momentName('second', name)].map(
          (variable) => variables[variable] as tf.Tensor,
        ) as [tf.Tensor, tf.Tensor, tf.Tensor];
        // Freed parameter by parameter: together the intermediate values would take several times the memory of the model.
        const updated = tf.tidy(() => ({
          ...adamUpdate({ parameter, gradient: gradientOf(name, variables, lanes), first, second }, values, parameter.rank >= 2),
        }));
        assign[name] = updated.parameter;
        assign[momentName('first', name)] = updated.first;
        assign[momentName('second', name)] = updated.second;
        for (let lane = 0; lane < lanes; lane++) assign[gradientName(name, lane)] = tf.zerosLike(parameter);
      }
      return { outputs: [], assign };
    },
  };
}

/** The scalars that `adamUpdate` unpacks: `step` counts from 1, gradients are multiplied by `gradientFactor`. */
export function adamInput(settings: Omit<AdamSettings, 'maxGradientNorm'>, step: number, gradientFactor = 1): HostTensor {
  const { beta1, beta2, learningRate, epsilon, weightDecay } = settings;
  const values = [
    ...[gradientFactor, beta1, 1 - beta1, beta2, 1 - beta2],
    ...[1 / Math.sqrt(1 - beta2 ** step), epsilon, learningRate / (1 - beta1 ** step), 1 - learningRate * weightDecay],
  ];
  return { shape: [values.length], data: Float32Array.from(values) };
}

interface AdamState {
  readonly parameter: tf.Tensor;
  readonly first: tf.Tensor;
  readonly second: tf.Tensor;
}
/** The formula for one parameter; `settings` are the scalars of `adamInput`. */
export function adamUpdate(
  { parameter, first, second, gradient }: AdamState & { readonly gradient: tf.Tensor },
  settings: readonly tf.Tensor[],
  decayed: boolean,
): AdamState {
  const [factor, beta1, rest1, beta2, rest2, correction2, epsilon, rate, decay] = settings as [
    ...[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor],
    ...[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor],
  ];
  const g = tf.mul(gradient, factor);
  const m = tf.add(tf.mul(first, beta1), tf.mul(g, rest1));
  const v = tf.add(tf.mul(second, beta2), tf.mul(tf.square(g), rest2));
  const denominator = tf.add(tf.mul(tf.sqrt(v), correction2), epsilon);
  const change = tf.mul(tf.div(m, denominator), rate);
  return { parameter: tf.sub(decayed ? tf.mul(parameter, decay) : parameter, change), first: m, second: v };
}

/** Writes moments and step count to a new directory, all or nothing. */
export function saveOptimizer(optimizer: Optimizer, directory: string): void {
  const tensors = new Map<string, TensorEntry>();
  for (const moment of ['first', 'second'] as const) {
    for (const [name, values] of optimizer[moment]) {
      tensors.set(`${moment}.${name}`, { shape: values.shape, data: values.read() });
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
  const variables = (values: Map<string, Float32Array>): Map<string, Variable> =>
    new Map([...model.params].map(([name, p]) => [name, new Variable(p.shape, values.get(name))]));
  return { step, first: variables(first), second: variables(second) };
}
