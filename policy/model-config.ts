/**
 * `config.json` of Hugging Face transformers: which families of models we run, what differs among them, and what of their options we do
 * not know. An option that would change the computation and that we cannot follow is refused by name; all other fields are kept.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../environment/errors.ts';
import type { ModelConfig, RopeScaling } from './types.ts';

interface Family {
  readonly architecture: string;
  /** Queries and keys are normalised head by head. */
  readonly qkNorm: boolean;
  /** Biases on query, key and value whatever `attention_bias` says. */
  readonly qkvBias: boolean;
  /** `attention_bias` is an option of the family. */
  readonly biasOption: boolean;
  /** transformers' default; undefined: hidden_size / num_attention_heads. */
  readonly headDim: number | undefined;
}

/** By `model_type`. Defaults are those of transformers 5. */
const FAMILIES: Readonly<Record<string, Family>> = {
  qwen3: { architecture: 'Qwen3ForCausalLM', qkNorm: true, qkvBias: false, biasOption: true, headDim: 128 },
  llama: { architecture: 'LlamaForCausalLM', qkNorm: false, qkvBias: false, biasOption: true, headDim: undefined },
  qwen2: { architecture: 'Qwen2ForCausalLM', qkNorm: false, qkvBias: true, biasOption: false, headDim: undefined },
  mistral: { architecture: 'MistralForCausalLM', qkNorm: false, qkvBias: false, biasOption: false, headDim: undefined },
};

/** Which of the optional parts the attention of this model has. */
export interface AttentionParts {
  readonly qkNorm: boolean;
  readonly qkvBias: boolean;
  readonly outputBias: boolean;
}

export function attentionParts(config: ModelConfig): AttentionParts {
  const family = familyOf(config);
  const bias = config.attention_bias ?? false;
  return { qkNorm: family.qkNorm, qkvBias: family.qkvBias || bias, outputBias: bias };
}

/** The tokens that end a text, at least one. */
export function stopTokens(config: ModelConfig): readonly [number, ...number[]] {
  return (typeof config.eos_token_id === 'number' ? [config.eos_token_id] : config.eos_token_id) as readonly [number, ...number[]];
}

/** Identifies what a configuration computes, apart from names and fields that are only kept. */
export function configKey(config: ModelConfig): string {
  const { architectures: _names, other: _kept, ...computed } = config;
  return JSON.stringify(computed);
}

/** `config.json` of a policy or critic directory, checked. Throws UserError with the path, the field, its value and what was expected. */
export function readConfig(directory: string): ModelConfig {
  const path = join(directory, 'config.json');
  let raw: unknown;
  try {
    raw = JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    throw new UserError(`${path}: ${(error as Error).message}, expected the configuration of a Hugging Face model`);
  }
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw)) throw new UserError(`${path}: expected a JSON object`);
  return parseConfig(raw as Record<string, unknown>, path);
}

/** The text of `config.json` for weights stored as `torchDtype`, in the field names of transformers 4, which 5 reads as well. */
export function configText(config: ModelConfig, torchDtype: string): string {
  const { other, ...known } = config;
  return `${JSON.stringify({ ...known, torch_dtype: torchDtype, ...other }, null, 2)}\n`;
}

/** Fields that `parseConfig` turns into `ModelConfig`; all others go to `other`. */
const INTERPRETED = new Set([
  ...['architectures', 'model_type', 'vocab_size', 'hidden_size', 'intermediate_size', 'num_hidden_layers', 'num_attention_heads'],
  ...['num_key_value_heads', 'head_dim', 'max_position_embeddings', 'rms_norm_eps', 'rope_theta', 'rope_scaling', 'rope_parameters'],
  ...['attention_bias', 'tie_word_embeddings', 'bos_token_id', 'eos_token_id', 'torch_dtype', 'dtype'],
]);

function parseConfig(raw: Readonly<Record<string, unknown>>, path: string): ModelConfig {
  const expect = (field: string, allowed: readonly unknown[]): void => {
    if (!allowed.includes(raw[field] ?? undefined)) throw wrong(path, field, raw[field], allowed);
  };
  expect('model_type', Object.keys(FAMILIES));
  const family = FAMILIES[raw['model_type'] as string] as Family;
  expect('hidden_act', [undefined, 'silu']);
  expect('mlp_bias', [undefined, false]);
  expect('attention_bias', family.biasOption ? [undefined, false, true] : [undefined, false]);
  expect('quantization_config', [undefined]);
  expect('partial_rotary_factor', [undefined, 1]);
  expect('original_max_position_embeddings', [undefined]);
  expect('tie_word_embeddings', [undefined, false, true]);
  checkFullAttention(raw, path);
  /** A number of the file; wrong ones are found by `checkConfig`. */
  const number = (field: keyof ModelConfig, otherwise?: number): number => (raw[field] ?? otherwise) as number;
  const heads = number('num_attention_heads');
  const { theta, scaling } = parseRope(raw, path);
  const config: ModelConfig = {
    architectures: (raw['architectures'] as string[] | undefined) ?? [family.architecture],
    model_type: raw['model_type'] as string,
    vocab_size: number('vocab_size'),
    hidden_size: number('hidden_size'),
    intermediate_size: number('intermediate_size'),
    num_hidden_layers: number('num_hidden_layers'),
    num_attention_heads: heads,
    num_key_value_heads: number('num_key_value_heads', heads),
    head_dim: number('head_dim', family.headDim ?? number('hidden_size') / heads),
    max_position_embeddings: number('max_position_embeddings'),
    rms_norm_eps: number('rms_norm_eps', 1e-6),
    rope_theta: theta,
    ...(scaling && { rope_scaling: scaling }),
    ...(typeof raw['attention_bias'] === 'boolean' && { attention_bias: raw['attention_bias'] }),
    tie_word_embeddings: (raw['tie_word_embeddings'] as boolean | undefined) ?? false,
    ...(raw['bos_token_id'] === undefined || raw['bos_token_id'] === null ? {} : { bos_token_id: number('bos_token_id') }),
    eos_token_id: raw['eos_token_id'] as number | number[],
    torch_dtype: 'float32',
  };
  const other = Object.entries(raw).filter(([field]) => !INTERPRETED.has(field));
  const whole: ModelConfig = other.length === 0 ? config : { ...config, other: Object.fromEntries(other) };
  checkConfig(whole, path);
  return whole;
}

