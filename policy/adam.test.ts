/** Adam, AdamW and norm clipping against torch's numbers, and the optimizer's state on disk. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { adamStep, adamUpdate, clipFactor, createOptimizer, disposeOptimizer, globalNorm, loadOptimizer, saveOptimizer } from './adam.ts';
import { NumericalError } from './errors.ts';
import { createModel, disposeModel, type Model } from './model.ts';
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
    const [parameter, first, second] = [tf.variable(tf.tensor1d([1, -2, 0.5])), tf.variable(tf.zeros([3])), tf.variable(tf.zeros([3]))];
    gradients.forEach((gradient, i) => {
      tf.tidy(() => adamUpdate(parameter, first, second, tf.tensor1d(gradient), { ...settings, weightDecay }, i + 1));
      parameter
        .dataSync<'float32'>()
        .forEach((value, j) => assert.ok(Math.abs(value - (expected[i]?.[j] as number)) < 3e-7, `step ${i + 1}: ${value}`));
    });
    tf.dispose([parameter, first, second]);
  });
}

it('the global norm and its clipping equal torch', () => {
  const tensors = [tf.tensor1d([3, 4]), tf.tensor1d([12])];
  const norm = globalNorm(tensors);
  tf.dispose(tensors);
  assert.equal(norm, 13);
  assert.ok(Math.abs(3 * clipFactor(norm, 1) - 0.230769213018) < 1e-9);
  assert.equal(clipFactor(0.5, 1), 1);
});

function gradientsOf(model: Model, value: number): Map<string, tf.Tensor> {
  return new Map([...model.params].map(([name, p]) => [name, tf.fill(p.shape, value)]));
}
function snapshot(model: Model): string {
  return JSON.stringify([...model.params].map(([name, p]) => [name, [...p.dataSync()]]));
}

describe('adamStep', () => {
  const model = createModel(tinyConfig, 'actor', 1);
  const optimizer = createOptimizer(model);
  const directory = mkdtempSync(join(tmpdir(), 'adam-'));
  after(() => {
    disposeModel(model);
    disposeOptimizer(optimizer);
    rmSync(directory, { recursive: true });
  });
  const step = (of: Model, state: typeof optimizer, value: number): { gradientNorm: number; step: number } => {
    const g = gradientsOf(of, value);
    try {
      return adamStep(of, state, g, { ...settings, weightDecay: 0.1 });
    } finally {
      tf.dispose([...g.values()]);
    }
  };

  it('refuses gradients that are not finite before anything changes', () => {
    const before = snapshot(model);
    for (const value of [NaN, Infinity]) assert.throws(() => step(model, optimizer, value), NumericalError);
    assert.equal(snapshot(model), before);
    assert.equal(optimizer.step, 0);
    assert.ok(
      optimizer.first
        .get('embed')
        ?.dataSync()
        .every((m) => m === 0),
    );
  });
  it('reports the norm before clipping, counts steps and leaves no tensor behind', () => {
    const tensors = tf.memory().numTensors;
    const { gradientNorm, step: count } = step(model, optimizer, 0.5);
    const size = [...model.params.values()].reduce((sum, p) => sum + p.size, 0);
    assert.ok(Math.abs(gradientNorm - 0.5 * Math.sqrt(size)) < 1e-3);
    assert.equal(count, 1);
    assert.equal(tf.memory().numTensors, tensors);
  });
  it('does not decay norm gains', () => {
    const before = model.params.get('norm')?.dataSync()[0] as number;
    const zero = createOptimizer(model);
    step(model, zero, 0);
    disposeOptimizer(zero);
    assert.equal(model.params.get('norm')?.dataSync()[0], before);
  });
  it('goes on from disk bit by bit as if it had not stopped', () => {
    saveOptimizer(optimizer, join(directory, 'optimizer'));
    const loaded = loadOptimizer(model, join(directory, 'optimizer'));
    assert.equal(loaded.step, optimizer.step);
    const saved = [...model.params].map(([name, p]) => [name, p.dataSync<'float32'>().slice()] as const);
    step(model, optimizer, -0.3);
    const uninterrupted = snapshot(model);
    for (const [name, values] of saved) tf.tidy(() => model.params.get(name)?.assign(tf.tensor(values, model.params.get(name)?.shape)));
    step(model, loaded, -0.3);
    assert.equal(snapshot(model), uninterrupted);
    disposeOptimizer(loaded);
  });
  it('names the tensor that does not fit, and never overwrites', () => {
    const other = createModel({ ...tinyConfig, hidden_size: 12 }, 'actor', 1);
    assert.throws(() => loadOptimizer(other, join(directory, 'optimizer')), {
      name: 'UserError',
      message: /first\.embed has shape \[11,8\], expected \[11,12\]/,
    });
    disposeModel(other);
    assert.throws(() => saveOptimizer(optimizer, join(directory, 'optimizer')), /exists/);
    writeFileSync(join(directory, 'optimizer', 'optimizer.json'), '{"step":-1}');
    assert.throws(() => loadOptimizer(model, join(directory, 'optimizer')), /step is -1, expected a whole number/);
  });
});
