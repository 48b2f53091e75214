/** Adam, AdamW and norm clipping against torch's numbers, and the optimizer's state on disk. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { adamInput, adamUpdate, clipFactor, globalNorm, loadOptimizer } from './adam.ts';
import { loadModel, saveModel } from './checkpoint.ts';
import { binding } from './engine/binding.ts';
import { NumericalError } from './errors.ts';
import { Learner } from './learner.ts';
import { createModel, disposeModel } from './model-parameters.ts';
import { tf } from './tensorflow.ts';
import { tinyConfig } from '../tests/fixtures/tiny-config.ts';

// torch's numbers, copied from tests/fixtures/rl-vectors.json (adam_3_steps, adamw_3_steps, clip_grad_norm).
const gradients = [
  [0.1, -0.2, 0.3],
  [0.4, 0, -0.1],
  [-0.5, 0.2, 0.05],
];
const adam = [
  [0.990000001, -1.9900000005, 0.490000000333],
  [0.981156236398, -1.983299418433, 0.485997814793],
  [0.9817379304, -1.984158095524, 0.481943560977],
];
const adamw = [
  [0.989000001, -1.9880000005, 0.489500000333],
  [0.979167236397, -1.979311418432, 0.485008314792],
  [0.978769763162, -1.978190784106, 0.480469052662],
];
const settings = { learningRate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0, maxGradientNorm: 1 };

for (const [name, weightDecay, expected] of [
  ['Adam', 0, adam],
  ['AdamW with decay 0.1', 0.1, adamw],
] as const) {
  it(`three steps of ${name} equal torch`, () => {
    let state = { parameter: tf.tensor([1, -2, 0.5]), first: tf.zeros([3]), second: tf.zeros([3]) };
    gradients.forEach((gradient, i) => {
      const scalars = tf.unstack(tf.tensor(adamInput({ ...settings, weightDecay }, i + 1).data));
      state = adamUpdate({ ...state, gradient: tf.tensor1d(gradient) }, scalars, true);
      state.parameter
        .dataSync<'float32'>()
        .forEach((value, j) => assert.ok(Math.abs(value - (expected[i]?.[j] as number)) < 3e-7, `step ${i + 1}: ${value}`));
    });
  });
}

it('the global norm and its clipping equal torch', () => {
  const norm = globalNorm([() => tf.tensor1d([3, 4]), () => tf.tensor1d([12])]).dataSync()[0] as number;
  assert.equal(norm, 13);
  assert.ok(Math.abs(3 * clipFactor(norm, 1) - 0.230769213018) < 1e-9);
  assert.equal(clipFactor(0.5, 1), 1);
});

function snapshot({ model }: Learner): string {
  return JSON.stringify([...model.params].map(([name, p]) => [name, [...p.read()]]));
}
const batch = { rows: 1, length: 8, tokens: [1, 5, 9, 5, 3, 5, 7, 2], mask: [0, 1, 1, 1, 1, 1, 1, 1] };

for (const mode of ['eager', 'graph'] as const) {
  describe(`updates, ${mode}`, () => {
    const learner = new Learner(createModel(tinyConfig, 'actor', 1), { mode });
    const directory = mkdtempSync(join(tmpdir(), 'adam-'));
    after(() => {
      learner.dispose();
      rmSync(directory, { recursive: true });
    });
    const step = (of: Learner, weight = 1): { gradientNorm: number; step: number } => {
      of.forwardBackward({ kind: 'sft', denominator: 7 / weight }, batch);
      return of.optimStep({ ...settings, weightDecay: 0.1 });
    };

    it('refuse gradients that are not finite before anything changes, and drop them', () => {
      const before = snapshot(learner);
      // The loss, about 17 a step, is finite; the squares of its gradients are not.
      assert.throws(() => step(learner, 1e30), NumericalError);
      assert.equal(snapshot(learner), before);
      assert.equal(learner.optimizer().step, 0);
      assert.ok([...learner.optimizer().first.values()].every((moment) => moment.read().every((m) => m === 0)));
      assert.throws(() => learner.optimStep(settings), /no gradients/);
      assert.ok([...learner.gradients().values()].every((gradient) => gradient.every((g) => g === 0)));
    });
    it('report the norm before clipping, count steps, clear the gradients and leave no tensor behind', () => {
      learner.forwardBackward({ kind: 'sft', denominator: 7 }, batch);
      const squares = [...learner.gradients().values()].flatMap((gradient) => [...gradient].map((g) => g * g));
      const { gradientNorm, step: count } = learner.optimStep(settings);
      assert.ok(Math.abs(gradientNorm - Math.sqrt(squares.reduce((a, b) => a + b, 0))) < 1e-5);
      assert.equal(count, 1);
      assert.ok([...learner.gradients().values()].every((gradient) => gradient.every((g) => g === 0)));
      const tensors = binding().getNumOfTensors();
      step(learner);
      assert.equal(binding().getNumOfTensors(), tensors);
    });
    it('do not decay norm gains', () => {
      const critic = new Learner(createModel(tinyConfig, 'critic', 1), { mode });
      // Without predicted tokens the gradients are zero.
      critic.forwardBackward(
        { kind: 'value', denominator: 1, returns: [0], oldValues: [0], clip: 0 },
        { rows: 1, length: 1, tokens: [1], mask: [0] },
      );
      const before = ['norm', '0.o'].map((name) => critic.model.params.get(name)!.read());
      critic.optimStep({ ...settings, weightDecay: 0.1 });
      const [norm, matrix] = ['norm', '0.o'].map((name) => critic.model.params.get(name)!.read());
      assert.deepEqual(norm, before[0]);
      assert.notDeepEqual(matrix, before[1]);
      critic.dispose();
    });
    it('go on from disk bit by bit as if they had not stopped', () => {
      saveModel(learner.model, join(directory, 'model'));
      learner.saveOptimizer(join(directory, 'optimizer'));
      const resumed = new Learner(loadModel(join(directory, 'model'), 'actor'), { mode, optimizerDirectory: join(directory, 'optimizer') });
      assert.equal(resumed.optimizer().step, learner.optimizer().step);
      step(learner);
      step(resumed);
      assert.equal(snapshot(resumed), snapshot(learner));
      resumed.dispose();
    });
    it('name the tensor that does not fit, and never overwrite', () => {
      const other = createModel({ ...tinyConfig, hidden_size: 12 }, 'actor', 1);
      assert.throws(() => loadOptimizer(other, join(directory, 'optimizer')), {
        name: 'UserError',
        message: /first\.embed has shape \[11,8\], expected \[11,12\]/,
      });
      disposeModel(other);
      assert.throws(() => learner.saveOptimizer(join(directory, 'optimizer')), /exists/);
      writeFileSync(join(directory, 'optimizer', 'optimizer.json'), '{"step":-1}');
      assert.throws(() => loadOptimizer(learner.model, join(directory, 'optimizer')), /step is -1, expected a whole number/);
    });
  });
}
