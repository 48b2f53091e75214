/**
 * One micro-batch as a step: its share of the loss, sums for the monitors, and gradients that are added to the model's accumulators. Every
 * loss is a sum over the predicted tokens divided by a `denominator` that is global over the optimizer step, so the gradient does not
 * depend on how a step is cut into micro-batches. Settings are inputs: one recorded function serves all their values.
 */
import type { HostTensor, StepDescription, Tensors } from './engine/step-function.ts';
import type { PreparedLane } from './batch.ts';
import { klK3, policyLoss, sftLoss, valueLoss } from './losses.ts';
import { targetLogprobs, targetLogprobsAndEntropy, targetValues } from './model.ts';
import type { Computation, Predictions } from './model.ts';
import { configKey } from './model-config.ts';
import { parameterShapes } from './parameter-shapes.ts';
import { tf } from './tensorflow.ts';
import type { LossSpec, LossSums, ModelConfig, ModelRole } from './types.ts';

/** Name of a parameter's accumulator among a step's variables. Each lane has its own, so that the order of sums is always the same. */
export function gradientName(parameter: string, lane = 0): string {
  return `gradient ${lane} ${parameter}`;
}

/** What a recorded function depends on besides shapes: terms that a setting of 0 leaves out. */
type Form =
  | { readonly kind: 'sft' }
  | { readonly kind: 'value'; readonly clip: boolean }
  | { readonly kind: 'ppo'; readonly dualClip: boolean; readonly kl: boolean; readonly entropy: boolean };

export function roleOf(loss: LossSpec): ModelRole {
  return loss.kind === 'value' ? 'critic' : 'actor';
}

function formOf(loss: LossSpec): Form {
  if (loss.kind === 'sft') return { kind: 'sft' };
  if (loss.kind === 'value') return { kind: 'value', clip: loss.clip !== 0 };
  return { kind: 'ppo', dualClip: loss.dualClip !== 0, kl: loss.klCoefficient !== 0, entropy: loss.entropyCoefficient !== 0 };
}

/** The inputs of `lossStep` for one lane of a batch. */
export function lossInputs(loss: LossSpec, batch: PreparedLane): Record<string, HostTensor> {
  const settings = (...values: number[]): HostTensor => ({ shape: [values.length], data: Float32Array.from(values) });
  if (loss.kind === 'sft') return { ...batch.inputs, settings: settings(loss.denominator) };
  if (loss.kind === 'value')
    return {
      ...batch.inputs,
      returns: batch.pick(loss.returns),
      old: batch.pick(loss.oldValues),
      settings: settings(loss.denominator, loss.clip),
    };
  return {
    ...batch.inputs,
    advantages: batch.pick(loss.advantages),
    old: batch.pick(loss.oldLogprobs),
    reference: batch.pick(loss.referenceLogprobs),
    settings: settings(loss.denominator, loss.clipLow, loss.clipHigh, loss.dualClip, loss.klCoefficient, loss.entropyCoefficient),
  };
}

/**
 * Variables: the weights, and the lane's accumulators under `gradientName`. Output: [loss, sums…] as `namedSums` reads it.
 */
export function lossStep(config: ModelConfig, loss: LossSpec, how: Computation = {}): StepDescription {
  const names = [...parameterShapes(config, roleOf(loss)).keys()];
  const form = formOf(loss);
  return {
    key: `${form.kind} loss ${JSON.stringify({ ...form, ...how })} ${configKey(config)}`,
    writeOnly: new Set(names.map((name) => gradientName(name))),
    build: (inputs, variables) => {
      // A side result of the gradient's scope, which frees everything else.
      let kept: tf.Tensor | undefined;
      const scalarLoss = (...values: tf.Tensor[]): tf.Scalar => {
        const weights = Object.fromEntries(names.map((name, i) => [name, values[i] as tf.Tensor]));
        const { perToken, monitors, denominator } = computeLoss(config, form, how, weights, inputs);
        kept = tf.keep(tf.stack(monitors.map((monitor) => tf.sum(tf.mul(monitor, inputs['counts'] as tf.Tensor)))));
        return tf.div<tf.Scalar>(tf.sum(tf.mul(perToken, inputs['counts'] as tf.Tensor)), denominator);
      };
      const { value, grads } = tf.valueAndGrads(scalarLoss)(names.map((name) => variables[name] as tf.Tensor));
      const sums = kept as unknown as tf.Tensor;
      const outputs = [tf.concat([tf.reshape(value, [1]), sums])];
      sums.dispose();
      return { outputs, add: Object.fromEntries(names.map((name, i) => [gradientName(name), grads[i] as tf.Tensor])) };
    },
  };
}

