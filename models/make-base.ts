/**
 * Makes `models/tiny-base`, the policy that `npm start` improves: trains the tokenizer on the text of noisy demonstrations, then a small
 * Qwen3-style transformer from scratch on those demonstrations (cross-entropy on agent tokens). Bit for bit repeatable on CPU.
 *
 *   npm run make-base                    writes models/tiny-base
 *   npm run make-base -- --out DIR       writes elsewhere, e.g. to compare with the committed files
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Random } from '../method/seeds.ts';
import { trainTokenizer } from '../policy/bpe.ts';
import { readTokenizer, saveModel } from '../policy/checkpoint.ts';
import { loadCodec } from '../policy/codec.ts';
import { Learner } from '../policy/learner.ts';
import { createModel, parameterCount } from '../policy/model-parameters.ts';
import { SPECIAL_TOKENS } from '../policy/tokenizer.ts';
import type { ModelConfig, SequenceBatch } from '../policy/types.ts';
import type { EpisodeCodec } from '../environment/types.ts';
import { buildCorpus, type Demonstration } from './corpus.ts';

const SEED = 20261129;
const VOCABULARY = 512;
const TOKENIZER_SAMPLE = 3000;
/** Demonstrations; each is seen EPOCHS times. */
const DEMONSTRATIONS = 30_000;
const EPOCHS = 6;
const TOKENS_PER_STEP = 6144;
const PEAK_LEARNING_RATE = 3e-3;
const WARM_UP_STEPS = 100;
/** As in a quick run's rollouts (workflows/profiles.ts), so that the base has seen observations of that length. */
const OBSERVATION_TOKENS = 96;

const CONFIG: Omit<ModelConfig, 'vocab_size' | 'bos_token_id' | 'eos_token_id'> = {
  architectures: ['Qwen3ForCausalLM'],
  model_type: 'qwen3',
  hidden_size: 96,
  intermediate_size: 256,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 24,
  max_position_embeddings: 384,
  rms_norm_eps: 1e-6,
  rope_theta: 10_000,
  tie_word_embeddings: true,
  torch_dtype: 'float32',
};

interface Sequence {
  readonly tokens: number[];
  /** 1 at agent tokens. */
  readonly mask: number[];
}

const say = (text: string): void => void process.stderr.write(`${text}\n`);

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { out: { type: 'string' }, demonstrations: { type: 'string' }, epochs: { type: 'string' } } });
  const out = values.out ?? fileURLToPath(new URL('./tiny-base', import.meta.url));
  const count = Number(values.demonstrations ?? DEMONSTRATIONS);
  const epochs = Number(values.epochs ?? EPOCHS);

  const started = Date.now();
  const corpus = await buildCorpus(SEED, count, (done) => say(`corpus: ${done} of ${count} demonstrations executed, ${elapsed(started)}`));
  const staging = mkdtempSync(join(tmpdir(), 'terminal-rsi-tokenizer-'));
  const tokenizer = trainTokenizer(corpus.slice(0, TOKENIZER_SAMPLE).flatMap(texts), VOCABULARY, SPECIAL_TOKENS);
  writeFileSync(join(staging, 'tokenizer.json'), `${JSON.stringify(tokenizer, null, 1)}\n`);
  const codec = loadCodec(staging);
  const sequences = corpus
    .map((demonstration) => encode(codec, demonstration))
    .filter(({ tokens }) => tokens.length <= CONFIG.max_position_embeddings);
  const lengths = sequences.map(({ tokens }) => tokens.length);
  say(
    `${sequences.length} of ${corpus.length} sequences fit, mean ${(lengths.reduce((a, b) => a + b, 0) / lengths.length).toFixed(0)} tokens, longest ${Math.max(...lengths)}, ${elapsed(started)}`,
  );

  const model = createModel(
    { ...CONFIG, vocab_size: VOCABULARY, bos_token_id: SPECIAL_TOKENS.indexOf('<|bos|>'), eos_token_id: codec.endOfTurn },
    'actor',
    SEED,
  );
  say(`${parameterCount(model)} parameters`);
  const learner = new Learner(model);
  const random = new Random(SEED);
  const plan = Array.from({ length: epochs }, () => batches(sequences, random)).flat();
  let running = 0;
  for (const [i, batch] of plan.entries()) {
    const denominator = batch.mask.reduce((a, b) => a + b, 0);
    const sums = learner.forwardBackward({ kind: 'sft', denominator }, batch);
    learner.optimStep({
      learningRate: learningRate(i, plan.length),
      beta1: 0.9,
      beta2: 0.98,
      epsilon: 1e-8,
      weightDecay: 0.01,
      maxGradientNorm: 1,
    });
    running = i === 0 ? sums.loss : 0.98 * running + 0.02 * sums.loss;
    if ((i + 1) % 100 === 0) say(`step ${i + 1} of ${plan.length}: loss ${running.toFixed(4)}, ${elapsed(started)}`);
  }
  saveModel(model, out, { tokenizer: readTokenizer(staging) });
  rmSync(staging, { recursive: true });
  say(`wrote ${out}, ${elapsed(started)}`);
}

function elapsed(since: number): string {
  return `${((Date.now() - since) / 1000).toFixed(0)} s`;
}

/** Linear warm-up, then cosine decay to a tenth. */
function learningRate(step: number, steps: number): number {
  if (step < WARM_UP_STEPS) return (PEAK_LEARNING_RATE * (step + 1)) / WARM_UP_STEPS;
  const progress = (step - WARM_UP_STEPS) / Math.max(1, steps - WARM_UP_STEPS);
  return PEAK_LEARNING_RATE * (0.1 + 0.45 * (1 + Math.cos(Math.PI * progress)));
}

function texts({ instruction, turns }: Demonstration): string[] {
  return [instruction, ...turns.flatMap(({ reply, observation }) => (observation === undefined ? [reply] : [reply, observation]))];
}

function encode(codec: EpisodeCodec, { harness, instruction, turns }: Demonstration): Sequence {
  const tokens = codec.prompt(harness, instruction);
  const mask = tokens.map(() => 0);
  const append = (more: readonly number[], agent: 0 | 1): void => {
    for (const token of more) {
      tokens.push(token);
      mask.push(agent);
    }
  };
  for (const { reply, observation } of turns) {
    append(codec.reply(harness, reply), 1);
    if (observation !== undefined) append(codec.observation(observation, OBSERVATION_TOKENS), 0);
  }
  return { tokens, mask };
}

/** One epoch in random order: groups of similar length, at most TOKENS_PER_STEP padded tokens each. */
function batches(sequences: readonly Sequence[], random: Random): SequenceBatch[] {
  const ordered = random.shuffle([...sequences]).sort((a, b) => Math.ceil(a.tokens.length / 16) - Math.ceil(b.tokens.length / 16));
  const groups: Sequence[][] = [];
  let group: Sequence[] = [];
  for (const sequence of ordered) {
    if (group.length > 0 && (group.length + 1) * sequence.tokens.length > TOKENS_PER_STEP) {
      groups.push(group);
      group = [];
    }
    group.push(sequence);
  }
  if (group.length > 0) groups.push(group);
  return random.shuffle(groups).map(pad);
}

function pad(group: readonly Sequence[]): SequenceBatch {
  const length = Math.max(...group.map(({ tokens }) => tokens.length));
  const padded = (values: readonly number[]): number[] => [...values, ...Array.from({ length: length - values.length }, () => 0)];
  return {
    rows: group.length,
    length,
    tokens: group.flatMap(({ tokens }) => padded(tokens)),
    mask: group.flatMap(({ mask }) => padded(mask)),
  };
}

await main();
