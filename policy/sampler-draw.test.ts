import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Random } from '../method/seeds.ts';
import { NumericalError } from './errors.ts';
import { cutTokens } from './sampler-cut.ts';
import { drawToken } from './sampler-draw.ts';
import type { DecodeOutput, SamplingRule } from './sampler-draw.ts';

/** What the network makes of a row of logits. */
function outputOf(logits: readonly number[], temperature = 1): DecodeOutput {
  const max = Math.max(...logits);
  return {
    weights: Float32Array.from(logits, (logit) => Math.exp((logit - max) / temperature)),
    logSum: Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - max), 0)),
  };
}
function logitsOf(random: Random, size: number, spread: number): number[] {
  return Array.from({ length: size }, () => spread * (random.next() + random.next() + random.next() - 1.5));
}
/** The tokens that the definition keeps, by sorting the whole vocabulary. */
function keptBySorting(weights: Float32Array, topK: number, topP: number): number[] {
  const order = [...weights.keys()].sort((a, b) => weights[b]! - weights[a]! || a - b).slice(0, topK);
  const enough = topP * order.reduce((sum, id) => sum + weights[id]!, 0);
  let sum = 0;
  const end = topP < 1 ? order.findIndex((id) => (sum += weights[id]!) >= enough) : -1;
  return (end < 0 ? order : order.slice(0, end + 1)).sort((a, b) => a - b);
}

test('top-k and top-p keep the tokens that sorting the vocabulary keeps, with ties and without, from flat to steep rows', () => {
  const random = new Random(1);
  let cut = 0;
  for (let round = 0; round < 300; round++) {
    const size = random.pick([2, 7, 64, 512, 1500]);
    const logits = logitsOf(random, size, random.pick([0, 0.1, 1, 8, 60]));
    const steps = random.pick([0, 3, 40]);
    const { weights } = outputOf(steps === 0 ? logits : logits.map((logit) => Math.round(logit * steps) / steps));
    const topK = random.pick([1, 2, 5, 40, size - 1, size, Infinity]);
    const topP = random.pick([1e-9, 0.1, 0.5, 0.9, 0.999, 1]);
    const total = weights.reduce((a, b) => a + b, 0);
    const wanted = keptBySorting(weights, topK, topP);
    const kept = cutTokens(weights, total, topK, topP);
    assert.deepEqual([...kept.ids], wanted, `round ${round}: V ${size}, top-k ${topK}, top-p ${topP}`);
    assert.deepEqual(
      [...kept.weights],
      wanted.map((id) => weights[id]),
    );
    if (wanted.length < size) cut++;
  }
  assert.ok(cut > 150);
});

test('among equal weights the smaller ids are kept, and exactly half of four equal tokens is two', () => {
  const { weights } = outputOf([1, 3, 3, 0, 3, 3]);
  const total = weights.reduce((a, b) => a + b, 0);
  assert.deepEqual([...cutTokens(weights, total, 3, 1).ids], [1, 2, 4]);
  assert.deepEqual([...cutTokens(weights, total, 4, 0.5).ids], [1, 2]);
});

test('evenly spread uniforms draw each token as often as its probability says', () => {
  const logits = [2, -1, 0.5, 2, -60, 1];
  const draws = 2_000;
  const rules: readonly SamplingRule[] = [
    { temperature: 1 },
    { temperature: 0.5 },
    { temperature: 1, topK: 3 },
    { temperature: 2, topP: 0.7 },
    { temperature: 0.7, topK: 4, topP: 0.9 },
  ];
  for (const rule of rules) {
    const output = outputOf(logits, rule.temperature);
    const counts = logits.map(() => 0);
    for (let i = 0; i < draws; i++) counts[drawToken(output, rule, (i + 0.5) / draws).token]! += 1;
    const kept = keptBySorting(output.weights, rule.topK ?? Infinity, rule.topP ?? 1);
    const sum = kept.reduce((all, id) => all + Math.exp(logits[id]! / rule.temperature), 0);
    counts.forEach((count, id) => {
      const share = kept.includes(id) ? Math.exp(logits[id]! / rule.temperature) / sum : 0;
      assert.ok(
        Math.abs(count - share * draws) <= 1.01,
        `${JSON.stringify(rule)}: token ${id} drawn ${count} times, expected ${share * draws}`,
      );
    });
  }
});

test('log-probabilities are those of the distribution that was drawn from, and of the untempered policy', () => {
  const random = new Random(2);
  for (let round = 0; round < 200; round++) {
    const logits = logitsOf(random, 300, random.pick([1, 20]));
    const temperature = random.pick([0.3, 1, 1.7]);
    const rule = { temperature, topK: random.pick([10, Infinity]), topP: random.pick([0.8, 1]) };
    const output = outputOf(logits, temperature);
    const { token, logprob, policyLogprob } = drawToken(output, rule, random.next());
    const kept = keptBySorting(output.weights, rule.topK, rule.topP);
    const logSum = (of: readonly number[]): number => Math.log(of.reduce((sum, value) => sum + Math.exp(value), 0));
    assert.ok(kept.includes(token));
    assert.ok(Math.abs(logprob - (logits[token]! / temperature - logSum(kept.map((id) => logits[id]! / temperature)))) < 1e-5);
    assert.ok(Math.abs(policyLogprob - (logits[token]! - logSum(logits))) < 1e-5);
    if (temperature === 1 && rule.topK === Infinity && rule.topP === 1) assert.equal(policyLogprob, logprob);
  }
});

test('cuts that keep everything draw the very token that no cut draws', () => {
  const random = new Random(3);
  const output = outputOf(logitsOf(random, 1000, 4));
  for (let i = 0; i < 200; i++) {
    const uniform = random.next();
    assert.deepEqual(drawToken(output, { temperature: 1, topK: 1000, topP: 1 }, uniform), drawToken(output, { temperature: 1 }, uniform));
  }
});

test('greedy takes the greatest logit, the smaller id of two, whatever the uniform', () => {
  const output = outputOf([0, 5, 1, 5, -2]);
  for (const uniform of [0, 0.5, 1 - 2 ** -53]) {
    const { token, logprob, policyLogprob } = drawToken(output, { temperature: 0 }, uniform);
    assert.deepEqual([token, logprob], [1, 0]);
    assert.ok(Math.abs(policyLogprob + output.logSum) < 1e-6);
  }
});

test('a token without weight is never drawn, not even by the smallest and the greatest uniform', () => {
  for (const size of [4, 700]) {
    const logits = Array.from({ length: size }, (_, i) => (i === 1 || i === size - 2 ? 0 : -Infinity));
    assert.equal(drawToken(outputOf(logits), { temperature: 1 }, 0).token, 1);
    assert.equal(drawToken(outputOf(logits), { temperature: 1 }, 1 - 2 ** -53).token, size - 2);
    assert.equal(drawToken(outputOf(logits), { temperature: 1, topP: 0.9 }, 1 - 2 ** -53).token, size - 2);
  }
});

test('a row that is not finite is an error and no draw', () => {
  for (const logits of [
    [1, NaN, 2],
    [1, Infinity, 2],
  ]) {
    for (const temperature of [0, 1]) assert.throws(() => drawToken(outputOf(logits), { temperature }, 0.5), NumericalError);
  }
});
