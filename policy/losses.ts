/**
 * The losses of docs/method.md, supervised fine-tuning (RSR 6) and PPO with critic (RPR): per-token formulas on tensors, and
 * `lossAndGradients`, which trains with exactly those formulas. Every loss is a sum over the micro-batch's masked tokens divided by a
 * `denominator` that is global over the optimizer step, so the gradient does not depend on how a step is cut into micro-batches.
 */
import { tf } from './tensorflow.ts';
import { logprobsAndEntropyAtMask, logprobsAtMask, type MaskedBatch, maskedBatch, type Model, valuesAtMask } from './model.ts';
import type { LossSpec, LossSums, SequenceBatch } from './types.ts';

/** Bounds of verl's k3 estimator: they keep exp() finite when a token has become almost impossible. */
const LOG_RATIO_LIMIT = 20;
const K3_LIMIT = 10;

export interface PolicyClip {
  readonly clipLow: number;
  readonly clipHigh: number;
  /** Lower bound c on the objective for negative advantages (Ye et al. 2020), or 0 for none. */
  readonly dualClip: number;
}

/**
 * Per-token PPO loss [N]: max(−A·ρ, −A·clip(ρ, 1−clipLow, 1+clipHigh)) with ρ = exp(logprob − old); where A < 0 at most −A·c (dual clip).
 * `clipped` [N] is 1 where the clipped term is the larger one (the share that verl reports as clipfrac).
 */
export function policyLoss(
  logprobs: tf.Tensor,
  old: tf.Tensor,
  advantages: tf.Tensor,
  clip: PolicyClip,
): { loss: tf.Tensor; clipped: tf.Tensor } {
  const ratio = tf.exp(tf.clipByValue(tf.sub(logprobs, old), -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT));
  const plain = tf.neg(tf.mul(advantages, ratio));
  const bounded = tf.neg(tf.mul(advantages, tf.clipByValue(ratio, 1 - clip.clipLow, 1 + clip.clipHigh)));
  const clipped = tf.cast(tf.greater(bounded, plain), 'float32');
  const larger = tf.maximum(plain, bounded);
  if (clip.dualClip === 0) return { loss: larger, clipped };
  const ceiling = tf.minimum(larger, tf.mul(advantages, -clip.dualClip));
  return { loss: tf.where(tf.less(advantages, 0), ceiling, larger), clipped };
}

/** Schulman's k3 estimate [N] of KL(policy ‖ reference) on the policy's own tokens: e^d − d − 1 with d = reference − logprob. */
export function klK3(logprobs: tf.Tensor, reference: tf.Tensor): tf.Tensor {
  const d = tf.clipByValue(tf.sub(reference, logprobs), -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT);
  return tf.clipByValue(tf.sub(tf.exp(d), tf.add(d, 1)), -K3_LIMIT, K3_LIMIT);
}

/**
 * Per-token value loss [N]: ½·max((V−R)², (V_clip−R)²), V_clip within ±clip of the old value; clip 0 leaves ½·(V−R)².
 */
export function valueLoss(values: tf.Tensor, old: tf.Tensor, returns: tf.Tensor, clip: number): { loss: tf.Tensor; clipped: tf.Tensor } {
  const plain = tf.square(tf.sub(values, returns));
  if (clip === 0) return { loss: tf.mul(plain, 0.5), clipped: tf.zerosLike(plain) };
  const near = tf.add(old, tf.clipByValue(tf.sub(values, old), -clip, clip));
  const bounded = tf.square(tf.sub(near, returns));
  return { loss: tf.mul(tf.maximum(plain, bounded), 0.5), clipped: tf.cast(tf.greater(bounded, plain), 'float32') };
}

/** Per-token loss of supervised fine-tuning [N]: the negative log-likelihood. */
export function sftLoss(logprobs: tf.Tensor): tf.Tensor {
  return tf.neg(logprobs);
}

/** Gradients by parameter name. The caller disposes them. */
export type Gradients = Map<string, tf.Tensor>;

/**
 * One micro-batch: its share of the step's loss, sums for the monitors, and the loss's gradients by every parameter. A batch without
 * masked tokens has loss 0 and zero gradients. A loss that is not finite is returned as it is; nothing is applied here.
 */
