import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { Random } from './seeds.ts';
import {
  explainedVariance,
  klEstimators,
  maskedMean,
  mean,
  pairedDifference,
  sampleStandardDeviation,
  standardError,
  whiten,
} from './statistics.ts';

// The vectors' shapes differ by name; each test states the part it reads.
type Numbers = Record<string, number[]>;
const file = JSON.parse(readFileSync(new URL('../tests/fixtures/rl-vectors.json', import.meta.url), 'utf8')) as {
  vectors: { name: string; inputs: Numbers; expected: Numbers }[];
};
const vector = (name: string): { inputs: Numbers; expected: Numbers } => {
  const found = file.vectors.find((candidate) => candidate.name === name);
  assert.ok(found, `no vector is named ${name}`);
  return found;
};
const close = (actual: ArrayLike<number>, expected: readonly number[], tolerance = 1e-7): void => {
  assert.equal(actual.length, expected.length);
  expected.forEach((value, i) => assert.ok(Math.abs((actual[i] as number) - value) <= tolerance, `[${i}] ${actual[i]}, expected ${value}`));
};

test('whitening equals verl at kept tokens and is exactly 0 elsewhere', () => {
  const { inputs, expected } = vector('whiten_masked');
  const out = whiten(inputs['values'] ?? [], inputs['mask'] ?? []);
  close(out.slice(0, 3), expected['out']?.slice(0, 3) ?? []);
  assert.equal(out[3], 0);
});

test('whitening equals the whitened advantages of verl on its GAE fixtures', () => {
  const gae = file.vectors.filter((candidate) => candidate.expected['whitened_adv_at_mask']);
  assert.ok(gae.length >= 5);
  for (const { expected } of gae) {
    const advantages = expected['adv_at_mask'] ?? [];
    close(
      whiten(
        advantages,
        advantages.map(() => 1),
      ),
      expected['whitened_adv_at_mask'] ?? [],
    );
  }
});

test('whitening of a constant vector is near 0, of one token 0, of none 0, and never NaN', () => {
  const { inputs, expected } = vector('whiten_constant');
  close(whiten(inputs['values'] ?? [], inputs['mask'] ?? []), expected['out'] ?? [], 1e-4);
  assert.deepEqual([...whiten([0.1, 7, 0.1], [1, 0, 1])], [0, 0, 0]);
  assert.deepEqual([...whiten([3, Number.NaN], [1, 0])], [0, 0]);
  assert.deepEqual([...whiten([3, 4], [0, 0])], [0, 0]);
});

test('masked statistics never read what is masked out', () => {
  assert.equal(maskedMean([1, Number.NaN, 3], [1, 0, 1]), 2);
  assert.throws(() => maskedMean([1], [0]), /empty/);
  assert.throws(() => whiten([1, 2], [1]), /same length/);
});

test('explained variance equals cleanrl, and is undefined for constant returns', () => {
  const { inputs } = vector('explained_variance');
  const value = explainedVariance(inputs['returns'] ?? [], inputs['values'] ?? []);
  assert.ok(Math.abs((value ?? 0) - 0.897142857143) < 1e-9);
  assert.equal(explainedVariance([1, 1, 1], [0, 1, 2]), undefined);
  assert.equal(explainedVariance([0.1, 0.1, 0.1], [0, 1, 2]), undefined);
  assert.equal(explainedVariance([], []), undefined);
});

test('KL estimators equal verl', () => {
  const { inputs, expected } = vector('kl_estimators');
  const estimates = (inputs['logp'] ?? []).map((logprob, i) => klEstimators(logprob, inputs['ref_logp']?.[i] as number));
  for (const name of ['k1', 'k2', 'k3'] as const)
    close(
      estimates.map((estimate) => estimate[name]),
      expected[name] ?? [],
    );
});

test('mean, deviation and error of known numbers', () => {
  assert.equal(mean([2, 4, 9]), 5);
  assert.ok(Math.abs(sampleStandardDeviation([2, 4, 9]) - Math.sqrt(13)) < 1e-12);
  assert.ok(Math.abs(standardError([2, 4, 9]) - Math.sqrt(13 / 3)) < 1e-12);
  assert.equal(standardError([5]), 0);
  assert.throws(() => mean([]), /empty/);
});

test('the paired interval covers a real difference, excludes zero for it and is repeatable', () => {
  const random = new Random(3);
  const before = Array.from({ length: 60 }, () => random.next());
  const after = before.map((value) => value + 0.2 + 0.1 * (random.next() - 0.5));
  const result = pairedDifference(before, after, { random: new Random(4) });
  assert.ok(result.low > 0.18 && result.low < result.mean && result.mean < result.high && result.high < 0.22, JSON.stringify(result));
  assert.deepEqual(pairedDifference(before, after, { random: new Random(4) }), result);
  const wider = pairedDifference(before, after, { random: new Random(4), level: 0.999 });
  assert.ok(wider.high - wider.low > result.high - result.low);
  const none = pairedDifference(before, [...before].reverse(), { random: new Random(5) });
  assert.ok(none.low < 0 && none.high > 0 && Math.abs(none.mean) < 1e-12);
  assert.throws(() => pairedDifference([1], [1, 2], { random }), /same length/);
});
