import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { SampleRequest, SampleResult } from '../environment/types.ts';
import { Random } from '../method/seeds.ts';
import { createModel, tokenLogprobs } from './model.ts';
import { RawOps } from './sampler-ops.ts';
import { PolicySampler } from './sampler.ts';
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
function sampler(slots = 6): PolicySampler {
  const created = new PolicySampler(model, { slots });
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

test('a request gives the same bits whatever the other slots hold and in which order requests arrive', async () => {
  const wanted = async (one: PolicySampler): Promise<SampleResult[]> => {
    const first = await one.sample(request('me', prompt(3, 40), 11));
    const second = await one.sample(request('me', [...prompt(3, 40), ...first.tokens, ...prompt(4, 12)], 12));
    return [first, second];
  };
  const alone = await wanted(sampler());
  for (let round = 0; round < 4; round++) {
    const one = sampler();
    const random = new Random(round);
    const neighbours = Array.from({ length: 8 }, (_, i) => async () => {
      for (let wait = random.int(5); wait > 0; wait--) await new Promise(setImmediate);
      const tokens = prompt(1000 * round + i, 5 + random.int(70));
      await one.sample(request(`n${i}`, tokens, i, 1 + random.int(30)));
      one.endSession(`n${i}`);
    });
    const mine = { result: [] as SampleResult[] };
    const all = random.shuffle([...neighbours, async () => void (mine.result = await wanted(one))]);
    await Promise.all(all.map((run) => run()));
    assert.deepEqual(mine.result, alone);
  }
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