/** The loss per token, the per-token monitors in the order that `namedSums` reads, and the step's denominator. */
function computeLoss(
  config: ModelConfig,
  form: Form,
  how: Computation,
  weights: Tensors,
  inputs: Tensors,
): { perToken: tf.Tensor; monitors: tf.Tensor[]; denominator: tf.Tensor } {
  const predictions = inputs as unknown as Predictions;
  const input = (name: string): tf.Tensor => inputs[name] as tf.Tensor;
  const settings = tf.unstack(input('settings'));
  const setting = (i: number): tf.Tensor => settings[i] as tf.Tensor;
  const denominator = setting(0);
  if (form.kind === 'sft') {
    const perToken = sftLoss(targetLogprobs(config, weights, predictions, how));
    return { perToken, monitors: [perToken], denominator };
  }
  if (form.kind === 'value') {
    const values = targetValues(config, weights, predictions, how);
    const { loss: perToken, clipped } = valueLoss(values, input('old'), input('returns'), form.clip ? setting(1) : 0);
    return { perToken, monitors: [clipped], denominator };
  }
  const both = targetLogprobsAndEntropy(config, weights, predictions, how);
  const [logprobs, entropy] = tf.unstack(both, 1) as [tf.Tensor1D, tf.Tensor1D];
  const clip = { clipLow: setting(1), clipHigh: setting(2), dualClip: form.dualClip ? setting(3) : 0 };
  const { loss: policy, clipped } = policyLoss(logprobs, input('old'), input('advantages'), clip);
  const klReference = klK3(logprobs, input('reference'));
  let perToken = policy;
  if (form.kl) perToken = tf.add(perToken, tf.mul(klReference, setting(4)));
  if (form.entropy) perToken = tf.sub(perToken, tf.mul(entropy, setting(5)));
  return { perToken, monitors: [clipped, tf.sub(input('old'), logprobs), klReference, entropy], denominator };
}

/** `values`: the outputs of `lossStep` of all lanes; without predicted tokens, none. */
export function namedSums(loss: LossSpec, tokens: number, values: readonly ArrayLike<number>[]): LossSums {
  const at = (i: number): number => values.reduce((sum, lane) => sum + (lane[i] as number), 0);
  if (loss.kind === 'sft') return { loss: at(0), tokens };
  if (loss.kind === 'value') return { loss: at(0), tokens, clipped: at(1) };
  return { loss: at(0), tokens, clipped: at(1), kl: at(2), klReference: at(3), entropy: at(4) };
}

/** @throws Error for a loss that does not fit the model's role or the batch's size */
export function checkLoss(loss: LossSpec, role: ModelRole, size: number): void {
  if (role !== roleOf(loss)) throw new Error(`${loss.kind} loss: the model is a ${role}, expected ${roleOf(loss)}`);
  if (!(loss.denominator > 0)) throw new Error(`${loss.kind} loss: denominator ${loss.denominator}, expected a positive number`);
  for (const [name, values] of Object.entries(loss)) {
    if (Array.isArray(values) && values.length !== size) {
      throw new Error(`${loss.kind} loss: ${name} has ${values.length} entries, expected ${size} (rows x length)`);
    }
  }
}
