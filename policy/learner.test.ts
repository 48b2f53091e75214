/** What must hold of training however it is executed: eager or as functions, in one lane or several, padded more or less, in whatever process. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Random } from '../method/seeds.ts';
import { tinyConfig } from '../tests/fixtures/tiny-config.ts';
import { trainingFingerprint } from '../tests/fixtures/training-fingerprint.ts';
import { bucketLength, bucketRows, prepareBatch, rowsWithin } from './batch.ts';
import { binding } from './engine/binding.ts';
import { engineMode } from './engine/mode.ts';
import { Learner } from './learner.ts';
import type { LearnerOptions } from './learner.ts';
import { createModel } from './model-parameters.ts';
import { countParameters } from './parameter-shapes.ts';
import type { LossSpec, ModelConfig, SequenceBatch } from './types.ts';

const adam = { learningRate: 1e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0.1, maxGradientNorm: 1 };
/** Long enough for several blocks of queries, and for TensorFlow to cut work up. */
const config: ModelConfig = { ...tinyConfig, vocab_size: 50, hidden_size: 16, intermediate_size: 24, max_position_embeddings: 512 };

/** Sequences of different lengths, as a batch padded to the longest. */
function makeBatch(lengths: readonly number[], seed = 1): SequenceBatch {
  const random = new Random(seed);
  const length = Math.max(...lengths);
  const rows = lengths.map((own) => Array.from({ length }, (_, i) => (i < own ? random.int(50) : 0)));
  const mask = lengths.map((own) => Array.from({ length }, (_, i) => (i > 0 && i < own && random.chance(0.5) ? 1 : 0)));
  return { rows: lengths.length, length, tokens: rows.flat(), mask: mask.flat() };
}
const batch = makeBatch([200, 150, 131, 90, 60]);
function losses(size: number): Record<LossSpec['kind'], LossSpec> {
  const random = new Random(2);
  const values = (): number[] => Array.from({ length: size }, () => random.next() - 0.5);
  const near = (): number[] => values().map((value) => value / 10 - 3.9);
  return {
    sft: { kind: 'sft', denominator: 300 },
    value: { kind: 'value', denominator: 300, returns: values(), oldValues: values().map((value) => value / 10), clip: 0.2 },
    ppo: {
      ...{ kind: 'ppo', denominator: 300, advantages: values(), oldLogprobs: near(), referenceLogprobs: near() },
      ...{ clipLow: 0.2, clipHigh: 0.2, dualClip: 3, klCoefficient: 0.1, entropyCoefficient: 0.01 },
    },
  };
}
function learner(loss: LossSpec, options: LearnerOptions = {}, of: ModelConfig = config): Learner {
  return new Learner(createModel(of, loss.kind === 'value' ? 'critic' : 'actor', 3), options);
}
/** Largest difference relative to the largest entry. */
function difference(one: Float32Array, other: Float32Array): number {
  assert.equal(one.length, other.length);
  const size = one.reduce((largest, value) => Math.max(largest, Math.abs(value)), 1e-6);
  return one.reduce((largest, value, i) => Math.max(largest, Math.abs(value - other[i]!)), 0) / size;
}
/** Losses of some steps, and the weights after them. */
function train(loss: LossSpec, options: LearnerOptions, steps = 10): { losses: number[]; weights: Float32Array } {
  const one = learner(loss, options);
  const seen = Array.from({ length: steps }, () => {
    const sums = one.forwardBackward(loss, batch);
    one.optimStep(adam);
    return sums.loss;
  });
  const weights = Float32Array.from([...one.model.params.values()].flatMap((parameter) => [...parameter.read()]));
  one.dispose();
  return { losses: seen, weights };
}
function gradientsOn(loss: LossSpec, on: SequenceBatch, options: LearnerOptions = {}): Map<string, Float32Array> {
  const one = learner(loss, options);
  one.forwardBackward(loss, on);
  const gradients = one.gradients();
  one.dispose();
  return gradients;
}

const graph = engineMode() === 'graph';

