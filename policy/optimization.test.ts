/** Model, loss and optimizer together: training learns, and the same steps give the same bits. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { Random } from '../method/seeds.ts';
import { tinyConfig } from '../tests/fixtures/tiny-config.ts';
import { binding } from './engine/binding.ts';
import type { EngineMode } from './engine/mode.ts';
import { Learner } from './learner.ts';
import { createModel } from './model-parameters.ts';
import type { LossSpec, ModelConfig, SequenceBatch } from './types.ts';

const adam = { learningRate: 1e-2, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0, maxGradientNorm: 1 };

function train(learner: Learner, loss: LossSpec, batch: SequenceBatch, steps: number): number[] {
  return Array.from({ length: steps }, () => {
    const sums = learner.forwardBackward(loss, batch);
    learner.optimStep(adam);
    return sums.loss;
  });
}

it('fine-tuning learns a sequence by heart, and a critic its returns', () => {
  const before = binding().getNumOfTensors();
  const batch = { rows: 1, length: 8, tokens: [1, 5, 9, 5, 3, 5, 7, 2], mask: [0, 1, 1, 1, 1, 1, 1, 1] };
  const actor = new Learner(createModel(tinyConfig, 'actor', 1));
  const sft = train(actor, { kind: 'sft', denominator: 7 }, batch, 80);
  assert.ok((sft[0] as number) > 2 && (sft.at(-1) as number) < 0.7, `${sft[0]} to ${sft.at(-1)}`);
  const critic = new Learner(createModel(tinyConfig, 'critic', 1));
  const returns = [0, 1, 1, 1, 0, 0, 0, -1];
  const value = train(critic, { kind: 'value', denominator: 7, returns, oldValues: returns.map(() => 0), clip: 0 }, batch, 80);
  assert.ok((value.at(-1) as number) < 0.2 * (value[0] as number), `${value[0]} to ${value.at(-1)}`);
  actor.dispose();
  critic.dispose();
  assert.equal(binding().getNumOfTensors(), before);
});

it('the same steps give the same bits', () => {
  // Large enough that TensorFlow splits its operations over threads.
  const config: ModelConfig = {
    ...tinyConfig,
    vocab_size: 300,
    hidden_size: 64,
    intermediate_size: 128,
    head_dim: 16,
    max_position_embeddings: 128,
  };
  const random = new Random(9);
  const size = 8 * 96;
  const tokens = Array.from({ length: size }, () => random.int(300));
  const mask = tokens.map((_, i) => (i % 96 !== 0 && random.chance(0.4) ? 1 : 0));
  const loss: LossSpec = {
    kind: 'ppo',
    denominator: 300,
    advantages: tokens.map(() => random.next() - 0.5),
    oldLogprobs: tokens.map(() => -5.7),
    clipLow: 0.2,
    clipHigh: 0.2,
    dualClip: 3,
    klCoefficient: 0.1,
    referenceLogprobs: tokens.map(() => -5.6),
    entropyCoefficient: 0.01,
  };
  const run = (): Map<string, Float32Array> => {
    const learner = new Learner(createModel(config, 'actor', 4));
    train(learner, loss, { rows: 8, length: 96, tokens, mask }, 4);
    const values = new Map([...learner.model.params].map(([name, p]) => [name, p.read()]));
    learner.dispose();
    return values;
  };
  const [first, second] = [run(), run()];
  for (const [name, values] of first)
    assert.ok(Buffer.from(values.buffer).equals(Buffer.from(second.get(name)?.buffer ?? new ArrayBuffer(0))), name);
});
