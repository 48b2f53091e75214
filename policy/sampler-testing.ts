/** What the sampler's tests share: a small policy with uneven distributions, samplers of it, prompts and requests. */
import { after } from 'node:test';
import type { SampleRequest } from '../environment/types.ts';
import { Random } from '../method/seeds.ts';
import { createModel } from './model-parameters.ts';
import { PolicySampler } from './sampler.ts';
import type { PolicySamplerOptions } from './sampler.ts';
import type { ModelConfig } from './types.ts';

export const endOfTurn = 2;
export const config: ModelConfig = {
  architectures: ['Qwen3ForCausalLM'],
  model_type: 'qwen3',
  vocab_size: 64,
  hidden_size: 32,
  intermediate_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 8,
  max_position_embeddings: 128,
  rms_norm_eps: 1e-6,
  rope_theta: 10000,
  tie_word_embeddings: true,
  bos_token_id: 1,
  eos_token_id: endOfTurn,
  torch_dtype: 'float32',
};
export const model = createModel(config, 'actor', 7);
// Fresh weights make nearly uniform distributions; larger ones and uneven norms make a test that can fail.
for (const [name, parameter] of model.params) {
  const random = new Random(name.length * 31 + parameter.size);
  const isNorm = /norm$/i.test(name);
  parameter.assign(Float32Array.from(parameter.read(), (value) => (isNorm ? 0.5 + random.next() : value * 8)));
}

const open: PolicySampler[] = [];
const shared = new Map<number, PolicySampler>();
after(() => {
  for (const one of open) one.close();
});
export function sampler(slots: number, options: PolicySamplerOptions = {}, of = config): PolicySampler {
  const created = new PolicySampler({ config: of, params: model.params }, { ...options, slots });
  open.push(created);
  return created;
}
/** One for all tests of a file, because compiling takes longer than most of them. Idle sessions give way at once. */
export function sharedSampler(slots: number): PolicySampler {
  const one = shared.get(slots) ?? sampler(slots, { idleLimitMs: -1 });
  shared.set(slots, one);
  return one;
}

export function prompt(seed: number, length: number): number[] {
  const random = new Random(seed);
  return Array.from({ length }, () => 3 + random.int(60));
}
export function request(sessionId: string, tokens: number[], seed: number, maxTokens = 20): SampleRequest {
  return { sessionId, policy: 'test', tokens, seed, maxTokens, temperature: 1 };
}
