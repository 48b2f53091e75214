/**
 * What the benchmark of the policy engine computes: the models, one training step and one batch of sampled turns, with the same weights,
 * tokens and settings for every engine. They go to the engines' processes as a folder in Hugging Face layout and one JSON file.
 */
import { Random } from '../../../method/seeds.ts';
import type { AdamSettings, ModelConfig } from '../../../policy/types.ts';

export type Workload = 'training' | 'sampling';

/** The file that every engine's process is started with. */
export interface Spec {
  readonly workload: Workload;
  /** Folder of the model. */
  readonly model: string;
  readonly threads: number;
  readonly rows: number;
  /** training: tokens of a sequence. sampling: of prompt and sampled tokens together. */
  readonly length: number;
  /** Row-major: training [rows · length], sampling the prompts [rows · prompt]. */
  readonly tokens: readonly number[];
  readonly adam: AdamSettings;
  /** Optimizer steps whose loss and gradient norm are compared before anything is timed. They are the warm-up too. */
  readonly checkedSteps: number;
  /** Optimizer steps of one measured round. */
  readonly steps: number;
  readonly seed: number;
}

export const VOCABULARY = 512;
export const PROMPT_TOKENS = 32;
const SEED = 20;
const ADAM: AdamSettings = { learningRate: 3e-4, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0.01, maxGradientNorm: 1 };

/** A Qwen3 model with query and key heads alike, a three times as wide feed-forward part, and room for longer contexts than are sampled. */
function qwen3(hiddenSize: number, layers: number, heads: number): ModelConfig {
  return {
    architectures: ['Qwen3ForCausalLM'],
    model_type: 'qwen3',
    vocab_size: VOCABULARY,
    hidden_size: hiddenSize,
    intermediate_size: 3 * hiddenSize,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: heads,
    head_dim: hiddenSize / heads,
    max_position_embeddings: 512,
    rms_norm_eps: 1e-6,
    rope_theta: 10_000,
    tie_word_embeddings: true,
    bos_token_id: 1,
    eos_token_id: 2,
    torch_dtype: 'float32',
  };
}

export const CONFIGS: Readonly<Record<string, ModelConfig>> = { d128: qwen3(128, 4, 4), d256: qwen3(256, 6, 8) };

export interface Shape {
  readonly rows: number;
  readonly length: number;
}
/** Sequences of a training step, and requests at once. */
export const SHAPES: Readonly<Record<string, Readonly<Record<Workload, Shape>>>> = {
  d128: { training: { rows: 16, length: 256 }, sampling: { rows: 32, length: 256 } },
  d256: { training: { rows: 16, length: 256 }, sampling: { rows: 32, length: 256 } },
  smollm2: { training: { rows: 1, length: 256 }, sampling: { rows: 8, length: 256 } },
};

export interface SpecOptions {
  readonly size: string;
  readonly workload: Workload;
  readonly model: string;
  readonly vocabulary: number;
  readonly threads: number;
  readonly steps: number;
}

export function makeSpec({ size, workload, model, vocabulary, threads, steps }: SpecOptions): Spec {
  const { rows, length } = SHAPES[size]![workload];
  const random = new Random(SEED);
  const count = rows * (workload === 'training' ? length : PROMPT_TOKENS);
  // The first tokens of a vocabulary are the special ones.
  const tokens = Array.from({ length: count }, () => 3 + random.int(vocabulary - 3));
  return { workload, model, threads, rows, length, tokens, adam: ADAM, checkedSteps: 3, steps, seed: SEED };
}
