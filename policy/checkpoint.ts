/**
 * Policies and critics on disk, in the layout of Hugging Face transformers: `config.json`, `model.safetensors`, and a policy's
 * `tokenizer.json`. Weights there are [out,in]; ours are [in,out] with query, key and value (and gate and up) side by side.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../environment/errors.ts';
import { writeDirectoryAtomically } from './checkpoint-files.ts';
import { checkConfig, type Model, modelFromValues, parameterShapes } from './model-parameters.ts';
import { readSafetensors, type TensorEntry, writeSafetensors } from './safetensors.ts';
import type { ModelConfig, ModelRole } from './types.ts';

const VALUE_HEAD = 'value_head.weight';
/** Files that make a directory a policy with text. */
const TOKENIZER_FILES = ['tokenizer.json', 'tokenizer_config.json'];
/** Those files by name, in memory: the directory that a model was loaded from may be gone when it is saved. */
export type TokenizerFiles = ReadonlyMap<string, Uint8Array>;

/** One tensor of the file: where its values are in our parameters. */
interface Placement {
  readonly name: string;
  readonly shape: readonly number[];
  readonly parameter: string;
  /** A matrix [out,in] that fills columns [column, column+out) of ours; undefined: the values are stored as ours are. */
  readonly column?: number;
}

function placements(config: ModelConfig, role: ModelRole): Placement[] {
  const { vocab_size: V, hidden_size: D, intermediate_size: F, head_dim: Dh } = config;
  const query = config.num_attention_heads * Dh;
  const key = config.num_key_value_heads * Dh;
  const list: Placement[] = [{ name: 'model.embed_tokens.weight', shape: [V, D], parameter: 'embed' }];
  for (let i = 0; i < config.num_hidden_layers; i++) {
    const add = (name: string, shape: number[], parameter: string, column?: number): void => {
      list.push({
        name: `model.layers.${i}.${name}.weight`,
        shape,
        parameter: `${i}.${parameter}`,
        ...(column === undefined ? {} : { column }),
      });
    };
    add('input_layernorm', [D], 'attnNorm');
    add('self_attn.q_proj', [query, D], 'qkv', 0);
    add('self_attn.k_proj', [key, D], 'qkv', query);
    add('self_attn.v_proj', [key, D], 'qkv', query + key);
    add('self_attn.q_norm', [Dh], 'qNorm');
    add('self_attn.k_norm', [Dh], 'kNorm');
    add('self_attn.o_proj', [D, query], 'o', 0);
    add('post_attention_layernorm', [D], 'mlpNorm');
    add('mlp.gate_proj', [F, D], 'gateUp', 0);
    add('mlp.up_proj', [F, D], 'gateUp', F);
    add('mlp.down_proj', [D, F], 'down', 0);
  }
  list.push({ name: 'model.norm.weight', shape: [D], parameter: 'norm' });
  if (role === 'critic') list.push({ name: VALUE_HEAD, shape: [1, D], parameter: 'valueHead', column: 0 });
  return list;
}

/**
 * Reads a policy or critic. A critic from a policy directory takes over the trunk and gets a zero value head. Throws UserError naming
 * the file, the field or tensor, what was found and what was expected.
 */
export function loadModel(directory: string, role: ModelRole): Model {
  const config = readConfig(directory);
  const { tensors, source } = readWeights(directory);
  if (role === 'actor' && tensors.has(VALUE_HEAD))
    throw new UserError(`${source}: has ${VALUE_HEAD}, which makes it a critic, expected a policy`);
  if (role === 'critic' && !tensors.has(VALUE_HEAD)) {
    tensors.set(VALUE_HEAD, { shape: [1, config.hidden_size], data: new Float32Array(config.hidden_size) });
  }
  const shapes = parameterShapes(config, role);
  const values = new Map([...shapes].map(([name, shape]) => [name, new Float32Array(shape.reduce((a, b) => a * b, 1))]));
  for (const { name, shape, parameter, column } of placements(config, role)) {
    const tensor = tensors.get(name);
    if (tensor === undefined) throw new UserError(`${source}: tensor ${name} is missing, expected shape [${shape.join(',')}]`);
    if (tensor.shape.join() !== shape.join()) {
      throw new UserError(
        `${source}: tensor ${name} has shape [${tensor.shape.join(',')}], expected [${shape.join(',')}] from config.json`,
      );
    }
    const into = values.get(parameter) as Float32Array;
    if (column === undefined) into.set(tensor.data);
    else transposeInto(tensor.data, shape as [number, number], into, (shapes.get(parameter) as number[])[1] as number, column);
    tensors.delete(name);
  }
  // Tied embeddings: some checkpoints store the output matrix a second time.
  tensors.delete('lm_head.weight');
  const left = [...tensors.keys()][0];
  if (left !== undefined)
    throw new UserError(`${source}: tensor ${left} has no place in a ${config.model_type} ${role} with this config.json`);
  return modelFromValues(config, role, values);
}

