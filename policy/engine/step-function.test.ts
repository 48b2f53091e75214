import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { tf } from '../tensorflow.ts';
import { binding } from './binding.ts';
import { engineMode, fallbacks, onFallback } from './mode.ts';
import type { EngineMode } from './mode.ts';
import { free, StepFunction, takeToHost } from './step-function.ts';
import type { StepDescription } from './step-function.ts';
import { Variable } from './variable.ts';

const modes: readonly { readonly name: string; readonly mode: EngineMode; readonly xla: boolean }[] = [
  { name: 'eagerly', mode: 'eager', xla: false },
  { name: 'as a function', mode: 'graph', xla: false },
  { name: 'compiled by XLA', mode: 'graph', xla: true },
];
const announced: string[] = [];
onFallback((reason) => announced.push(reason));
const made: { dispose(): void }[] = [];
afterEach(() => {
  for (const one of made.splice(0)) one.dispose();
});
function variable(shape: number[], values?: number[]): Variable {
  const created = new Variable(shape, values && Float32Array.from(values));
  made.push(created);
  return created;
}
function step(mode: EngineMode, description: StepDescription, ...lanes: Record<string, Variable>[]): StepFunction {
  const created = new StepFunction(mode, description, lanes);
  made.push(created);
  return created;
}
const floats = (shape: number[], ...values: number[]) => ({ shape, data: Float32Array.from(values) });
const ints = (...values: number[]) => ({ shape: [values.length], data: Int32Array.from(values) });

/** f(w) = Σ (x·w)², its gradient added to an accumulator, and one step of gradient descent. */
const descent = (xla: boolean): StepDescription => ({
  key: 'descent',
  xla,
  writeOnly: new Set(['sum']),
  build: ({ x, rate }, { w }) => {
    const { value, grads } = tf.valueAndGrads((weight: tf.Tensor) =>
      tf.sum<tf.Scalar>(tf.square(tf.matMul(x as tf.Tensor2D, weight as tf.Tensor2D))),
    )([w!]);
    return { outputs: [value], add: { sum: grads[0]! }, assign: { w: tf.sub(w!, tf.mul(grads[0]!, rate!)) } };
  },
});

for (const { name, mode, xla } of modes) {
  test(`a step gives its outputs and changes its variables ${name}`, () => {
    const [w, sum] = [variable([2, 1], [1, 2]), variable([2, 1])];
    const one = step(mode, descent(xla), { w, sum });
    assert.deepEqual([...one.runToHost({ x: floats([1, 2], 3, 1), rate: floats([], 0.01) })[0]!], [25]);
    // d/dw (3·1 + 1·2)² = 2·5·(3, 1)
    assert.deepEqual([...sum.read()], [30, 10]);
    assert.deepEqual(
      [...w.read()].map((v) => Math.round(v * 1e4) / 1e4),
      [0.7, 1.9],
    );
    const [second] = one.runToHost({ x: floats([1, 2], 1, 0), rate: floats([], 0) });
    assert.ok(Math.abs(second![0]! - 0.49) < 1e-6, 'the second run starts from the new weights, with another rate');
    assert.deepEqual(announced, [], 'nothing fell back');
  });

  test(`lanes work on their own variables and share others ${name}`, () => {
    const shared = variable([2], [10, 20]);
    const lanes = [1, 2, 3].map((factor) => ({ shared, own: variable([2], [factor, factor]) }));
    const description: StepDescription = {
      key: 'lanes',
      xla,
      build: ({ x }, { shared, own }) => ({ outputs: [tf.add(tf.mul(shared!, own!), x!)], assign: { own: tf.add(own!, x!) } }),
    };
    const outputs = step(mode, description, ...lanes).run([1, 2, 3].map((x) => ({ x: floats([1], x) })));
    assert.deepEqual(
      outputs.map(([one]) => [...takeToHost(one!)]),
      [
        [11, 21],
        [22, 42],
        [33, 63],
      ],
    );
    assert.deepEqual(
      lanes.map(({ own }) => [...own.read()]),
      [
        [2, 2],
        [4, 4],
        [6, 6],
      ],
    );
  });

  test(`a native output goes into another step, and rows are scattered, ${name}`, () => {
    const table = variable([3, 2], [0, 0, 1, 1, 2, 2]);
    const twice: StepDescription = { key: 'twice', xla, build: ({ x }) => ({ outputs: [tf.mul(x!, 2)] }) };
    const put: StepDescription = {
      key: 'put',
      writeOnly: new Set(['table']),
      build: ({ rows, index }) => ({ outputs: [], scatter: { table: { indices: index!, updates: rows! } } }),
    };
    const [[rows]] = step(mode, twice, {}).run([{ x: floats([2, 2], 5, 6, 7, 8) }]) as [[Parameters<typeof free>[0]]];
    step(mode, put, { table }).run([{ rows, index: ints(2, 0) }]);
    free(rows);
    assert.deepEqual([...table.read()], [14, 16, 1, 1, 10, 12]);
  });

  test(`a thousand runs leave no tensor behind ${name}`, () => {
    const [w, sum] = [variable([2, 1], [1, 2]), variable([2, 1])];
    const one = step(mode, descent(xla), { w, sum });
    const run = (): unknown => one.runToHost({ x: floats([1, 2], 0.1, 0.2), rate: floats([], 0.001) });
    run();
    const before = [binding().getNumOfTensors(), tf.memory().numTensors];
    for (let i = 0; i < 1000; i++) run();
    assert.deepEqual([binding().getNumOfTensors(), tf.memory().numTensors], before);
  });
}

