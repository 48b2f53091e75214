/** The numbers of the sampler: those of the training forward pass, and the same to the last bit whatever else it does. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SampleRequest, SampleResult } from '../environment/types.ts';
import { Random } from '../method/seeds.ts';
import { binding } from './engine/binding.ts';
import { tokenLogprobs } from './evaluation.ts';
import type { PolicySampler } from './sampler.ts';
import { config, model, prompt, request, sampler, sharedSampler } from './sampler-testing.ts';

test('log-probabilities at sampling equal the training forward pass on the same tokens', async () => {
  const one = sharedSampler(9);
  const tokens = prompt(1, 45);
  const turnMask = tokens.map(() => 0);
  const behaviour: number[] = tokens.map(() => 0);
  for (let turn = 0; turn < 2; turn++) {
    const result = await one.sample(request('a', [...tokens], 100 + turn));
    tokens.push(...result.tokens);
    behaviour.push(...result.logprobs);
    turnMask.push(...result.tokens.map(() => 1));
    const observation = prompt(50 + turn, 9);
    tokens.push(...observation);
    behaviour.push(...observation.map(() => 0));
    turnMask.push(...observation.map(() => 0));
  }
  const forward = tokenLogprobs(model, { rows: 1, length: tokens.length, tokens, mask: turnMask });
  assert.ok(turnMask.reduce((a, b) => a + b, 0) > 10);
  forward.forEach((value, i) => assert.ok(Math.abs(value - behaviour[i]!) < 1e-4, `token ${i}: ${value} and ${behaviour[i]}`));
});

/** Turns of one episode, each with its own rule; what the sampler said is followed by an observation. */
async function episode(one: PolicySampler, id: string, seed: number, rules: readonly Partial<SampleRequest>[]): Promise<SampleResult[]> {
  const tokens = prompt(seed, 1 + (seed % 60));
  const results: SampleResult[] = [];
  for (const [turn, rule] of rules.entries()) {
    const result = await one.sample({ ...request(id, [...tokens], seed * 10 + turn, 5), ...rule }, { continued: turn > 0 });
    tokens.push(...result.tokens, ...prompt(seed + turn, 1 + ((seed + turn) % 11)));
    results.push(result);
  }
  one.endSession(id);
  return results;
}
const rules: readonly Partial<SampleRequest>[] = [
  { temperature: 1 },
  { temperature: 0.6, topK: 8 },
  { temperature: 0 },
  { temperature: 1.4, topP: 0.8, stopTokens: [9, 11] },
];

for (const slots of [1, 2, 9]) {
  test(`with ${slots} slots a request gives the same bits whatever others do: their order, cancellations, time limits, and whether it is parked`, async () => {
    const one = sharedSampler(slots);
    const seeds = [33, 34, 100, 259];
    const alone: SampleResult[][] = [];
    for (const seed of seeds) alone.push(await episode(one, `e${seed}`, seed, rules));
    // Idle sessions give way as soon as somebody waits; the timer is the pool's.
    const sweeping = setInterval(() => one.sweep(), 2);
    for (let round = 0; round < 3; round++) {
      const random = new Random(round);
      const pause = async (): Promise<void> => {
        for (let wait = random.int(12); wait > 0; wait--) await new Promise(setImmediate);
      };
      const neighbour = (i: number) => async (): Promise<void> => {
        await pause();
        const abort = new AbortController();
        const limit = random.chance(0.2) ? { timeoutMs: 1 + random.int(10) } : {};
        const asked = request(`n${round}.${i}`, prompt(1000 * round + i, 5 + random.int(70)), i, 1 + random.int(30));
        const running = one.sample({ ...asked, ...limit }, abort);
        if (random.chance(0.3)) void pause().then(() => abort.abort(new Error('cancelled')));
        await running.catch((error: Error) => assert.match(error.message, /cancelled|time limit/));
        if (random.chance(0.5)) one.endSession(asked.sessionId);
      };
      const results: SampleResult[][] = [];
      const neighbours = Array.from({ length: 8 }, (_, i) => neighbour(i));
      const mine = seeds.map((seed, i) => async () => void (results[i] = await episode(one, `e${seed}`, seed, rules)));
      await Promise.all(random.shuffle([...neighbours, ...mine]).map((run) => run()));
      assert.deepEqual(results, alone, `round ${round}`);
    }
    clearInterval(sweeping);
  });
}

