/**
 * The first work of a trainer on a GPU: a training step and a decode of a tiny model, before anybody waits for an answer. CUDA, cuBLAS and XLA
 * load with their first use, which takes seconds; an installation that cannot compute fails here, with its reason, and not within a run.
 */
import { InfrastructureError } from '../../environment/errors.ts';
import { fallbacks } from '../engine/mode.ts';
import { adviceFor } from '../gpu.ts';
import { Learner } from '../learner.ts';
import { createModel, disposeModel } from '../model-parameters.ts';
import { SamplerNetwork } from '../sampler-network.ts';
import { device } from '../tensorflow.ts';
import type { ModelConfig } from '../types.ts';

const CONFIG: ModelConfig = {
  architectures: ['Qwen3ForCausalLM'],
  model_type: 'qwen3',
  vocab_size: 64,
  hidden_size: 32,
  intermediate_size: 64,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 16,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-6,
  rope_theta: 10_000,
  tie_word_embeddings: true,
  bos_token_id: 1,
  eos_token_id: 2,
  torch_dtype: 'float32',
};
const TOKENS = 32;

/** @throws InfrastructureError with the reason, and what to do where we know it, when a step fails, falls back to eager execution or gives no finite numbers */
export function warmUp(): void {
  const before = fallbacks().length;
  try {
    train();
    decode();
  } catch (cause) {
    throw broken((cause as Error).message, cause);
  }
  const [fallback] = fallbacks().slice(before);
  if (fallback !== undefined) throw broken(`a step could not run as a function: ${fallback}`);
}

function broken(reason: string, cause?: unknown): InfrastructureError {
  const { kind, name } = device();
  const advice = adviceFor(reason);
  return new InfrastructureError(`${kind} ${name}: the first steps failed: ${reason}${advice === undefined ? '' : `; ${advice}`}`, {
    cause,
  });
}

function train(): void {
  const learner = new Learner(createModel(CONFIG, 'actor', 1));
  try {
    const tokens = Array.from({ length: TOKENS }, (_, i) => 3 + (i % 60));
    const batch = { rows: 1, length: TOKENS, tokens, mask: tokens.map((_, i) => (i === 0 ? 0 : 1)) };
    const { loss } = learner.forwardBackward({ kind: 'sft', denominator: TOKENS - 1 }, batch);
    if (!Number.isFinite(loss)) throw new Error(`the loss is ${loss}, expected a finite number`);
    learner.optimStep({ learningRate: 1e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0, maxGradientNorm: 1 });
  } finally {
    learner.dispose();
  }
}

function decode(): void {
  const model = createModel(CONFIG, 'actor', 1);
  const network = new SamplerNetwork(model, 1);
  try {
    const [output] = network.decode([{ slot: 0, position: 0, token: 1, temperature: 1 }]);
    if (!Number.isFinite(output?.logSum)) throw new Error(`ln Σ exp of the logits is ${output?.logSum}, expected a finite number`);
  } finally {
    network.dispose();
    disposeModel(model);
  }
}
