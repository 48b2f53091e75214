/**
 * The training forward pass over right-padded sequences, and what is read from it at the tokens that count: the one description of the
 * model, on tensors alone, so that it runs eagerly or as a recorded function (engine/). A token is predicted from the hidden state before
 * it; logits and values are computed at those positions only, because agent tokens are a fraction of an episode and the output head is
 * the most expensive matrix product of a small model. decoding.ts has the same layers with a key-value cache.
 */
import { causalAttention } from './attention.ts';
import type { Tensors } from './engine/step-function.ts';
import { behindAttention, normedHeads, projections } from './layer.ts';
import { gatherRows, logprobEntropyHead, logprobHead, recomputed, rmsNorm, rope } from './model-ops.ts';
import { ropeTables } from './rope.ts';
import { tf } from './tensorflow.ts';
import type { ModelConfig } from './types.ts';

/** The tokens of a batch and those that are predicted: `tokens` [B,T], `before` [N] flat positions before each of `targets` [N]; int32. */
export interface Predictions {
  readonly tokens: tf.Tensor2D;
  readonly before: tf.Tensor1D;
  readonly targets: tf.Tensor1D;
}

/** Tables [T,Dh] by which heads are turned: cos and signed sin for keys, and the same with the attention's scale for queries. */
type Rotation = readonly [cos: tf.Tensor, signedSin: tf.Tensor, scaledCos: tf.Tensor, scaledSignedSin: tf.Tensor];

/** How the description is computed; the numbers are the same. */
export interface Computation {
  /** Layers keep only their input for the gradient, and compute the rest again: a third more time, a fraction of the memory. */
  readonly recompute?: boolean;
}

/** [B·T,D] residual stream after the last layer, before the last norm. `weights` by the names of model-parameters.ts. */
export function residualStream(config: ModelConfig, weights: Tensors, tokens: tf.Tensor2D, { recompute }: Computation = {}): tf.Tensor2D {
  const T = tokens.shape[1];
  const tables = ropeTables(config, T);
  const scale = 1 / Math.sqrt(config.head_dim);
  const table = (values: Float32Array): tf.Tensor2D => tf.tensor2d(values, [T, config.head_dim]);
  const scaled = (values: Float32Array): tf.Tensor2D => table(values.map((value) => value * scale));
  const rotation: Rotation = [table(tables.cos), table(tables.signedSin), scaled(tables.cos), scaled(tables.signedSin)];
  let x = gatherRows(named(weights, 'embed'), tf.reshape(tokens, [-1]));
  for (let i = 0; i < config.num_hidden_layers; i++) {
    const names = Object.keys(weights).filter((name) => name.startsWith(`${i}.`));
    const compute = ([input, ...own]: readonly tf.Tensor[], tables: readonly tf.Tensor[]): tf.Tensor2D =>
      layer(config, Object.fromEntries(names.map((name, j) => [name, own[j]!])), i, input as tf.Tensor2D, tokens.shape, tables as Rotation);
    const inputs = [x, ...names.map((name) => named(weights, name))];
    x = (recompute === true ? recomputed(compute, inputs, rotation) : compute(inputs, rotation)) as tf.Tensor2D;
  }
  return x;
}

/** One decoder layer: [B·T,D] → [B·T,D]. */
function layer(
  config: ModelConfig,
  weights: Tensors,
  index: number,
  x: tf.Tensor2D,
  [B, T]: readonly [number, number],
  [cos, signedSin, scaledCos, scaledSignedSin]: Rotation,
): tf.Tensor2D {
  const { num_attention_heads: H, num_key_value_heads: K, head_dim: Dh } = config;
  const group = H / K;
  const weight = (name: string): tf.Tensor => named(weights, `${index}.${name}`);
  const [q, k, v] = projections(config, weight, x);
  // Sequences and groups of heads first, [B,K,group,T,Dh]: the query heads of a group share their keys and values without copies.
  const byHead = (heads: tf.Tensor2D, count: number): tf.Tensor =>
    tf.reshape(tf.transpose(tf.reshape(heads, [B, T, count, Dh]), [0, 2, 1, 3]), [B * count, T, Dh]);
  const queries = rope(normedHeads(config, weight, byHead(q, H), 'qNorm'), scaledCos, scaledSignedSin);
  const keys = rope(normedHeads(config, weight, byHead(k, K), 'kNorm'), cos, signedSin);
  const mixed = causalAttention(tf.reshape(queries, [B * K, group, T, Dh]), keys, byHead(v, K));
  const joined = tf.reshape<tf.Rank.R2>(tf.transpose(tf.reshape(mixed, [B, H, T, Dh]), [0, 2, 1, 3]), [B * T, H * Dh]);
  return behindAttention(config, weight, x, joined);
}

/** [N,D] hidden states after the last norm from which the targets are predicted. */
function predictors(config: ModelConfig, weights: Tensors, { tokens, before }: Predictions, how?: Computation): tf.Tensor2D {
  const rows = gatherRows(residualStream(config, weights, tokens, how), before);
  return rmsNorm(rows, named(weights, 'norm'), config.rms_norm_eps) as tf.Tensor2D;
}

/** [N] log-probability of each target given its prefix. */
export function targetLogprobs(config: ModelConfig, weights: Tensors, predictions: Predictions, how?: Computation): tf.Tensor1D {
  return logprobHead(predictors(config, weights, predictions, how), outputMatrix(config, weights), predictions.targets);
}

/** [N,2] log-probability of each target, and entropy (nats) of the distribution it is drawn from. */
export function targetLogprobsAndEntropy(config: ModelConfig, weights: Tensors, predictions: Predictions, how?: Computation): tf.Tensor2D {
  return logprobEntropyHead(predictors(config, weights, predictions, how), outputMatrix(config, weights), predictions.targets);
}

/** [N] value at the position before each target. Critic only. */
export function targetValues(config: ModelConfig, weights: Tensors, predictions: Predictions, how?: Computation): tf.Tensor1D {
  const head = named(weights, 'valueHead') as tf.Tensor2D;
  return tf.reshape(tf.matMul(predictors(config, weights, predictions, how), head), [-1]);
}

/** [B·T,V] logits after each token, for comparisons with other implementations. */
export function allLogits(config: ModelConfig, weights: Tensors, tokens: tf.Tensor2D): tf.Tensor2D {
  const hidden = rmsNorm(residualStream(config, weights, tokens), named(weights, 'norm'), config.rms_norm_eps) as tf.Tensor2D;
  return tf.matMul(hidden, outputMatrix(config, weights), false, true);
}

/** [V,D] the matrix whose product with a hidden state gives the logits. Policy only. */
function outputMatrix(config: ModelConfig, weights: Tensors): tf.Tensor2D {
  return named(weights, config.tie_word_embeddings ? 'embed' : 'head') as tf.Tensor2D;
}

function named(weights: Tensors, name: string): tf.Tensor {
  const found = weights[name];
  if (found === undefined) throw new Error(`parameter ${name}: the model has none of this name (another role or configuration)`);
  return found;
}
