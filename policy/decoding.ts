/**
 * The policy's forward pass with a key-value cache, for sampling: the layers of model.ts (layer.ts is common to both), with new tokens that look back at cached
 * keys and values. One description serves decode (one token for every slot of a lane) and prefill (a chunk of tokens for a few).
 *
 * The cache is cut into blocks of positions, each with its own variables, and the attention is a sum over blocks: a call reads the first
 * `blocks` of them. That changes no bits, however many blocks are read: each block is computed in the same shape, partial sums are added in the order of the blocks, and a
 * block beyond a row's length contributes exactly 0 to it (and nothing to its maximum).
 *
 * The new tokens' keys and values are outputs; `appendStep` writes them behind the call, so that the compiled part only reads the cache.
 */
import { configKey } from './model-config.ts';
import { behindAttention, normedHeads, projections } from './layer.ts';
import { gatherRows, rmsNorm, rope, takeRows } from './model-ops.ts';
import type { StepDescription, Tensors } from './engine/step-function.ts';
import { tf } from './tensorflow.ts';
import type { ModelConfig } from './types.ts';

const MASKED = -1e9;

export interface CacheShape {
  /** Slots of a lane. */
  readonly slots: number;
  /** Positions of a block. */
  readonly block: number;
}
export interface DecodingForm {
  /** Cache blocks that are read. */
  readonly blocks: number;
  readonly rows: number;
  /** New tokens of each row. */
  readonly tokens: number;
  /** The rows are these slots (input `slots` [rows]); otherwise row i is slot i. */
  readonly gather: boolean;
  /** Whether logits are wanted: only with one token a row. */
  readonly logits: boolean;
}

/** Name of the variable with the keys or values of `block` in `layer`, [slots·K·block, Dh]. */
export function cacheName(kind: 'keys' | 'values', layer: number, block: number): string {
  return `${kind}.${layer}.${block}`;
}

/**
 * Inputs: `tokens` and `positions` [rows·tokens] int32, `slots` [rows] int32 where rows are gathered, `temperature` [rows] where logits
 * are wanted. Variables: the policy's parameters, `cos` and `signedSin` [length,Dh], and the cache of the first `blocks` blocks.
 * Outputs: with logits, `weights` [rows,V] = exp((logit − max)/temperature) and `logSum` [rows] = ln Σ exp(logit − max); then the new keys
 * and values [2·layers, rows·tokens·K, Dh], keys of layer 0, values of layer 0, keys of layer 1 …
 */
export function decodingStep(config: ModelConfig, cache: CacheShape, form: DecodingForm, xla: boolean): StepDescription {
  const { blocks, rows, tokens, gather, logits } = form;
  return {
    key: `decoding ${JSON.stringify([cache, form])} ${configKey(config)}${xla ? ' xla' : ''}`,
    xla,
    build: (inputs, variables) => {
      const { positions } = inputs as { positions: tf.Tensor };
      const rotation = {
        cos: tf.reshape(gatherRows(variables['cos']!, positions as tf.Tensor1D), [rows * tokens, 1, config.head_dim]),
        signedSin: tf.reshape(gatherRows(variables['signedSin']!, positions as tf.Tensor1D), [rows * tokens, 1, config.head_dim]),
      };
      const masks = cacheMasks(positions, rows, tokens, cache.block, blocks);
      const own = tokens > 1 ? causalMask(tokens, config.num_attention_heads / config.num_key_value_heads) : undefined;
      const past = (kind: 'keys' | 'values', layer: number, block: number): tf.Tensor => {
        const shape = [config.num_key_value_heads, cache.block, config.head_dim];
        const all = variables[cacheName(kind, layer, block)]!;
        if (!gather) return tf.reshape(all, [rows, ...shape]);
        const bySlot = tf.reshape(all, [cache.slots, shape.reduce((a, b) => a * b, 1)]);
        return tf.reshape(gatherRows(bySlot, inputs['slots'] as tf.Tensor1D), [rows, ...shape]);
      };
      const made: tf.Tensor[] = [];
      let x: tf.Tensor2D = gatherRows(variables['embed']!, inputs['tokens'] as tf.Tensor1D);
      for (let i = 0; i < config.num_hidden_layers; i++) {
        const { query, key, value } = project(config, variables, i, x, rotation);
        made.push(key, value);
        const byBlock = Array.from({ length: blocks }, (_, n) => ({
          keys: past('keys', i, n),
          values: past('values', i, n),
          mask: masks[n] as tf.Tensor,
        }));
        const mixed = attend(config, rows, tokens, query, key, value, byBlock, own);
        x = behindAttention(config, (name) => variables[`${i}.${name}`]!, x, mixed);
      }
      const stacked = tf.stack(made.map((one) => tf.reshape(one, [rows * tokens * config.num_key_value_heads, config.head_dim])));
      if (!logits) return { outputs: [stacked] };
      const hidden = rmsNorm(x, variables['norm']!, config.rms_norm_eps) as tf.Tensor2D;
      const scores = tf.matMul(hidden, (variables['head'] ?? variables['embed']) as tf.Tensor2D, false, true);
      const below = tf.sub(scores, tf.max(scores, -1, true));
      const weights = tf.exp(tf.div(below, tf.reshape(inputs['temperature']!, [rows, 1])));
      return { outputs: [weights, tf.log(tf.sum(tf.exp(below), -1)), stacked] };
    },
  };
}

/**
 * Writes new keys and values into one block. Inputs: `made` (a decoding step's last output), `source` [n] int32 rows of it and `target`
 * [n] int32 rows of the block's variables; a pair may occur several times. Variables: the block's keys and values of all layers.
 */
