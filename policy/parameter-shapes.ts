/**
 * Parameters by name: `embed` [V,D]; per layer i `${i}.attnNorm` [D], `${i}.qkv` [D,(H+2K)·Dh] (query heads, then key heads, then value
 * heads), `${i}.o` [H·Dh,D], `${i}.mlpNorm` [D], `${i}.gateUp` [D,2F] (gate, then up), `${i}.down` [F,D]; `norm` [D].
 * Only where the configuration asks for them (`attentionParts`): `${i}.qNorm` [Dh] and `${i}.kNorm` [Dh], `${i}.qkvBias` [(H+2K)·Dh],
 * `${i}.oBias` [D]. A policy whose embeddings are not tied has `head` [V,D], a critic has `valueHead` [D,1].
 * Without TensorFlow, so that memory can be told before anything is loaded.
 */
import { attentionParts } from './model-config.ts';
import type { ModelConfig, ModelRole } from './types.ts';

/** Every parameter's name and shape, in a fixed order. */
export function parameterShapes(config: ModelConfig, role: ModelRole): Map<string, number[]> {
  const { vocab_size: V, hidden_size: D, intermediate_size: F, head_dim: Dh } = config;
  const { num_attention_heads: H, num_key_value_heads: K } = config;
  const { qkNorm, qkvBias, outputBias } = attentionParts(config);
  const shapes = new Map<string, number[]>([['embed', [V, D]]]);
  for (let i = 0; i < config.num_hidden_layers; i++) {
    shapes.set(`${i}.attnNorm`, [D]);
    shapes.set(`${i}.qkv`, [D, (H + 2 * K) * Dh]);
    if (qkvBias) shapes.set(`${i}.qkvBias`, [(H + 2 * K) * Dh]);
    if (qkNorm) {
      shapes.set(`${i}.qNorm`, [Dh]);
      shapes.set(`${i}.kNorm`, [Dh]);
    }
    shapes.set(`${i}.o`, [H * Dh, D]);
    if (outputBias) shapes.set(`${i}.oBias`, [D]);
    shapes.set(`${i}.mlpNorm`, [D]);
    shapes.set(`${i}.gateUp`, [D, 2 * F]);
    shapes.set(`${i}.down`, [F, D]);
  }
  shapes.set('norm', [D]);
  if (role === 'critic') shapes.set('valueHead', [D, 1]);
  else if (!config.tie_word_embeddings) shapes.set('head', [V, D]);
  return shapes;
}

export function countParameters(config: ModelConfig, role: ModelRole): number {
  return [...parameterShapes(config, role).values()].reduce((sum, shape) => sum + shape.reduce((a, b) => a * b, 1), 0);
}