export function lossAndGradients(model: Model, loss: LossSpec, batch: SequenceBatch): { sums: LossSums; gradients: Gradients } {
  checkRole(model, loss);
  checkLoss(loss, batch.rows * batch.length);
  const checked = maskedBatch(batch, model.config);
  const tokens = checked.positions.length;
  if (tokens === 0) return { sums: emptySums(loss), gradients: zeroGradients(model) };
  let value = 0;
  let monitors: ArrayLike<number> = [];
  const byVariable = tf.tidy(() => {
    // A side result of the gradient's scope: `keep` protects it there, and it is disposed here.
    let kept: tf.Tensor | undefined;
    const found = tf.variableGrads(() => {
      const { perToken, sums } = computeLoss(model, loss, checked);
      kept = tf.keep(tf.stack(sums.map((perTokenSum) => tf.sum(perTokenSum))));
      return tf.div<tf.Scalar>(tf.sum(perToken), loss.denominator);
    }, [...model.params.values()]);
    const sideResult = kept as unknown as tf.Tensor;
    monitors = sideResult.dataSync<'float32'>();
    sideResult.dispose();
    value = found.value.dataSync<'float32'>()[0] as number;
    return found.grads;
  });
  const gradients: Gradients = new Map();
  for (const [name, parameter] of model.params) {
    const gradient = byVariable[parameter.name];
    if (gradient === undefined) throw new Error(`parameter ${name}: the ${loss.kind} loss gave no gradient`);
    gradients.set(name, gradient);
  }
  return { sums: namedSums(loss, value, tokens, monitors), gradients };
}

/** The loss per token, and the per-token monitors in the order that `namedSums` reads. */
function computeLoss(model: Model, loss: LossSpec, batch: MaskedBatch): { perToken: tf.Tensor; sums: tf.Tensor[] } {
  const pick = (values: readonly number[]): tf.Tensor1D =>
    tf.tensor1d(
      Array.from(batch.positions, (p) => values[p] as number),
      'float32',
    );
  if (loss.kind === 'sft') {
    const perToken = sftLoss(logprobsAtMask(model, batch));
    return { perToken, sums: [perToken] };
  }
  if (loss.kind === 'value') {
    const { loss: perToken, clipped } = valueLoss(valuesAtMask(model, batch), pick(loss.oldValues), pick(loss.returns), loss.clip);
    return { perToken, sums: [clipped] };
  }
  const both = logprobsAndEntropyAtMask(model, batch);
  const [logprobs, entropy] = tf.unstack(both, 1) as [tf.Tensor1D, tf.Tensor1D];
  const old = pick(loss.oldLogprobs);
  const { loss: policy, clipped } = policyLoss(logprobs, old, pick(loss.advantages), loss);
  const klReference = klK3(logprobs, pick(loss.referenceLogprobs));
  let perToken = policy;
  if (loss.klCoefficient !== 0) perToken = tf.add(perToken, tf.mul(klReference, loss.klCoefficient));
  if (loss.entropyCoefficient !== 0) perToken = tf.sub(perToken, tf.mul(entropy, loss.entropyCoefficient));
  return { perToken, sums: [clipped, tf.sub(old, logprobs), klReference, entropy] };
}

function namedSums(loss: LossSpec, value: number, tokens: number, sums: ArrayLike<number>): LossSums {
  const sum = (i: number): number => sums[i] as number;
  if (loss.kind === 'sft') return { loss: value, tokens };
  if (loss.kind === 'value') return { loss: value, tokens, clipped: sum(0) };
  return { loss: value, tokens, clipped: sum(0), kl: sum(1), klReference: sum(2), entropy: sum(3) };
}

function emptySums(loss: LossSpec): LossSums {
  return namedSums(loss, 0, 0, [0, 0, 0, 0]);
}

function zeroGradients(model: Model): Gradients {
  return new Map([...model.params].map(([name, parameter]) => [name, tf.zerosLike(parameter)]));
}

function checkRole(model: Model, loss: LossSpec): void {
  const expected = loss.kind === 'value' ? 'critic' : 'actor';
  if (model.role !== expected) throw new Error(`${loss.kind} loss: the model is a ${model.role}, expected ${expected}`);
}

function checkLoss(loss: LossSpec, size: number): void {
  if (!(loss.denominator > 0)) throw new Error(`${loss.kind} loss: denominator ${loss.denominator}, expected a positive number`);
  for (const [name, values] of Object.entries(loss)) {
    if (Array.isArray(values) && values.length !== size) {
      throw new Error(`${loss.kind} loss: ${name} has ${values.length} entries, expected ${size} (rows x length)`);
    }
  }
}
