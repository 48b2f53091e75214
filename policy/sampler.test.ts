import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { SampleRequest, SampleResult } from '../environment/types.ts';
import { Random } from '../method/seeds.ts';
import { createModel, tokenLogprobs } from './model.ts';
import { SampleTimeoutError, SamplerBusyError } from './sampler-errors.ts';
import { RawOps } from './sampler-ops.ts';
import { PolicySampler } from './sampler.ts';
import type { PolicySamplerOptions } from './sampler.ts';
import { tf } from './tensorflow.ts';
import type { ModelConfig } from './types.ts';

const config: ModelConfig = {
  architectures: ['Qwen3ForCausalLM'],
  model_type: 'qwen3',
  vocab_size: 64,
  hidden_size: 32,
  intermediate_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 8,
  max_position_embeddings: 128,
  rms_norm_eps: 1e-6,
  rope_theta: 10000,
  tie_word_embeddings: true,
  bos_token_id: 1,
  eos_token_id: 2,
  torch_dtype: 'float32',
};
const model = createModel(config, 'actor', 7);
// Fresh weights make nearly uniform distributions; larger ones and uneven norms make a test that can fail.
for (const [name, parameter] of model.params) {
  const random = new Random(name.length * 31 + parameter.size);
  const isNorm = /norm$/i.test(name);
  const values = Float32Array.from(parameter.dataSync(), (value) => (isNorm ? 0.5 + random.next() : value * 8));
  parameter.assign(tf.tensor(values, parameter.shape));
}
const open: PolicySampler[] = [];
function sampler(slots = 6, options: PolicySamplerOptions = {}): PolicySampler {
  const created = new PolicySampler(model, { ...options, slots });
  open.push(created);
  return created;
}
after(() => {
  for (const one of open) one.close();
});
const prompt = (seed: number, length: number): number[] => {
  const random = new Random(seed);
  return Array.from({ length }, () => 3 + random.int(60));
};
const request = (sessionId: string, tokens: number[], seed: number, maxTokens = 20): SampleRequest => ({
  sessionId,
  policy: 'test',
  tokens,
  seed,
  maxTokens,
  temperature: 1,
});

