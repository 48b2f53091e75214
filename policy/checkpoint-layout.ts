/**
 * Where the tensors of a Hugging Face checkpoint are in our parameters. Matrices there are [out,in]; ours are [in,out] with query, key and
 * value (and gate and up) side by side. The names are the same in all families that we run.
 */
import { attentionParts } from './model-config.ts';
import type { ModelConfig, ModelRole } from './types.ts';

export const VALUE_HEAD = 'value_head.weight';
export const OUTPUT_HEAD = 'lm_head.weight';
export const EMBEDDINGS = 'model.embed_tokens.weight';

/** One tensor of the file. */
export interface Placement {
  readonly name: string;
  readonly shape: readonly number[];
  readonly parameter: string;
  /** Its first column in our matrix, or its first element in our vector. */
  readonly column: number;
  /** A matrix [out,in] that fills columns [column, column+out) of ours; false: the values are stored as ours are. */
  readonly transposed: boolean;
}

/** Every tensor that a checkpoint of this configuration holds, in the order in which they are written. */
export function placements(config: ModelConfig, role: ModelRole): Placement[] {
  const { vocab_size: V, hidden_size: D, intermediate_size: F, head_dim: Dh } = config;
  const { qkNorm, qkvBias, outputBias } = attentionParts(config);
  const query = config.num_attention_heads * Dh;
  const key = config.num_key_value_heads * Dh;
  const list: Placement[] = [];
  const plain = (name: string, shape: number[], parameter: string, column = 0): void => {
    list.push({ name, shape, parameter, column, transposed: false });
  };
  const matrix = (name: string, shape: number[], parameter: string, column = 0): void => {
    list.push({ name, shape, parameter, column, transposed: true });
  };
  plain(EMBEDDINGS, [V, D], 'embed');
  for (let i = 0; i < config.num_hidden_layers; i++) {
    const there = (name: string): string => `model.layers.${i}.${name}`;
    const ours = (name: string): string => `${i}.${name}`;
    plain(there('input_layernorm.weight'), [D], ours('attnNorm'));
    for (const [name, rows, column] of [
      ['q', query, 0],
      ['k', key, query],
      ['v', key, query + key],
    ] as const) {
      matrix(there(`self_attn.${name}_proj.weight`), [rows, D], ours('qkv'), column);
      if (qkvBias) plain(there(`self_attn.${name}_proj.bias`), [rows], ours('qkvBias'), column);
    }
    if (qkNorm) {
      plain(there('self_attn.q_norm.weight'), [Dh], ours('qNorm'));
      plain(there('self_attn.k_norm.weight'), [Dh], ours('kNorm'));
    }
    matrix(there('self_attn.o_proj.weight'), [D, query], ours('o'));
    if (outputBias) plain(there('self_attn.o_proj.bias'), [D], ours('oBias'));
    plain(there('post_attention_layernorm.weight'), [D], ours('mlpNorm'));
    matrix(there('mlp.gate_proj.weight'), [F, D], ours('gateUp'));
    matrix(there('mlp.up_proj.weight'), [F, D], ours('gateUp'), F);
    matrix(there('mlp.down_proj.weight'), [D, F], ours('down'));
  }
  plain('model.norm.weight', [D], 'norm');
  if (role === 'critic') matrix(VALUE_HEAD, [1, D], 'valueHead');
  else if (!config.tie_word_embeddings) plain(OUTPUT_HEAD, [V, D], 'head');
  return list;
}

/** Copies a tensor's values into those of our parameter, a matrix with `width` columns (or a vector). */
export function place({ shape, column, transposed }: Placement, from: Float32Array, into: Float32Array, width: number): void {
  if (!transposed) return into.set(from, column);
  const [out, inner] = shape as [number, number];
  eachTile(out, inner, (o, i) => (into[i * width + column + o] = from[o * inner + i] as number));
}

/** The inverse of `place`: a tensor's values out of those of our parameter. */
export function extract({ shape, column, transposed }: Placement, from: Float32Array, width: number): Float32Array {
  const count = shape.reduce((a, b) => a * b, 1);
  if (!transposed) return from.subarray(column, column + count);
  const [out, inner] = shape as [number, number];
  const into = new Float32Array(count);
  eachTile(out, inner, (o, i) => (into[o * inner + i] = from[i * width + column + o] as number));
  return into;
}

/** Visits all pairs in square tiles that fit the cache on both sides of a transposition. */
function eachTile(rows: number, columns: number, visit: (row: number, column: number) => void): void {
  const SIDE = 32;
  for (let r = 0; r < rows; r += SIDE)
    for (let c = 0; c < columns; c += SIDE)
      for (let row = r; row < Math.min(r + SIDE, rows); row++)
        for (let column = c; column < Math.min(c + SIDE, columns); column++) visit(row, column);
}