for (const loss of Object.values(losses(batch.tokens.length))) {
  describe(`${loss.kind} training`, () => {
    it(
      'gives the same losses and weights to 1e-5 after ten steps, eagerly and as functions',
      { skip: !graph && 'functions cannot be registered' },
      () => {
        const [eager, recorded] = (['eager', 'graph'] as const).map((mode) => train(loss, { mode })) as [
          ReturnType<typeof train>,
          ReturnType<typeof train>,
        ];
        eager.losses.forEach((value, i) =>
          assert.ok(Math.abs(value - recorded.losses[i]!) < 1e-5, `step ${i}: ${value}, ${recorded.losses[i]}`),
        );
        assert.ok(eager.losses[9]! < eager.losses[0]!);
        assert.ok(difference(eager.weights, recorded.weights) < 1e-5);
      },
    );
    it('gives the same gradients in one lane and in three', () => {
      const [one, three] = [1, 3].map((lanes) => gradientsOn(loss, batch, { lanes })) as [
        Map<string, Float32Array>,
        Map<string, Float32Array>,
      ];
      for (const [name, gradient] of one) assert.ok(difference(gradient, three.get(name)!) < 1e-5, name);
    });
    it('gives the same gradients where activations are computed twice', () => {
      const [kept, twice] = [false, true].map((recompute) => gradientsOn(loss, batch, { recompute })) as [
        Map<string, Float32Array>,
        Map<string, Float32Array>,
      ];
      for (const [name, gradient] of kept) assert.ok(difference(gradient, twice.get(name)!) < 1e-6, name);
    });
    it('is not touched by padding: neither the columns and rows that fill a batch up, nor more of them', () => {
      const wider = bucketLength(batch.length) + 1;
      const grown = bucketRows(batch.rows) + 1;
      const pad = (values: readonly number[]): number[] =>
        Array.from({ length: grown * wider }, (_, i) => {
          const [row, column] = [Math.floor(i / wider), i % wider];
          return row < batch.rows && column < batch.length ? values[row * batch.length + column]! : 0;
        });
      const padded = Object.fromEntries(
        Object.entries(loss).map(([name, value]) => [name, Array.isArray(value) ? pad(value as number[]) : (value as number)]),
      ) as unknown as LossSpec;
      const [own, more] = [
        gradientsOn(loss, batch),
        gradientsOn(padded, { rows: grown, length: wider, tokens: pad(batch.tokens), mask: pad(batch.mask) }),
      ];
      for (const [name, gradient] of own) assert.ok(difference(gradient, more.get(name)!) < 1e-5, name);
    });
  });
}

describe('shapes', () => {
  it('are few, and hold every batch', () => {
    for (let length = 1; length < 3000; length += 7) {
      const padded = bucketLength(length);
      assert.ok(padded >= length && padded <= 1.2 * length + 64, `${length}: ${padded}`);
    }
    assert.equal(new Set(Array.from({ length: 256 }, (_, i) => bucketLength(i + 1))).size, 5);
    assert.deepEqual([1, 2, 3, 4, 5, 7, 9, 13, 17].map(bucketRows), [1, 2, 4, 4, 8, 8, 16, 16, 32]);
    assert.equal(rowsWithin(4096, 256), 16);
    assert.equal(rowsWithin(4096, 5000), 1);
    const { lanes, predicted } = prepareBatch(batch, config, 2);
    assert.deepEqual(
      lanes.map(({ inputs }) => inputs.tokens.shape),
      [
        [4, 256],
        [4, 256],
      ],
    );
    assert.equal(predicted, batch.mask.filter((one) => one === 1).length);
  });
});

it('a model that was offloaded between its steps ends with the same bits, and takes no memory meanwhile', () => {
  const folder = mkdtempSync(join(tmpdir(), 'offload-'));
  const loss = losses(batch.tokens.length).ppo;
  const results = [false, true].map((away) => {
    const one = learner(loss);
    const full = (): number => 4 * countParameters(config, 'actor') * (1 + 2 + 2);
    for (let i = 0; i < 3; i++) {
      one.forwardBackward(loss, batch);
      if (away) one.offload(join(folder, 'gradients'));
      assert.equal(one.residentBytes === 0, away);
      one.optimStep(adam);
      if (away) one.offload(join(folder, 'all'));
    }
    one.resident();
    assert.equal(one.residentBytes, full());
    const values = [...one.model.params.values(), ...one.optimizer().first.values(), ...one.optimizer().second.values()];
    const all = values.map((variable) => variable.read());
    one.dispose();
    return all;
  });
  assert.deepEqual(results[1], results[0]);
  assert.deepEqual(readdirSync(folder), []);
  rmSync(folder, { recursive: true });
});

it('a thousand steps leave no tensor behind', () => {
  const short: SequenceBatch = { rows: 2, length: 4, tokens: [1, 5, 6, 2, 1, 7, 2, 0], mask: [0, 1, 0, 1, 0, 1, 1, 0] };
  const loss = losses(8).ppo;
  const one = learner(loss, {}, { ...tinyConfig, num_hidden_layers: 1 });
  const step = (): void => {
    one.forwardBackward(loss, short);
    one.optimStep(adam);
    one.forward('logprobs', short);
  };
  for (let i = 0; i < 3; i++) step();
  const before = binding().getNumOfTensors();
  for (let i = 0; i < 1000; i++) step();
  assert.equal(binding().getNumOfTensors(), before);
  one.dispose();
});

it('the same steps give the same bits, also in another process', () => {
  const script = fileURLToPath(new URL('../tests/fixtures/training-fingerprint.ts', import.meta.url));
  const [here, again] = [trainingFingerprint(), trainingFingerprint()];
  const elsewhere = execFileSync(process.execPath, ['--import', 'tsx', script], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  assert.deepEqual([again, elsewhere], [here, here]);
});
