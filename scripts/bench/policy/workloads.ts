/**
 * What the benchmark of the policy engine computes: the models, one training step and one batch of sampled turns, with the same weights,
 * tokens and settings for every engine. They go to the engines' processes as a folder in Hugging Face layout and one JSON file.
 */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Random } from '../../../method/seeds.ts';
import { readTokenizer, saveModel } from '../../../policy/checkpoint.ts';
import { createModel, disposeModel } from '../../../policy/model-parameters.ts';
import type { AdamSettings, ModelConfig } from '../../../policy/types.ts';
import { repoRoot } from '../../../records/paths.ts';
import { smolLm2Directory } from '../../../tests/smollm2.ts';

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

const VOCABULARY = 512;
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

/** Models that the benchmark makes itself. */
export const MADE: Readonly<Record<string, ModelConfig>> = { d128: qwen3(128, 4, 4), d256: qwen3(256, 6, 8) };

export const SIZES = ['d128', 'd256', 'smollm2'] as const;
export type Size = (typeof SIZES)[number];

/** Sequences of a training step, and requests at once; optimizer steps of one measured round. */
const SHAPES: Readonly<Record<Size, Readonly<Record<Workload, Pick<Spec, 'rows' | 'length' | 'steps'>>>>> = {
  d128: { training: { rows: 16, length: 256, steps: 5 }, sampling: { rows: 32, length: 256, steps: 0 } },
  d256: { training: { rows: 16, length: 256, steps: 3 }, sampling: { rows: 32, length: 256, steps: 0 } },
  smollm2: { training: { rows: 1, length: 256, steps: 2 }, sampling: { rows: 8, length: 256, steps: 0 } },
};

/** Folder of the size's weights, made in `folder` where they are ours; or why it cannot be had. */
export async function modelDirectory(size: Size, folder: string): Promise<{ readonly directory: string } | { readonly skip: string }> {
  const config = MADE[size];
  if (config === undefined) return smolLm2Directory();
  const directory = path.join(folder, size);
  const model = createModel(config, 'actor', SEED);
  // Fresh weights give nearly uniform distributions, in which an error would hardly show; larger ones and uneven norms do not.
  for (const [name, parameter] of model.params) {
    const random = new Random(parameter.size);
    const values = Float32Array.from(parameter.read(), (value) => (/norm$/i.test(name) ? 0.5 + random.next() : 3 * value));
    parameter.assign(values);
  }
  saveModel(model, directory, { tokenizer: readTokenizer(path.join(repoRoot, 'models/tiny-base')) });
  disposeModel(model);
  return { directory };
}

/** Writes the engines' input beside the model's weights. */
export async function writeSpec(
  size: Size,
  workload: Workload,
  {
    model,
    vocabulary,
    threads,
    folder,
  }: { readonly model: string; readonly vocabulary: number; readonly threads: number; readonly folder: string },
): Promise<{ readonly spec: Spec; readonly file: string }> {
  const shape = SHAPES[size][workload];
  const random = new Random(SEED);
  const count = shape.rows * (workload === 'training' ? shape.length : PROMPT_TOKENS);
  // The first tokens of a vocabulary are the special ones.
  const tokens = Array.from({ length: count }, () => 3 + random.int(vocabulary - 3));
  const spec: Spec = { workload, model, threads, ...shape, tokens, adam: ADAM, checkedSteps: 3, seed: SEED };
  const file = path.join(folder, `${size}-${workload}.json`);
  await writeFile(file, JSON.stringify(spec));
  return { spec, file };
}