export function appendStep(config: ModelConfig, block: number): StepDescription {
  const layers = config.num_hidden_layers;
  const names = Array.from({ length: 2 * layers }, (_, i) => cacheName(i % 2 === 0 ? 'keys' : 'values', i >> 1, block));
  return {
    key: `append ${layers} layers, block ${block}`,
    writeOnly: new Set(names),
    build: ({ made, source, target }) => {
      const parts = tf.unstack(takeRows(made!, source!, 1));
      return { outputs: [], scatter: Object.fromEntries(names.map((name, i) => [name, { indices: target!, updates: parts[i]! }])) };
    },
  };
}

interface Rotation {
  readonly cos: tf.Tensor;
  readonly signedSin: tf.Tensor;
}
/** Scaled and turned queries [N,H,Dh], turned keys [N,K,Dh] and values [N,K,Dh] of x [N,D]. */
function project(
  config: ModelConfig,
  variables: Tensors,
  layer: number,
  x: tf.Tensor2D,
  { cos, signedSin }: Rotation,
): { query: tf.Tensor; key: tf.Tensor; value: tf.Tensor } {
  const { num_attention_heads: H, num_key_value_heads: K, head_dim: Dh } = config;
  const weight = (name: string): tf.Tensor => variables[`${layer}.${name}`]!;
  const [q, k, v] = projections(config, weight, x);
  const byHead = (heads: tf.Tensor2D, count: number): tf.Tensor => tf.reshape(heads, [x.shape[0], count, Dh]);
  const query = tf.mul(normedHeads(config, weight, byHead(q, H), 'qNorm'), 1 / Math.sqrt(Dh));
  const key = normedHeads(config, weight, byHead(k, K), 'kNorm');
  return { query: rope(query, cos, signedSin), key: rope(key, cos, signedSin), value: byHead(v, K) };
}

interface Block {
  /** [rows,K,block,Dh] */
  readonly keys: tf.Tensor;
  readonly values: tf.Tensor;
  /** Added to the scores, [rows,1,1,block]. */
  readonly mask: tf.Tensor;
}
/** Attention of the new tokens over the cached blocks and themselves: [rows·tokens, H·Dh]. */
function attend(
  config: ModelConfig,
  rows: number,
  tokens: number,
  query: tf.Tensor,
  key: tf.Tensor,
  value: tf.Tensor,
  blocks: readonly Block[],
  own: tf.Tensor | undefined,
): tf.Tensor2D {
  const { num_attention_heads: H, num_key_value_heads: K, head_dim: Dh } = config;
  const G = H / K;
  // The query heads of one group lie one below the other: [rows,K,tokens·G,Dh].
  const byGroup = (heads: tf.Tensor, width: number): tf.Tensor =>
    tokens === 1
      ? tf.reshape(heads, [rows, K, width, Dh])
      : tf.reshape(tf.transpose(tf.reshape(heads, [rows, tokens, K, width, Dh]), [0, 2, 1, 3, 4]), [rows, K, tokens * width, Dh]);
  const q = byGroup(query, G);
  const [ownKeys, ownValues] = [byGroup(key, 1), byGroup(value, 1)];
  const scores = blocks.map(({ keys, mask }) => tf.add(tf.matMul(q, keys, false, true), mask));
  const plain = tokens === 1 ? tf.sum(tf.mul(q, ownKeys), -1, true) : tf.matMul(q, ownKeys, false, true);
  const ownScores = own === undefined ? plain : tf.add(plain, own);
  const max = scores.reduce(
    (greatest: tf.Tensor, one) => tf.maximum(greatest, tf.max(one, -1, true)),
    tokens === 1 ? ownScores : tf.max(ownScores, -1, true),
  );
  const ownWeights = tf.exp(tf.sub(ownScores, max));
  let total: tf.Tensor = tokens === 1 ? ownWeights : tf.sum(ownWeights, -1, true);
  let sum: tf.Tensor = tokens === 1 ? tf.mul(ownWeights, ownValues) : tf.matMul(ownWeights, ownValues);
  blocks.forEach(({ values }, n) => {
    const weights = tf.exp(tf.sub(scores[n] as tf.Tensor, max));
    total = tf.add(total, tf.sum(weights, -1, true));
    sum = tf.add(sum, tf.matMul(weights, values));
  });
  const mixed = tf.div(sum, total);
  if (tokens === 1) return tf.reshape(mixed, [rows, H * Dh]);
  return tf.reshape(tf.transpose(tf.reshape(mixed, [rows, K, tokens, G, Dh]), [0, 2, 1, 3, 4]), [rows * tokens, H * Dh]);
}

/** Per block [rows,1,1,block]: 0 where the cached position lies before the row's first new token, −1e9 elsewhere. */
function cacheMasks(positions: tf.Tensor, rows: number, tokens: number, block: number, blocks: number): tf.Tensor[] {
  // All new tokens of a row look at the same cached positions: those before the first of them.
  const first = tf.reshape(tf.slice(tf.reshape(positions, [rows, tokens]), [0, 0], [rows, 1]), [rows, 1, 1, 1]);
  return Array.from({ length: blocks }, (_, n) => {
    const range = tf.tensor(
      Int32Array.from({ length: block }, (_, i) => n * block + i),
      [1, 1, 1, block],
      'int32',
    );
    return tf.mul(tf.cast(tf.greaterEqual(range, first), 'float32'), MASKED);
  });
}

/** [tokens·group, tokens]: −1e9 where the key is after the query. */
function causalMask(tokens: number, group: number): tf.Tensor {
  const mask = new Float32Array(tokens * group * tokens);
  for (let t = 0; t < tokens; t++)
    for (let g = 0; g < group; g++) mask.fill(MASKED, (t * group + g) * tokens + t + 1, (t * group + g + 1) * tokens);
  return tf.tensor(mask, [tokens * group, tokens]);
}