/** Sliding windows are refused wherever they would hide a token from another one. */
function checkFullAttention(raw: Readonly<Record<string, unknown>>, path: string): void {
  const { model_type: type, use_sliding_window: used, sliding_window: window, layer_types: layers } = raw;
  if (Array.isArray(layers) && layers.some((layer) => layer !== 'full_attention'))
    throw wrong(path, 'layer_types', layers, ['full_attention in every layer']);
  if (type !== 'mistral') {
    if (used ?? false) throw wrong(path, 'use_sliding_window', used, [undefined, false]);
    return;
  }
  // transformers takes 4096 for a missing sliding_window here, and none for null.
  const limit = window === undefined ? 4096 : window;
  const positions = raw['max_position_embeddings'];
  if (limit !== null && !(typeof limit === 'number' && typeof positions === 'number' && limit >= positions))
    throw wrong(path, 'sliding_window', window, [null, `at least max_position_embeddings (${JSON.stringify(positions)})`]);
}

/** Rotary positions of transformers 4 (`rope_theta`, `rope_scaling`) or 5 (`rope_parameters`). */
function parseRope(raw: Readonly<Record<string, unknown>>, path: string): { theta: number; scaling: RopeScaling | undefined } {
  const field = raw['rope_scaling'] == null ? 'rope_parameters' : 'rope_scaling';
  const given = (raw[field] ?? {}) as Record<string, unknown>;
  if (typeof given !== 'object' || Array.isArray(given)) throw wrong(path, field, given, ['an object']);
  const fields = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null));
  const { type, rope_type = type ?? 'default', rope_theta = raw['rope_theta'] ?? 10_000, partial_rotary_factor = 1, ...numbers } = fields;
  const theta = rope_theta as number;
  if (partial_rotary_factor !== 1) throw wrong(path, `${field}.partial_rotary_factor`, partial_rotary_factor, [undefined, 1]);
  if (rope_type === 'default') return { theta, scaling: undefined };
  const required = SCALING_NUMBERS[rope_type as RopeScaling['rope_type']] as readonly string[] | undefined;
  if (required === undefined) throw wrong(path, `${field}.rope_type`, rope_type, ['default', ...Object.keys(SCALING_NUMBERS)]);
  for (const name of required) {
    const value = numbers[name];
    if (typeof value !== 'number' || !(value > 0))
      throw wrong(path, `${field}.${name}`, value, [`a positive number (${String(rope_type)})`]);
  }
  return { theta, scaling: { rope_type, ...numbers } as unknown as RopeScaling };
}

/** What each variant cannot do without. */
const SCALING_NUMBERS: Readonly<Record<RopeScaling['rope_type'], readonly string[]>> = {
  linear: ['factor'],
  dynamic: ['factor'],
  llama3: ['factor', 'low_freq_factor', 'high_freq_factor'],
  yarn: ['factor'],
};

function wrong(path: string, field: string, value: unknown, allowed: readonly unknown[]): UserError {
  const choices = allowed.map((a) => (typeof a === 'string' && a.includes(' ') ? a : (JSON.stringify(a) ?? 'none')));
  return new UserError(`${path}: ${field} is ${JSON.stringify(value) ?? 'missing'}, expected ${choices.join(' or ')}`);
}

function familyOf(config: ModelConfig): Family {
  const family = FAMILIES[config.model_type];
  if (family === undefined) throw wrong('model configuration', 'model_type', config.model_type, Object.keys(FAMILIES));
  return family;
}

/** Throws UserError naming `place`, the field and what was expected, unless this code can run the configuration. */
export function checkConfig(config: ModelConfig, place: string): void {
  const expect = (holds: boolean, field: keyof ModelConfig, expected: string): void => {
    if (!holds) throw wrong(place, field, config[field], [expected]);
  };
  for (const field of [
    'vocab_size',
    'hidden_size',
    'intermediate_size',
    'num_hidden_layers',
    'num_attention_heads',
    'num_key_value_heads',
    'head_dim',
    'max_position_embeddings',
  ] as const) {
    expect(Number.isInteger(config[field]) && config[field] > 0, field, 'a positive whole number');
  }
  expect(config.head_dim % 2 === 0, 'head_dim', 'an even number (rotary positions turn pairs)');
  expect(config.num_attention_heads % config.num_key_value_heads === 0, 'num_attention_heads', 'a multiple of num_key_value_heads');
  expect(config.rms_norm_eps > 0, 'rms_norm_eps', 'a positive number');
  expect(config.rope_theta > 0, 'rope_theta', 'a positive number');
  const isToken = (id: unknown): boolean => Number.isInteger(id) && (id as number) >= 0 && (id as number) < config.vocab_size;
  const stops: readonly unknown[] = Array.isArray(config.eos_token_id) ? (config.eos_token_id as unknown[]) : [config.eos_token_id];
  expect(stops.length > 0 && stops.every(isToken), 'eos_token_id', 'one or several token ids of the vocabulary');
  expect(config.bos_token_id === undefined || isToken(config.bos_token_id), 'bos_token_id', 'a token id of the vocabulary');
}
