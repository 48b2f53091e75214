/**
 * The losses of docs/method.md, supervised fine-tuning (RSR 6) and PPO with critic (RPR), as formulas per token on tensors. loss-step.ts
 * trains with exactly these. Settings are numbers, or scalars where one recorded function serves all their values.
 */
import { tf } from './tensorflow.ts';

export type Setting = number | tf.Tensor;

/** Bounds of verl's k3 estimator: they keep exp() finite when a token has become almost impossible. */
const LOG_RATIO_LIMIT = 20;
const K3_LIMIT = 10;

export interface PolicyClip {
  readonly clipLow: Setting;
  readonly clipHigh: Setting;
  /** Lower bound c on the objective for negative advantages (Ye et al. 2020), or 0 for none. */
  readonly dualClip: Setting;
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
  const bounded = tf.neg(tf.mul(advantages, clamp(ratio, tf.sub(1, clip.clipLow), tf.add(1, clip.clipHigh))));
  const clipped = tf.cast(tf.greater(bounded, plain), 'float32');
  const larger = tf.maximum(plain, bounded);
  if (clip.dualClip === 0) return { loss: larger, clipped };
  const ceiling = tf.minimum(larger, tf.neg(tf.mul(advantages, clip.dualClip)));
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
export function valueLoss(values: tf.Tensor, old: tf.Tensor, returns: tf.Tensor, clip: Setting): { loss: tf.Tensor; clipped: tf.Tensor } {
  const plain = tf.square(tf.sub(values, returns));
  if (clip === 0) return { loss: tf.mul(plain, 0.5), clipped: tf.zerosLike(plain) };
  const near = tf.add(old, clamp(tf.sub(values, old), tf.neg(clip), clip));
  const bounded = tf.square(tf.sub(near, returns));
  return { loss: tf.mul(tf.maximum(plain, bounded), 0.5), clipped: tf.cast(tf.greater(bounded, plain), 'float32') };
}

/** Per-token loss of supervised fine-tuning [N]: the negative log-likelihood. */
export function sftLoss(logprobs: tf.Tensor): tf.Tensor {
  return tf.neg(logprobs);
}

function clamp(x: tf.Tensor, low: tf.Tensor, high: Setting): tf.Tensor {
  return tf.minimum(tf.maximum(x, low), high);
}
