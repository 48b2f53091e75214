/**
 * One side of `npm run gpu-check`, in a process of its own: trains with every loss, samples, and writes what came out to the file that is its
 * argument. The device is the one that the environment leaves it.
 */
import { writeFileSync } from 'node:fs';
import { Random } from '../../method/seeds.ts';
import { binding } from '../../policy/engine/binding.ts';
import { fallbacks } from '../../policy/engine/mode.ts';
import { Learner } from '../../policy/learner.ts';
import { createModel, disposeModel } from '../../policy/model-parameters.ts';
import type { Model } from '../../policy/model-parameters.ts';
import { SamplerNetwork } from '../../policy/sampler-network.ts';
import { device } from '../../policy/tensorflow.ts';
import type { AdamSettings, LossSpec, ModelConfig, SequenceBatch } from '../../policy/types.ts';
import type { Computed, Trained } from './compare.ts';
import { readPlacement } from './placement.ts';
import type { Placement } from './placement.ts';

const CONFIG: ModelConfig = {
  architectures: ['Qwen3ForCausalLM'],
  model_type: 'qwen3',
  vocab_size: 128,
  hidden_size: 64,
  intermediate_size: 192,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 16,
  max_position_embeddings: 128,
  rms_norm_eps: 1e-6,
  rope_theta: 10_000,
  tie_word_embeddings: true,
  bos_token_id: 1,
  eos_token_id: 2,
  torch_dtype: 'float32',
};
const ADAM: AdamSettings = { learningRate: 1e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-6, weightDecay: 0.01, maxGradientNorm: 1 };
const STEPS = 10;
const ROWS = 4;
const LENGTH = 48;
/** Tokens of a row that are prefilled; the others are decoded one by one. */
const PREFILLED = 16;

const random = new Random(6);
const tokens = Array.from({ length: ROWS * LENGTH }, () => 3 + random.int(CONFIG.vocab_size - 3));
const mask = tokens.map((_, i) => (i % LENGTH === 0 ? 0 : 1));
const noise = tokens.map(() => 2 * random.next() - 1);
const batch: SequenceBatch = { rows: ROWS, length: LENGTH, tokens, mask };
const denominator = ROWS * (LENGTH - 1);

/** Fresh weights give nearly uniform distributions, in which an error would hardly show. */
function model(role: 'actor' | 'critic'): Model {
  const made = createModel(CONFIG, role, 5);
  for (const [name, parameter] of made.params) {
    if (!/norm$/i.test(name)) parameter.assign(Float32Array.from(parameter.read(), (value) => 3 * value));
  }
  return made;
}

function lossOf(kind: LossSpec['kind'], learner: Learner): LossSpec {
  if (kind === 'sft') return { kind, denominator };
  if (kind === 'value') return { kind, denominator, returns: noise, oldValues: [...learner.forward('values', batch)], clip: 0.2 };
  const now = [...learner.forward('logprobs', batch)];
  return {
    ...{ kind, denominator, advantages: noise, referenceLogprobs: now, klCoefficient: 0.05, entropyCoefficient: 0.01 },
    // As if the policy had moved since: some tokens are clipped.
    oldLogprobs: now.map((value, i) => (mask[i] === 0 ? 0 : value + 0.2 * noise[tokens.length - 1 - i]!)),
    ...{ clipLow: 0.2, clipHigh: 0.28, dualClip: 3 },
  };
}

function train(kind: LossSpec['kind']): Trained {
  const learner = new Learner(model(kind === 'value' ? 'critic' : 'actor'));
  const all = (): Float32Array => Float32Array.from([...learner.model.params.values()].flatMap((parameter) => [...parameter.read()]));
  try {
    const before = all();
    const loss = lossOf(kind, learner);
    const steps = Array.from({ length: STEPS }, () => {
      const { loss: value } = learner.forwardBackward(loss, batch);
      return { loss: value, gradientNorm: learner.optimStep(ADAM).gradientNorm };
    });
    const moved = all().map((value, i) => value - before[i]!);
    return { losses: steps.map((step) => step.loss), gradientNorms: steps.map((step) => step.gradientNorm), moved: [...moved] };
  } finally {
    learner.dispose();
  }
}

/** Log-probabilities of the tokens that are decoded, by the sampler's network and by the training side's. */
function sample(): Pick<Computed, 'decoded' | 'evaluated'> {
  const of = model('actor');
  const network = new SamplerNetwork(of, ROWS);
  try {
    const row = (slot: number): number[] => tokens.slice(slot * LENGTH, (slot + 1) * LENGTH);
    const slots = Array.from({ length: ROWS }, (_, slot) => slot);
    network.prefill(slots.map((slot) => ({ slot, position: 0, tokens: row(slot).slice(0, PREFILLED) })));
    const decoded: number[][] = slots.map(() => []);
    for (let position = PREFILLED; position < LENGTH - 1; position++) {
      const outputs = network.decode(slots.map((slot) => ({ slot, position, token: row(slot)[position]!, temperature: 1 })));
      for (const [slot, { weights, logSum }] of outputs.entries())
        decoded[slot]!.push(Math.log(weights[row(slot)[position + 1]!]!) - logSum);
    }
    const learner = new Learner(of);
    const evaluated = learner.forward('logprobs', batch);
    const kept = slots.map((slot) => [...evaluated.slice(slot * LENGTH + PREFILLED + 1, (slot + 1) * LENGTH)]);
    return { decoded: decoded.flat(), evaluated: kept.flat() };
  } finally {
    network.dispose();
    disposeModel(of);
  }
}

/** Empty where the addon cannot tell. Functions that had run before are not seen. */
function placementOf<T>(work: () => T): { readonly result: T; readonly operations: Placement } {
  const b = binding();
  b.collectGraphs?.(true);
  try {
    const result = work();
    return { result, operations: b.takeGraphs === undefined ? {} : readPlacement(b.takeGraphs()) };
  } finally {
    b.collectGraphs?.(false);
  }
}

const first = placementOf(() => ({ sft: train('sft'), ...sample() }));
const { sft, ...sampled } = first.result;
const training = { sft, value: train('value'), ppo: train('ppo') };
const computed: Computed = {
  ...{ device: device(), training, again: train('sft') },
  ...sampled,
  ...{ placement: first.operations, fallbacks: fallbacks() },
};
writeFileSync(process.argv[2] as string, JSON.stringify(computed));