test('another shape is another function, and the first one stays', () => {
  const double: StepDescription = { key: 'double', build: ({ x }) => ({ outputs: [tf.add(x!, x!)] }) };
  const one = step('graph', double, {});
  assert.deepEqual([...one.runToHost({ x: floats([2], 1, 2) })[0]!], [2, 4]);
  assert.deepEqual([...one.runToHost({ x: floats([3], 1, 2, 3) })[0]!], [2, 4, 6]);
  assert.deepEqual([...one.runToHost({ x: floats([2], 5, 6) })[0]!], [10, 12]);
  assert.deepEqual(announced, []);
});

test('what cannot be recorded runs eagerly from then on, and is announced once with its reason', () => {
  const outside = tf.tensor1d([1, 2]);
  outside.dataSync();
  // An operation on it uploads it: from then on it is a native tensor that no function knows.
  tf.add(outside, 1).dispose();
  const captured: StepDescription = { key: 'captured', build: ({ x }) => ({ outputs: [tf.add(x!, outside)] }) };
  const one = step('graph', captured, {});
  for (let i = 0; i < 2; i++) assert.deepEqual([...one.runToHost({ x: floats([2], 1, 1) })[0]!], [2, 3]);
  assert.equal(one.mode, 'eager');
  assert.equal(announced.length, 1);
  assert.match(announced[0]!, /captured .*neither an argument nor made inside the function/);
  assert.deepEqual(fallbacks(), announced);
  outside.dispose();
});

test('an error of a later run is thrown, not hidden by a fall back', () => {
  const one = step('graph', { key: 'product', build: ({ x, y }) => ({ outputs: [tf.matMul(x as tf.Tensor2D, y as tf.Tensor2D)] }) }, {});
  one.runToHost({ x: floats([1, 1], 1), y: floats([1, 1], 1) });
  assert.throws(() => one.run([{}, {}]), /step product: 2 inputs for 1 lanes/);
  assert.equal(one.mode, 'graph');
});

test('TERMINAL_RSI_ENGINE chooses the mode, and another value is refused', () => {
  const before = process.env['TERMINAL_RSI_ENGINE'];
  try {
    process.env['TERMINAL_RSI_ENGINE'] = 'eager';
    assert.equal(engineMode(), 'eager');
    process.env['TERMINAL_RSI_ENGINE'] = 'fast';
    assert.throws(engineMode, /TERMINAL_RSI_ENGINE is 'fast', expected graph or eager/);
    delete process.env['TERMINAL_RSI_ENGINE'];
    assert.equal(engineMode(), 'graph');
  } finally {
    if (before === undefined) delete process.env['TERMINAL_RSI_ENGINE'];
    else process.env['TERMINAL_RSI_ENGINE'] = before;
  }
});
