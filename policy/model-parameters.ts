/**
 * What a model is: its configuration and its parameters. Policy and critic are the same decoder-only transformer in the Qwen3 manner
 * (RMSNorm before each block, rotary positions, grouped-query attention with normalised queries and keys, SwiGLU, tied embeddings,
 * no biases).
 *
 * Parameters by name: `embed` [V,D]; per layer i `${i}.attnNorm` [D], `${i}.qkv` [D,(H+2K)·Dh] (query heads, then key heads, then value
 * heads), `${i}.qNorm` [Dh], `${i}.kNorm` [Dh], `${i}.o` [H·Dh,D], `${i}.mlpNorm` [D], `${i}.gateUp` [D,2F] (gate, then up), `${i}.down` [F,D];
 * `norm` [D]; a critic also has `valueHead` [D,1]. policy/model.ts computes with them.
 */
import { UserError } from '../environment/errors.ts';
import { deriveSeed, Random } from '../method/seeds.ts';
import { tf } from './tensorflow.ts';
import type { ModelConfig, ModelRole } from './types.ts';

export interface Model {
  readonly config: ModelConfig;
  readonly role: ModelRole;
  /** In the order of `parameterShapes`. */
  readonly params: Map<string, tf.Variable>;
}

/** Standard deviation of fresh weights; Hugging Face's `initializer_range`. */
const INITIAL_DEVIATION = 0.02;

/** Every parameter's name and shape, in a fixed order. */
export function parameterShapes(config: ModelConfig, role: ModelRole): Map<string, number[]> {
  const { vocab_size: V, hidden_size: D, intermediate_size: F, head_dim: Dh } = config;
  const { num_attention_heads: H, num_key_value_heads: K } = config;
  const shapes = new Map<string, number[]>([['embed', [V, D]]]);
  for (let i = 0; i < config.num_hidden_layers; i++) {
    shapes.set(`${i}.attnNorm`, [D]);
    shapes.set(`${i}.qkv`, [D, (H + 2 * K) * Dh]);
    shapes.set(`${i}.qNorm`, [Dh]);
    shapes.set(`${i}.kNorm`, [Dh]);
    shapes.set(`${i}.o`, [H * Dh, D]);
    shapes.set(`${i}.mlpNorm`, [D]);
    shapes.set(`${i}.gateUp`, [D, 2 * F]);
    shapes.set(`${i}.down`, [F, D]);
  }
  shapes.set('norm', [D]);
  if (role === 'critic') shapes.set('valueHead', [D, 1]);
  return shapes;
}

/** A model with fresh weights, the same for the same seed: normal weights, norms at 1, a critic's value head at 0. */
export function createModel(config: ModelConfig, role: ModelRole, seed: number): Model {
  checkConfig(config, 'model configuration');
  const params = new Map<string, tf.Variable>();
  for (const [name, shape] of parameterShapes(config, role)) {
    params.set(name, variable(initialValues(name, shape, config, seed), shape));
  }
  return { config, role, params };
}

/** A model that takes over the given values (row-major, in our layout). */
export function modelFromValues(config: ModelConfig, role: ModelRole, values: ReadonlyMap<string, Float32Array>): Model {
  checkConfig(config, 'model configuration');
  const params = new Map<string, tf.Variable>();
  for (const [name, shape] of parameterShapes(config, role)) {
    const data = values.get(name);
    if (data === undefined) throw new Error(`parameter ${name}: no values given`);
    params.set(name, variable(data, shape));
  }
  return { config, role, params };
}

/** Frees the parameters. Calling it twice is harmless. */
export function disposeModel(model: Model): void {
  for (const parameter of model.params.values()) parameter.dispose();
  model.params.clear();
}

export function parameter(model: Model, name: string): tf.Variable {
  const found = model.params.get(name);
  if (found === undefined) throw new Error(`parameter ${name}: not in this ${model.role} (disposed, or another configuration)`);
  return found;
}

export function parameterCount(model: Model): number {
  return [...model.params.values()].reduce((sum, p) => sum + p.size, 0);
}

/** Throws UserError naming `place`, the field and what was expected, unless this code can run the configuration. */
export function checkConfig(config: ModelConfig, place: string): void {
  const expect = (holds: boolean, field: keyof ModelConfig, expected: string): void => {
    if (!holds) throw new UserError(`${place}: ${field} is ${JSON.stringify(config[field])}, expected ${expected}`);
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
  expect(config.tie_word_embeddings === true, 'tie_word_embeddings', 'true');
}

function initialValues(name: string, shape: readonly number[], config: ModelConfig, seed: number): Float32Array {
  const values = new Float32Array(shape.reduce((a, b) => a * b, 1));
  if (name === 'valueHead') return values;
  if (/norm$/i.test(name)) return values.fill(1);
  // Matrices that write into the residual stream are scaled down so that its variance does not grow with depth (GPT-2).
  const residual = name.endsWith('.o') || name.endsWith('.down');
  const deviation = residual ? INITIAL_DEVIATION / Math.sqrt(2 * config.num_hidden_layers) : INITIAL_DEVIATION;
  const random = new Random(deriveSeed('model', seed, name));
  for (let i = 0; i < values.length; i += 2) {
    const radius = deviation * Math.sqrt(-2 * Math.log(1 - random.next()));
    const angle = 2 * Math.PI * random.next();
    values[i] = radius * Math.cos(angle);
    if (i + 1 < values.length) values[i + 1] = radius * Math.sin(angle);
  }
  return values;
}

function variable(values: Float32Array, shape: number[]): tf.Variable {
  return tf.tidy(() => tf.variable(tf.tensor(values, shape, 'float32'), true));
}
