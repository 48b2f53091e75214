/**
 * What surrounds the attention in a decoder layer, for the training pass (model.ts) and for decoding (decoding.ts) alike: both take the
 * same weights to the same queries, keys and values, and the attention's output to the next layer.
 */
import { attentionParts } from './model-config.ts';
import { gated, normalize, rmsNorm } from './model-ops.ts';
import { tf } from './tensorflow.ts';
import type { ModelConfig } from './types.ts';

/** A layer's own parameter by its name without the layer's number. */
export type LayerWeight = (name: string) => tf.Tensor;

/** Queries [N,H·Dh], keys and values [N,K·Dh] of the residual stream x [N,D], not normed by head and not turned. */
export function projections(config: ModelConfig, weight: LayerWeight, x: tf.Tensor2D): [tf.Tensor2D, tf.Tensor2D, tf.Tensor2D] {
  const { num_attention_heads: H, num_key_value_heads: K, head_dim: Dh, rms_norm_eps: epsilon } = config;
  const bias = attentionParts(config).qkvBias ? weight('qkvBias') : undefined;
  const made = normedProducts(x, weight('attnNorm'), weight('qkv'), bias, [H * Dh, K * Dh, K * Dh], epsilon);
  return made as [tf.Tensor2D, tf.Tensor2D, tf.Tensor2D];
}

/** Query or key heads [...,Dh] normed head by head, where the family does that. */
export function normedHeads(config: ModelConfig, weight: LayerWeight, heads: tf.Tensor, gain: 'qNorm' | 'kNorm'): tf.Tensor {
  return attentionParts(config).qkNorm ? rmsNorm(heads, weight(gain), config.rms_norm_eps) : heads;
}

/** The residual stream [N,D] behind the layer; `mixed` [N,H·Dh] is the attention's output, heads side by side. */
export function behindAttention(config: ModelConfig, weight: LayerWeight, x: tf.Tensor2D, mixed: tf.Tensor2D): tf.Tensor2D {
  const F = config.intermediate_size;
  const output = tf.matMul<tf.Tensor2D>(mixed, weight('o'));
  const attended = tf.add<tf.Tensor2D>(x, attentionParts(config).outputBias ? tf.add(output, weight('oBias')) : output);
  const [gate, up] = normedProducts(attended, weight('mlpNorm'), weight('gateUp'), undefined, [F, F], config.rms_norm_eps);
  return tf.add(attended, tf.matMul(gated(gate!, up!), weight('down') as tf.Tensor2D));
}

/**
 * norm(x)·diag(gain)·matrix + bias, cut into columns of `widths`. Gain and cut are applied to the activations or to the matrix, whichever
 * has fewer rows: activations when decoding, matrices when training.
 */
function normedProducts(
  x: tf.Tensor2D,
  gain: tf.Tensor,
  matrix: tf.Tensor,
  bias: tf.Tensor | undefined,
  widths: number[],
  epsilon: number,
): tf.Tensor2D[] {
  const withBias = (product: tf.Tensor2D, own: tf.Tensor | undefined): tf.Tensor2D =>
    own === undefined ? product : tf.add<tf.Tensor2D>(product, own);
  if (x.shape[0] < x.shape[1]) {
    const product = tf.matMul<tf.Tensor2D>(rmsNorm(x, gain, epsilon), matrix);
    return tf.split<tf.Tensor2D>(withBias(product, bias), widths, 1);
  }
  const unit = normalize(x, epsilon) as tf.Tensor2D;
  const matrices = tf.split<tf.Tensor2D>(tf.mul(matrix, tf.reshape(gain, [-1, 1])), widths, 1);
  const biases = bias === undefined ? [] : tf.split(bias, widths, 0);
  return matrices.map((own, i) => withBias(tf.matMul<tf.Tensor2D>(unit, own), biases[i]));
}
