/**
 * Every loss's gradient by every kind of parameter against central finite differences, on a model small enough that float32
 * differences mean something. A gradient off by more than 2 % of the parameter's largest one fails.
 */
import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import { Random } from '../method/seeds.ts';
import type { Variable } from './engine/variable.ts';
import { Learner } from './learner.ts';
import { createModel, type Model } from './model-parameters.ts';
import { tinyConfig } from '../tests/fixtures/tiny-config.ts';
import type { LossSpec, ModelConfig, SequenceBatch } from './types.ts';

const batch: SequenceBatch = {
  rows: 2,
  length: 5,
  tokens: [1, 4, 9, 4, 2, 1, 7, 3, 0, 0],
  mask: [0, 1, 0, 1, 1, 0, 1, 1, 0, 0],
};

/** A model whose weights are large enough that every part of it matters (fresh weights of 0.02 would give tiny gradients). */
function livelyModel(role: 'actor' | 'critic', config: ModelConfig): Model {
  const model = createModel(config, role, 5);
  const random = new Random(17);
  for (const parameter of model.params.values()) {
    const values = parameter.read().map((v) => v + (random.next() - 0.5) * 0.9);
    parameter.assign(values);
  }
  return model;
}

const random = new Random(3);
const perToken = (low: number, high: number): number[] => batch.tokens.map(() => low + random.next() * (high - low));
/** The parts that the Qwen3 of `tinyConfig` lacks: an output matrix of its own, biases, and no norm on queries and keys. */
const llama: ModelConfig = { ...tinyConfig, model_type: 'llama', tie_word_embeddings: false, attention_bias: true };
const losses: [string, LossSpec, ModelConfig?][] = [
  ['sft', { kind: 'sft', denominator: 7 }],
  [
    'ppo with KL penalty and entropy bonus',
    {
      kind: 'ppo',
      denominator: 5,
      advantages: perToken(-2, 2),
      oldLogprobs: perToken(-3, -2),
      clipLow: 0.6,
      clipHigh: 2.5,
      dualClip: 3,
      klCoefficient: 0.2,
      referenceLogprobs: perToken(-3, -2),
      entropyCoefficient: 0.3,
    },
  ],
  ['value', { kind: 'value', denominator: 4, returns: perToken(-1, 1), oldValues: perToken(-0.1, 0.1), clip: 0.5 }],
  ['sft, Llama family,', { kind: 'sft', denominator: 7 }, llama],
  ['value without clip', { kind: 'value', denominator: 4, returns: perToken(-1, 1), oldValues: perToken(-1, 1), clip: 0 }],
];

/** (loss(θ + ε·d) − loss(θ − ε·d)) / 2ε along a direction in one parameter. */
function slope(learner: Learner, loss: LossSpec, parameter: Variable, direction: Float32Array, epsilon: number): number {
  const values = parameter.read();
  const at = (offset: number): number => {
    const moved = values.map((v, i) => v + offset * (direction[i] as number));
    parameter.assign(moved);
    return learner.forwardBackward(loss, batch).loss;
  };
  const result = (at(epsilon) - at(-epsilon)) / (2 * epsilon);
  parameter.assign(values);
  return result;
}

for (const [name, loss, config = tinyConfig] of losses) {
  describe(`gradient of the ${name} loss`, () => {
    const model = livelyModel(loss.kind === 'value' ? 'critic' : 'actor', config);
    const learner = new Learner(model);
    const sums = learner.forwardBackward(loss, batch);
    const gradients = learner.gradients();
    after(() => learner.dispose());
    it('counts the masked tokens', () => assert.equal(sums.tokens, 5));
    for (const [parameterName, parameter] of model.params) {
      it(`matches finite differences at ${parameterName}`, () => {
        const gradient = gradients.get(parameterName) as Float32Array;
        const largest = gradient.reduce((a, g) => Math.max(a, Math.abs(g)), 0);
        assert.ok(largest > 1e-3, `largest gradient ${largest}: this parameter would not be tested`);
        const largestFirst = [...gradient.keys()].sort((a, b) => Math.abs(gradient[b] as number) - Math.abs(gradient[a] as number));
        const single = largestFirst.slice(0, 2).map((index) => gradient.map((_, i) => (i === index ? 1 : 0)));
        // All entries at once, with random signs and unit length.
        const mixed = gradient.map(() => (random.chance(0.5) ? 1 : -1) / Math.sqrt(gradient.length));
        for (const direction of [...single, mixed]) {
          const numeric = slope(learner, loss, parameter, direction, 4e-3);
          const analytic = gradient.reduce((sum, g, i) => sum + g * (direction[i] as number), 0);
          assert.ok(Math.abs(numeric - analytic) <= 0.02 * largest + 2e-4, `${analytic} against ${numeric}`);
        }
      });
    }
  });
}