test('few slots and many give the same tokens, and log-probabilities to 1e-4', async () => {
  const [first, ...rest] = await Promise.all([9, 1, 2].map((slots) => episode(sharedSampler(slots), 'me', 33, rules)));
  for (const results of rest) {
    for (const [turn, result] of results.entries()) {
      assert.deepEqual(result.tokens, first![turn]!.tokens);
      result.policyLogprobs!.forEach((value, i) => assert.ok(Math.abs(value - first![turn]!.policyLogprobs![i]!) < 1e-4));
    }
  }
});

test('an episode of many turns keeps the numbers of the training forward pass, also where it was parked again and again', async () => {
  const one = sharedSampler(1);
  const before = one.statistics().fedTokens;
  const tokens = prompt(21, 10);
  const mask = tokens.map(() => 0);
  const sampled = tokens.map(() => 0);
  for (let turn = 0; turn < 12; turn++) {
    const result = await one.sample(request('long', [...tokens], turn, 4), { continued: turn > 0 });
    await one.sample(request(`other ${turn}`, prompt(turn, 20), turn, 1));
    one.endSession(`other ${turn}`);
    const observation = prompt(60 + turn, 1 + (turn % 7));
    tokens.push(...result.tokens, ...observation);
    mask.push(...result.tokens.map(() => 1), ...observation.map(() => 0));
    sampled.push(...result.policyLogprobs!, ...observation.map(() => 0));
  }
  assert.ok(one.statistics().fedTokens - before > 5 * tokens.length, 'it was fed again');
  const forward = tokenLogprobs(model, { rows: 1, length: tokens.length, tokens, mask });
  forward.forEach((value, i) => assert.ok(Math.abs(value - sampled[i]!) < 1e-4, `token ${i}: ${value} and ${sampled[i]}`));
});

test('greedy takes the most probable token of the training forward pass, whatever the seed', async () => {
  const one = sharedSampler(9);
  const tokens = prompt(12, 30);
  const greedy = await one.sample({ ...request('g', tokens, 1, 1), temperature: 0 });
  const rows = Array.from({ length: config.vocab_size }, (_, token) => [...tokens, token]);
  const length = tokens.length + 1;
  const mask = rows.flatMap(() => [...tokens.map(() => 0), 1]);
  const logprobs = tokenLogprobs(model, { rows: rows.length, length, tokens: rows.flat(), mask }).filter((_, i) => mask[i] === 1);
  assert.deepEqual(greedy.tokens, [logprobs.indexOf(Math.max(...logprobs))]);
  assert.deepEqual(greedy.logprobs, [0]);
  assert.ok(Math.abs(greedy.policyLogprobs![0]! - Math.max(...logprobs)) < 1e-4);
  const again = await one.sample({ ...request('h', tokens, 2, 1), temperature: 0 });
  assert.deepEqual(again, greedy);
});

test('a neighbour so long that more of the cache is read changes no bit of a short request', async () => {
  const one = sampler(6, {}, { ...config, max_position_embeddings: 256 });
  const results: SampleResult[] = [];
  for (const length of [5, 90, 190]) {
    const neighbour = one.sample(request(`long ${length}`, prompt(2, length), 5, 40));
    for (let i = 0; i < 20; i++) await new Promise(setImmediate);
    results.push(await one.sample(request(`short ${length}`, prompt(1, 50), 1, 40)));
    await neighbour;
  }
  for (const result of results.slice(1)) assert.deepEqual(result, results[0]);
});

test('a kept session continues as a fresh prefill of the whole sequence would, to 1e-4', async () => {
  const one = sharedSampler(9);
  const first = await one.sample(request('kept', prompt(5, 33), 1));
  const longer = [...prompt(5, 33), ...first.tokens, ...prompt(6, 20)];
  const kept = await one.sample(request('kept', longer, 2, 5));
  const fresh = await one.sample(request('fresh', longer, 2, 5));
  assert.deepEqual(kept.tokens, fresh.tokens);
  kept.logprobs.forEach((value, i) => assert.ok(Math.abs(value - fresh.logprobs[i]!) < 1e-4));
});

test('many steps and many sessions leave no tensor behind', async () => {
  const one = sharedSampler(9);
  await one.sample(request('warm', prompt(1, 40), 1, 5));
  const before = binding().getNumOfTensors();
  for (let i = 0; i < 10; i++) {
    await one.sample(request(`s${i}`, prompt(i, 40), i, 10));
    one.endSession(`s${i}`);
  }
  assert.equal(binding().getNumOfTensors(), before);
});
