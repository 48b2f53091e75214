/** Memory that sampling from a policy takes, told from its configuration before anything is loaded. */
import { memoryLimit } from './memory.ts';
import { countParameters } from './parameter-shapes.ts';
import type { ModelConfig } from './types.ts';

const FLOAT_BYTES = 4;

/** Bytes of float32 weights and of the key-value cache of `slots` slots, full to the last position. */
export function samplerBytes(config: ModelConfig, slots: number): number {
  const { num_hidden_layers, num_key_value_heads, head_dim, max_position_embeddings } = config;
  const cache = slots * max_position_embeddings * num_hidden_layers * 2 * num_key_value_heads * head_dim;
  return FLOAT_BYTES * (countParameters(config, 'actor') + cache);
}

/** What samplers may take together where nobody says: half of the memory of the GPU, or of the machine or its container. */
export function defaultSamplerMemory(): number {
  return memoryLimit() / 2;
}
