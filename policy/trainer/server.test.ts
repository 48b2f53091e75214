/** The sampler behind its HTTP server, in one process, with a client at the other end. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, it } from 'node:test';
import pino from 'pino';
import type { SampleRequest } from '../../environment/types.ts';
import { saveModel } from '../checkpoint.ts';
import { createModel, disposeModel } from '../model-parameters.ts';
import type { SamplerStatistics } from '../sampler-metrics.ts';
import { SamplerPool } from '../sampler-pool.ts';
import { HttpSampler } from './client.ts';
import { LocalTrainer } from './local.ts';
import { startTrainerServer } from './server.ts';

// Compiling would take longer than the tests.
process.env['TERMINAL_RSI_ENGINE'] = 'eager';
const root = await mkdtemp(join(tmpdir(), 'trainer-server-test-'));
const model = createModel(
  {
    ...{ architectures: ['Qwen3ForCausalLM'], model_type: 'qwen3', vocab_size: 64, hidden_size: 16, intermediate_size: 32 },
    ...{ num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1, head_dim: 8, max_position_embeddings: 2048 },
    ...{ rms_norm_eps: 1e-6, rope_theta: 10000, tie_word_embeddings: true, bos_token_id: 1, eos_token_id: 2, torch_dtype: 'float32' },
  },
  'actor',
  1,
);
saveModel(model, join(root, 'policy'));
disposeModel(model);
const samplers = new SamplerPool(() => Promise.resolve(join(root, 'policy')), { slots: 1, queueLimit: 1 });
const server = await startTrainerServer({
  ...{ trainer: new LocalTrainer(), samplers, logger: pino({ level: 'silent' }), host: '127.0.0.1', port: 0 },
});
const url = `http://127.0.0.1:${server.port}`;
after(async () => {
  await server.close();
  await rm(root, { recursive: true, force: true });
});

const policy = 'a'.repeat(64);
const sampler = new HttpSampler(url);
const request = (sessionId: string, over: Partial<SampleRequest> = {}): SampleRequest => ({
  ...{ sessionId, policy, tokens: [1, 5, 6], seed: 1, maxTokens: 3, temperature: 1 },
  ...over,
});
/** The most probable token of this policy is never the end of the turn. */
const endless = { tokens: [1, 5], maxTokens: 2000, temperature: 0 };
async function statistics(): Promise<SamplerStatistics> {
  const health = (await (await fetch(`${url}/health`)).json()) as { policies: Record<string, SamplerStatistics> };
  return health.policies[policy]!;
}

it('takes rules, stop tokens and limits, and answers with both log-probabilities', async () => {
  const result = await sampler.sample(request('rules', { temperature: 0.7, topK: 20, topP: 0.9, stopTokens: [7], timeoutMs: 60_000 }));
  assert.equal(result.policyLogprobs!.length, result.tokens.length);
  await sampler.endSession('rules');
  for (const [field, value] of Object.entries({ topK: 0, topP: 1.5, timeoutMs: 0, stopTokens: [-1] }))
    await assert.rejects(sampler.sample(request('bad', { [field]: value })), new RegExp(`${field}.* is `));
  await assert.rejects(sampler.sample(request('bad', { stopTokens: [64] })), /stopTokens\[0\] is 64, expected an integer in 0\.\.63/);
});

it('a time limit arrives as what it is, and the slot is free', async () => {
  await assert.rejects(sampler.sample(request('slow', { ...endless, timeoutMs: 5 })), { code: 'sample-timeout' });
  const { requests, busySlots } = await statistics();
  assert.deepEqual([requests.timedOut, busySlots], [1, 0]);
});

it('a full queue answers 503 with Retry-After, and the client comes again until there is room', async () => {
  const abort = new AbortController();
  const running = sampler.sample(request('running', endless), abort.signal);
  const waiting = sampler.sample(request('waiting'), abort.signal);
  while ((await statistics()).queued === 0);
  const body = JSON.stringify(request('refused'));
  const refused = await fetch(`${url}/v1/sample`, { method: 'POST', body });
  assert.equal(refused.status, 503);
  assert.match(refused.headers.get('retry-after')!, /^[1-9]\d*$/);
  assert.deepEqual(((await refused.json()) as { error: { code: string } }).error.code, 'sampler-busy');
  const coming = sampler.sample(request('coming'));
  while ((await statistics()).requests.refused < 2);
  abort.abort(new Error('cancelled'));
  await assert.rejects(running, /cancelled/);
  await assert.rejects(waiting, /cancelled/);
  assert.ok((await coming).tokens.length > 0);
});
