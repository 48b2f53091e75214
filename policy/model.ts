/**
 * The training forward pass over right-padded sequences, and what is read from it at masked tokens. Position t is predicted from
 * the hidden state of position t−1; logits and values are computed at those positions only, because agent tokens are a fraction
 * of an episode and the output head is the most expensive matrix product of a small model.
 */
import { tf } from './tensorflow.ts';
import { attention, gatherRows, logprobEntropyHead, logprobHead, rmsNorm, rope, swiglu } from './model-ops.ts';
import { attentionParts } from './model-config.ts';
import { type Model, outputMatrix, parameter } from './model-parameters.ts';
import { ropeTables } from './rope.ts';
import type { ModelConfig, SequenceBatch } from './types.ts';

export { createModel, disposeModel, type Model, parameter, parameterCount, parameterShapes } from './model-parameters.ts';

/** A checked batch: where the predicted tokens are. Flat positions are row · length + column, ascending. */
export interface MaskedBatch {
  readonly rows: number;
  readonly length: number;
  readonly tokens: Int32Array;
  /** [N] flat positions of the masked tokens. */
  readonly positions: Int32Array;
}

/** Checks shapes, token ids and mask. Throws with the place and value of what is wrong. */
export function maskedBatch(batch: SequenceBatch, config: ModelConfig): MaskedBatch {
  const { rows, length } = batch;
  const size = rows * length;
  if (batch.tokens.length !== size || batch.mask.length !== size) {
    throw new Error(
      `batch of ${rows}x${length}: ${batch.tokens.length} tokens and ${batch.mask.length} mask values, expected ${size} of each`,
    );
  }
  if (length > config.max_position_embeddings) {
    throw new Error(`batch length ${length}: the model has ${config.max_position_embeddings} positions`);
  }
  const positions: number[] = [];
  for (let i = 0; i < size; i++) {
    const token = batch.tokens[i] as number;
    if (!Number.isInteger(token) || token < 0 || token >= config.vocab_size) {
      throw new Error(`token ${token} at row ${Math.floor(i / length)}, column ${i % length}: expected 0 to ${config.vocab_size - 1}`);
    }
    if (batch.mask[i] === 0) continue;
    if (batch.mask[i] !== 1)
      throw new Error(`mask ${batch.mask[i]} at row ${Math.floor(i / length)}, column ${i % length}: expected 0 or 1`);
    if (i % length === 0)
      throw new Error(`mask 1 at row ${i / length}, column 0: nothing precedes the first token, so it cannot be predicted`);
    positions.push(i);
  }
  return { rows, length, tokens: Int32Array.from(batch.tokens), positions: Int32Array.from(positions) };
}

/** [B·T,D] hidden states after the last norm. Call within tf.tidy, around forward and backward alike. */
export function hiddenStates(model: Model, batch: MaskedBatch): tf.Tensor2D {
  const { config } = model;
  const { rows: B, length: T } = batch;
  const { num_attention_heads: H, num_key_value_heads: K, head_dim: Dh, rms_norm_eps: epsilon } = config;
  const group = H / K;
  const parts = attentionParts(config);
  const tables = ropeTables(config, T);
  const [cos, signedSin] = [tf.tensor2d(tables.cos, [T, Dh]), tf.tensor2d(tables.signedSin, [T, Dh])];
  const bias = causalBias(T, group);
  // [H+K,1] what each head is multiplied by: the attention scale for queries, 1 for keys.
  const scales = tf.concat([tf.fill([H, 1], 1 / Math.sqrt(Dh)), tf.ones([K, 1])], 0);
  let x: tf.Tensor = gatherRows(parameter(model, 'embed'), tf.tensor1d(batch.tokens, 'int32'));
  for (let i = 0; i < config.num_hidden_layers; i++) {
    const weight = (name: string): tf.Tensor2D => parameter(model, `${i}.${name}`) as tf.Tensor as tf.Tensor2D;
    const normed = rmsNorm(x, weight('attnNorm'), epsilon) as tf.Tensor2D;
    const biased = (product: tf.Tensor, name: string): tf.Tensor => tf.add(product, weight(name));
    const product = tf.matMul(normed, weight('qkv'));
    const qkv = tf.reshape(parts.qkvBias ? biased(product, 'qkvBias') : product, [B, T, H + 2 * K, Dh]);
    const [queriesKeys, values] = tf.split(qkv, [H + K, K], 2) as [tf.Tensor, tf.Tensor];
    // Queries and keys share one norm, where the family has it, and one rotation; the attention scale rides on the gain.
    const gain = (name: string, heads: number): tf.Tensor => tf.tile(tf.reshape(weight(name), [1, Dh]), [heads, 1]);
    const scaled = parts.qkNorm
      ? rmsNorm(queriesKeys, tf.mul(tf.concat([gain('qNorm', H), gain('kNorm', K)], 0), scales), epsilon)
      : tf.mul(queriesKeys, scales);
    const turned = rope(tf.transpose(scaled, [0, 2, 1, 3]), cos, signedSin);
    const [q, k] = tf.split(turned, [H, K], 1) as [tf.Tensor, tf.Tensor];
    const v = tf.transpose(values, [0, 2, 1, 3]);
    // The query heads of one group lie one below the other, so that keys and values need no copies.
    const mixed = attention(tf.reshape(q, [B * K, group * T, Dh]), tf.reshape(k, [B * K, T, Dh]), tf.reshape(v, [B * K, T, Dh]), bias);
    const joined = tf.reshape<tf.Rank.R2>(tf.transpose(tf.reshape(mixed, [B, H, T, Dh]), [0, 2, 1, 3]), [B * T, H * Dh]);
    const output = tf.matMul(joined, weight('o'));
    x = tf.add(x, parts.outputBias ? biased(output, 'oBias') : output);
    const normedAgain = rmsNorm(x, weight('mlpNorm'), epsilon) as tf.Tensor2D;
    x = tf.add(x, tf.matMul(swiglu(tf.matMul(normedAgain, weight('gateUp'))), weight('down')));
  }
  return rmsNorm(x, parameter(model, 'norm'), epsilon) as tf.Tensor2D;
}

