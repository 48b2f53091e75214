/** Model, loss and optimizer together: training learns. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { tinyConfig } from '../tests/fixtures/tiny-config.ts';
import { binding } from './engine/binding.ts';
import { Learner } from './learner.ts';
import { createModel } from './model-parameters.ts';
import type { LossSpec, SequenceBatch } from './types.ts';

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
