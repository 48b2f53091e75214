/**
 * What a model is: its configuration and its parameters. Policy and critic are the same decoder-only transformer in the manner of Llama
 * and Qwen (RMSNorm before each block, rotary positions, grouped-query attention, SwiGLU).
 * parameter-shapes.ts lists the parameters; policy/model.ts computes with them.
 */
import { deriveSeed, Random } from '../method/seeds.ts';
import { Variable } from './engine/variable.ts';
import { checkConfig } from './model-config.ts';
import { parameterShapes } from './parameter-shapes.ts';
import type { ModelConfig, ModelRole } from './types.ts';

export interface Model {
  readonly config: ModelConfig;
  readonly role: ModelRole;
  /** In the order of `parameterShapes`. */
  readonly params: Map<string, Variable>;
}

/** Standard deviation of fresh weights; Hugging Face's `initializer_range`. */
const INITIAL_DEVIATION = 0.02;

/** A model with fresh weights, the same for the same seed: normal weights, norms at 1, biases and a critic's value head at 0. */
export function createModel(config: ModelConfig, role: ModelRole, seed: number): Model {
  checkConfig(config, 'model configuration');
  const params = new Map<string, Variable>();
  for (const [name, shape] of parameterShapes(config, role)) {
    params.set(name, new Variable(shape, initialValues(name, shape, config, seed)));
  }
  return { config, role, params };
}

/**
 * A model that takes over values (row-major, in our layout), asked for parameter by parameter so that a large model is not held twice.
 * What `values` throws is thrown on, and frees what was made before.
 */
export function modelFromValues(
  config: ModelConfig,
  role: ModelRole,
  values: (name: string, shape: readonly number[]) => Float32Array,
): Model {
  checkConfig(config, 'model configuration');
  const model: Model = { config, role, params: new Map() };
  try {
    for (const [name, shape] of parameterShapes(config, role)) model.params.set(name, new Variable(shape, values(name, shape)));
  } catch (error) {
    disposeModel(model);
    throw error;
  }
  return model;
}

/** Frees the parameters. Calling it twice is harmless. */
export function disposeModel(model: Model): void {
  for (const parameter of model.params.values()) parameter.dispose();
  model.params.clear();
}

export function parameterCount(model: Model): number {
  return [...model.params.values()].reduce((sum, p) => sum + p.size, 0);
}

function initialValues(name: string, shape: readonly number[], config: ModelConfig, seed: number): Float32Array {
  const values = new Float32Array(shape.reduce((a, b) => a * b, 1));
  if (name === 'valueHead' || name.endsWith('Bias')) return values;
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