/** Hidden states [N,D] from which the masked tokens are predicted. */
function predictors(model: Model, batch: MaskedBatch): tf.Tensor2D {
  const previous = batch.positions.map((p) => p - 1);
  return gatherRows(hiddenStates(model, batch), tf.tensor1d(previous, 'int32'));
}

function targets(batch: MaskedBatch): tf.Tensor1D {
  return tf.tensor1d(
    batch.positions.map((p) => batch.tokens[p] as number),
    'int32',
  );
}

/** [N] log-probability of each masked token given its prefix. Differentiable; call within tf.tidy. */
export function logprobsAtMask(model: Model, batch: MaskedBatch): tf.Tensor1D {
  return logprobHead(predictors(model, batch), outputMatrix(model), targets(batch));
}

/** [N,2] log-probability of each masked token, and entropy of the distribution it is drawn from. Differentiable; call within tf.tidy. */
export function logprobsAndEntropyAtMask(model: Model, batch: MaskedBatch): tf.Tensor2D {
  return logprobEntropyHead(predictors(model, batch), outputMatrix(model), targets(batch));
}

/** [N] value at the position that predicts each masked token. Critic only. Differentiable; call within tf.tidy. */
export function valuesAtMask(model: Model, batch: MaskedBatch): tf.Tensor1D {
  const head = parameter(model, 'valueHead') as tf.Tensor as tf.Tensor2D;
  return tf.reshape(tf.matMul(predictors(model, batch), head), [-1]);
}

/** [B·T] natural log-probability of each masked token given its prefix, 0 elsewhere. */
export function tokenLogprobs(model: Model, batch: SequenceBatch): Float32Array {
  return atMask(model, batch, (checked) => logprobsAtMask(model, checked));
}

/** [B·T] entropy (nats) of the distribution each masked token is drawn from, 0 elsewhere. */
export function tokenEntropy(model: Model, batch: SequenceBatch): Float32Array {
  return atMask(model, batch, (checked) => tf.slice(logprobsAndEntropyAtMask(model, checked), [0, 1], [-1, 1]));
}

/** [B·T] value at the position that predicts each masked token, 0 elsewhere. Critic only. */
export function tokenValues(model: Model, batch: SequenceBatch): Float32Array {
  return atMask(model, batch, (checked) => valuesAtMask(model, checked));
}

/** [T·V] logits after each token of one sequence, for comparisons with other implementations. */
export function sequenceLogits(model: Model, tokens: readonly number[]): Float32Array {
  const batch = maskedBatch({ rows: 1, length: tokens.length, tokens, mask: tokens.map(() => 0) }, model.config);
  const output = outputMatrix(model) as tf.Tensor as tf.Tensor2D;
  const logits = tf.tidy(() => tf.matMul(hiddenStates(model, batch), output, false, true));
  // Read outside: tidy looks through everything that it returns for tensors, number by number.
  const values = logits.dataSync<'float32'>();
  logits.dispose();
  return values;
}

function atMask(model: Model, batch: SequenceBatch, compute: (checked: MaskedBatch) => tf.Tensor): Float32Array {
  const checked = maskedBatch(batch, model.config);
  const out = new Float32Array(batch.rows * batch.length);
  if (checked.positions.length === 0) return out;
  const values = tf.tidy(() => compute(checked).dataSync<'float32'>());
  checked.positions.forEach((position, i) => (out[position] = values[i] as number));
  return out;
}

/** [group·T,T]: 0 where the key is not after the query, −1e9 elsewhere. Right padding needs no mask of its own: it is always after. */
function causalBias(length: number, group: number): tf.Tensor2D {
  const bias = new Float32Array(length * length);
  for (let t = 0; t < length; t++) bias.fill(-1e9, t * length + t + 1, (t + 1) * length);
  return tf.tile(tf.tensor2d(bias, [length, length]), [group, 1]);
}