/** The tokenizer of a policy directory. Throws UserError when there is none. */
export function readTokenizer(directory: string): TokenizerFiles {
  const found = TOKENIZER_FILES.filter((file) => existsSync(join(directory, file)));
  if (!found.includes('tokenizer.json'))
    throw new UserError(`${join(directory, 'tokenizer.json')}: does not exist, expected the policy's tokenizer`);
  return new Map(found.map((file) => [file, readFileSync(join(directory, file))]));
}

/** Writes a new directory in the layout that `loadModel` reads, all or nothing. A policy has a tokenizer beside its weights. */
export function saveModel(model: Model, directory: string, options: { readonly tokenizer?: TokenizerFiles } = {}): void {
  const shapes = parameterShapes(model.config, model.role);
  const values = new Map([...model.params].map(([name, p]) => [name, p.dataSync<'float32'>()]));
  const tensors = new Map<string, TensorEntry>();
  for (const { name, shape, parameter, column } of placements(model.config, model.role)) {
    const from = values.get(parameter);
    if (from === undefined) throw new Error(`parameter ${parameter}: not in the model (disposed?)`);
    const width = (shapes.get(parameter) as number[])[1] as number;
    const data = column === undefined ? from : transposeFrom(from, width, column, shape as [number, number]);
    tensors.set(name, { shape, data });
  }
  writeDirectoryAtomically(directory, (temporary) => {
    writeSafetensors(join(temporary, 'model.safetensors'), tensors);
    writeFileSync(join(temporary, 'config.json'), `${JSON.stringify(model.config, null, 2)}\n`);
    for (const [file, bytes] of options.tokenizer ?? []) writeFileSync(join(temporary, file), bytes);
  });
}

/** `config.json` of a policy or critic directory, checked. */
export function readConfig(directory: string): ModelConfig {
  const path = join(directory, 'config.json');
  let raw: Record<string, unknown>;
  try {
    raw = JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>;
  } catch (error) {
    throw new UserError(`${path}: ${(error as Error).message}, expected the configuration of a Hugging Face model`);
  }
  const expect = (field: string, allowed: readonly unknown[]): void => {
    if (!allowed.includes(raw[field])) {
      throw new UserError(
        `${path}: ${field} is ${JSON.stringify(raw[field])}, expected ${allowed.map((a) => JSON.stringify(a) ?? 'none').join(' or ')}`,
      );
    }
  };
  expect('model_type', ['qwen3']);
  expect('hidden_act', [undefined, 'silu']);
  expect('attention_bias', [undefined, false]);
  expect('use_sliding_window', [undefined, false]);
  expect('rope_scaling', [undefined, null]);
  const number = (field: keyof ModelConfig, otherwise?: unknown): number => (raw[field] ?? otherwise) as number;
  const config: ModelConfig = {
    architectures: (raw['architectures'] as string[] | undefined) ?? ['Qwen3ForCausalLM'],
    model_type: 'qwen3',
    vocab_size: number('vocab_size'),
    hidden_size: number('hidden_size'),
    intermediate_size: number('intermediate_size'),
    num_hidden_layers: number('num_hidden_layers'),
    num_attention_heads: number('num_attention_heads'),
    num_key_value_heads: number('num_key_value_heads'),
    head_dim: number('head_dim', number('hidden_size') / number('num_attention_heads')),
    max_position_embeddings: number('max_position_embeddings'),
    rms_norm_eps: number('rms_norm_eps'),
    // transformers 5 moved it into rope_parameters.
    rope_theta: number('rope_theta', (raw['rope_parameters'] as { rope_theta?: number } | undefined)?.rope_theta),
    tie_word_embeddings: raw['tie_word_embeddings'] as boolean,
    bos_token_id: number('bos_token_id'),
    eos_token_id: number('eos_token_id'),
    torch_dtype: 'float32',
  };
  checkConfig(config, path);
  return config;
}

/** All tensors of `model.safetensors`, or of the shards that `model.safetensors.index.json` lists. */
function readWeights(directory: string): { tensors: Map<string, TensorEntry>; source: string } {
  const index = join(directory, 'model.safetensors.index.json');
  const single = join(directory, 'model.safetensors');
  if (existsSync(single) || !existsSync(index)) return { tensors: readSafetensors(single), source: single };
  const { weight_map: shards } = JSON.parse(readFileSync(index, 'utf8')) as { weight_map: Record<string, string> };
  const files = [...new Set(Object.values(shards))].sort();
  return { tensors: new Map(files.flatMap((file) => [...readSafetensors(join(directory, file))])), source: index };
}

/** [out,in] values into columns [column, column+out) of a matrix with `width` columns. */
function transposeInto(from: Float32Array, [out, inner]: [number, number], into: Float32Array, width: number, column: number): void {
  for (let o = 0; o < out; o++) for (let i = 0; i < inner; i++) into[i * width + column + o] = from[o * inner + i] as number;
}

function transposeFrom(from: Float32Array, width: number, column: number, [out, inner]: [number, number]): Float32Array {
  const data = new Float32Array(out * inner);
  for (let o = 0; o < out; o++) for (let i = 0; i < inner; i++) data[o * inner + i] = from[i * width + column + o] as number;
  return data;
}