test('log-probabilities at sampling equal the training forward pass on the same tokens', async () => {
  const one = sampler();
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

for (const slots of [1, 2, 3, 9]) {
  test(`with ${slots} slots a request gives the same bits whatever others do: their order, cancellations, time limits, and whether it is parked`, async () => {
    const seeds = [33, 34, 100, 259];
    const alone: SampleResult[][] = [];
    for (const seed of seeds) alone.push(await episode(sampler(slots), `e${seed}`, seed, rules));
    for (let round = 0; round < 4; round++) {
      // Sessions give up their slots between turns as soon as somebody waits.
      const one = sampler(slots, { idleLimitMs: round % 2 === 0 ? -1 : 10 });
      const sweeping = setInterval(() => one.sweep(), 2);
      const random = new Random(round);
      const pause = async (): Promise<void> => {
        for (let wait = random.int(12); wait > 0; wait--) await new Promise(setImmediate);
      };
      const neighbour = (i: number) => async (): Promise<void> => {
        await pause();
        const abort = new AbortController();
        const limit = random.chance(0.2) ? { timeoutMs: 1 + random.int(10) } : {};
        const running = one.sample(
          { ...request(`n${i}`, prompt(1000 * round + i, 5 + random.int(70)), i, 1 + random.int(30)), ...limit },
          abort,
        );
        if (random.chance(0.3)) void pause().then(() => abort.abort(new Error('cancelled')));
        await running.catch((error: Error) => assert.match(error.message, /cancelled|time limit/));
        if (random.chance(0.5)) one.endSession(`n${i}`);
      };
      const results: SampleResult[][] = [];
      const neighbours = Array.from({ length: 10 }, (_, i) => neighbour(i));
      const mine = seeds.map((seed, i) => async () => void (results[i] = await episode(one, `e${seed}`, seed, rules)));
      await Promise.all(random.shuffle([...neighbours, ...mine]).map((run) => run()));
      clearInterval(sweeping);
      assert.deepEqual(results, alone, `round ${round}`);
    }
  });
}

test('few slots and many give the same tokens, and log-probabilities to 1e-4', async () => {
  const [first, ...rest] = await Promise.all([6, 1, 2].map((slots) => episode(sampler(slots), 'me', 33, rules)));
  for (const results of rest) {
    for (const [turn, result] of results.entries()) {
      assert.deepEqual(result.tokens, first![turn]!.tokens);
      result.policyLogprobs!.forEach((value, i) => assert.ok(Math.abs(value - first![turn]!.policyLogprobs![i]!) < 1e-4));
    }
  }
});

test('an episode of many turns keeps the numbers of the training forward pass, also where it was parked again and again', async () => {
  const one = sampler(1, { idleLimitMs: -1 });
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
  assert.ok(one.statistics().fedTokens > 5 * tokens.length, 'it was fed again');
  const forward = tokenLogprobs(model, { rows: 1, length: tokens.length, tokens, mask });
  forward.forEach((value, i) => assert.ok(Math.abs(value - sampled[i]!) < 1e-4, `token ${i}: ${value} and ${sampled[i]}`));
});

test('greedy takes the most probable token of the training forward pass, whatever the seed', async () => {
  const one = sampler();
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

test('a turn ends at any of its stop tokens, which is the last token of the answer', async () => {
  const one = sampler();
  const free = await one.sample(request('free', prompt(3, 20), 5, 20));
  const [stop, other] = [free.tokens[3]!, free.tokens[7]!];
  const stopped = await one.sample({ ...request('stopped', prompt(3, 20), 5, 20), stopTokens: [other, stop] });
  assert.equal(stopped.stopReason, 'stop-token');
  assert.deepEqual(stopped.tokens, free.tokens.slice(0, Math.min(free.tokens.indexOf(stop), free.tokens.indexOf(other)) + 1));
});

test('a neighbour so long that more of the cache is read changes no bit of a short request', async () => {
  const long = { ...config, max_position_embeddings: 512 };
  const results: SampleResult[] = [];
  for (const neighbourLength of [5, 100, 250, 400]) {
    const one = new PolicySampler({ config: long, params: model.params }, { slots: 6 });
    open.push(one);
    const neighbour = one.sample(request('long', prompt(2, neighbourLength), 5, 100));
    for (let i = 0; i < 20; i++) await new Promise(setImmediate);
    results.push(await one.sample(request('short', prompt(1, 50), 1, 40)));
    await neighbour;
  }
  for (const result of results.slice(1)) assert.deepEqual(result, results[0]);
});

test('a kept session continues as a fresh prefill of the whole sequence would, to 1e-4', async () => {
  const one = sampler();
  const first = await one.sample(request('kept', prompt(5, 33), 1));
  const longer = [...prompt(5, 33), ...first.tokens, ...prompt(6, 20)];
  const kept = await one.sample(request('kept', longer, 2, 5));
  const fresh = await one.sample(request('fresh', longer, 2, 5));
  assert.deepEqual(kept.tokens, fresh.tokens);
  kept.logprobs.forEach((value, i) => assert.ok(Math.abs(value - fresh.logprobs[i]!) < 1e-4));
});

test('tokens that do not extend the session are refused, and an unknown continued session is lost', async () => {
  const one = sampler();
  await one.sample(request('s', prompt(7, 10), 1, 2));
  await assert.rejects(one.sample(request('s', prompt(8, 20), 1, 2)), { code: 'session-prefix' });
  await assert.rejects(one.sample(request('other', prompt(8, 20), 1, 2), { continued: true }), { code: 'session-lost' });
});

test('sampling stops at the context limit, and a full context samples nothing', async () => {
  const one = sampler();
  const nearlyFull = prompt(9, 125);
  const result = await one.sample(request('full', nearlyFull, 4, 50));
  assert.ok(result.tokens.length <= 3);
  if (!result.tokens.includes(2)) assert.equal(result.stopReason, 'context');
  assert.deepEqual(await one.sample(request('over', prompt(9, 128), 4)), {
    ...{ tokens: [], logprobs: [], policyLogprobs: [] },
    stopReason: 'context',
  });
});

test('requests beyond the slots wait for one to become free, and an abort frees its slot', async () => {
  const one = sampler(1);
  const abort = new AbortController();
  const aborted = one.sample(request('first', prompt(1, 20), 1, 100), { signal: abort.signal });
  const second = one.sample(request('second', prompt(2, 20), 1, 3));
  assert.equal(one.statistics().queued, 1);
  abort.abort(new Error('client went away'));
  await assert.rejects(aborted, /client went away/);
  assert.ok((await second).tokens.length > 0);
});

test('a request past the queue limit is refused with a time to come again, and its session is as before', async () => {
  const one = sampler(1, { queueLimit: 1, idleLimitMs: -1 });
  const first = await one.sample(request('a', prompt(1, 9), 1, 2));
  const running = one.sample(request('b', prompt(2, 9), 2, 30));
  const waiting = one.sample(request('c', prompt(3, 9), 3, 2));
  const next = request('a', [...prompt(1, 9), ...first.tokens, 5], 4, 2);
  await assert.rejects(one.sample(next, { continued: true }), (error) => error instanceof SamplerBusyError && error.retryAfterSeconds >= 1);
  assert.equal(one.statistics().requests.refused, 1);
  await Promise.all([running, waiting]);
  assert.ok((await one.sample(next, { continued: true })).tokens.length > 0);
});

test('waiting requests get slots in the order of their arrival', async () => {
  const one = sampler(2, { idleLimitMs: -1 });
  const order: number[] = [];
  const ask = async (i: number): Promise<void> => {
    await one.sample({ ...request(`s${i}`, prompt(i, 40 - i), i, 3), temperature: 0 });
    order.push(i);
    one.endSession(`s${i}`);
  };
  await Promise.all(Array.from({ length: 9 }, (_, i) => ask(i)));
  order.forEach((i, place) => assert.ok(Math.abs(i - place) <= 1, `order ${order.join(' ')}`));
});

test('a time limit ends a running request and a waiting one, frees the slot and ends the session', async () => {
  const one = sampler(1);
  const running = one.sample({ ...request('running', prompt(1, 20), 1, 100), timeoutMs: 20 });
  const waiting = one.sample({ ...request('waiting', prompt(2, 20), 1), timeoutMs: 10 });
  const patient = one.sample(request('patient', prompt(3, 20), 1, 3));
  const late = performance.now() + 30;
  while (performance.now() < late); // no step in between
  await Promise.all([
    assert.rejects(waiting, (error) => error instanceof SampleTimeoutError && /0 tokens after 10 ms/.test(error.message)),
    assert.rejects(running, { code: 'sample-timeout' }),
  ]);
  assert.ok((await patient).tokens.length > 0);
  await assert.rejects(one.sample(request('running', prompt(1, 30), 1), { continued: true }), { code: 'session-lost' });
  assert.deepEqual([one.statistics().requests.timedOut, one.statistics().busySlots], [2, 1]);
});

test('a session is parked only where somebody waits for its slot, and forgotten only beyond the limit of tokens', async () => {
  const one = sampler(1, { idleLimitMs: -1, parkedTokens: 30 });
  const ask = async (id: string, length: number): Promise<number[]> => {
    const tokens = prompt(1, length);
    return [...tokens, ...(await one.sample(request(id, tokens, 1, 1))).tokens, 5];
  };
  const first = await ask('first', 15);
  one.sweep();
  assert.deepEqual([one.statistics().busySlots, one.statistics().parked], [1, 0]);
  const second = await ask('second', 17);
  assert.equal(one.statistics().parked, 1);
  await ask('third', 5);
  await assert.rejects(one.sample(request('first', first, 1), { continued: true }), { code: 'session-lost' });
  assert.ok((await one.sample(request('second', second, 1, 1), { continued: true })).tokens.length > 0);
});

test('statistics count tokens and ends, and tell how long first tokens took', async () => {
  const one = sampler(2);
  assert.equal(one.statistics().timeToFirstToken, undefined);
  const result = await one.sample(request('a', prompt(1, 20), 1, 5));
  const abort = new AbortController();
  const cancelled = one.sample(request('b', prompt(2, 20), 1, 50), abort);
  assert.equal(one.statistics().active, 1);
  abort.abort(new Error('gone'));
  await assert.rejects(cancelled, /gone/);
  const { sampledTokens, fedTokens, requests, timeToFirstToken, tokensPerSecond } = one.statistics();
  assert.equal(sampledTokens, result.tokens.length);
  assert.equal(fedTokens, 20 + result.tokens.length - 1);
  assert.deepEqual(requests, { answered: 1, refused: 0, timedOut: 0, cancelled: 1, failed: 0 });
  assert.ok(timeToFirstToken!.median > 0 && timeToFirstToken!.max >= timeToFirstToken!.median && tokensPerSecond > 0);
});

test('many steps and many sessions leave no tensor behind', async () => {
  const one = sampler();
  const ops = new RawOps();
  await one.sample(request('warm', prompt(1, 40), 1, 5));
  const before = ops.alive();
  for (let i = 0; i < 10; i++) {
    await one.sample(request(`s${i}`, prompt(i, 40), i, 10));
    one.endSession(`s${i}`);
  }
  assert.equal(ops.alive(), before);
});
