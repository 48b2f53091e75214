import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { tinyConfig } from '../tests/fixtures/tiny-config.ts';
import { UserError } from '../environment/errors.ts';
import type { SampleRequest } from '../environment/types.ts';
import { saveModel } from './checkpoint.ts';
import { createModel, disposeModel } from './model-parameters.ts';
import { SamplerBusyError } from './sampler-errors.ts';
import { samplerBytes } from './sampler-memory.ts';
import { SamplerPool } from './sampler-pool.ts';
import type { SamplerPoolOptions } from './sampler-pool.ts';
import type { ModelConfig } from './types.ts';

const config: ModelConfig = {
  ...tinyConfig,
  vocab_size: 32,
  hidden_size: 16,
  intermediate_size: 32,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  head_dim: 8,
  max_position_embeddings: 64,
  num_key_value_heads: 1,
};
// Compiling would take longer than the tests.
process.env['TERMINAL_RSI_ENGINE'] = 'eager';
const slots = 3;
const root = await mkdtemp(join(tmpdir(), 'sampler-pool-test-'));
const model = createModel(config, 'actor', 1);
saveModel(model, join(root, 'policy'));
disposeModel(model);
const pools: SamplerPool[] = [];
after(async () => {
  for (const pool of pools) pool.close();
  await rm(root, { recursive: true, force: true });
});
const one = samplerBytes(config, slots);

/** A pool in which every hash is the same policy, and how often each was resolved. */
function poolOf(options: SamplerPoolOptions, failures: string[] = []): { pool: SamplerPool; loads: string[] } {
  const loads: string[] = [];
  const directory = (policy: string): Promise<string> => {
    loads.push(policy);
    const failure = failures.shift();
    return failure === undefined ? Promise.resolve(join(root, 'policy')) : Promise.reject(new Error(failure));
  };
  const pool = new SamplerPool(directory, { slots, ...options });
  pools.push(pool);
  return { pool, loads };
}
const request = (policy: string, sessionId = policy): SampleRequest => ({
  ...{ policy, sessionId, tokens: [1, 5, 6], seed: 3, maxTokens: 4, temperature: 1 },
});

test('bytes are those of float32 weights and of keys and values of every slot over the whole context', () => {
  const [D, F, V, width] = [16, 32, 32, 8 * (2 + 2)];
  const weights = V * D + D + (D * width + 8 + 8 + 16 * D + 2 * D + D * 2 * F + F * D);
  assert.equal(one, 4 * (weights + slots * 64 * 2 * 8));
});

test('first requests at the same time load a policy once', async () => {
  const { pool, loads } = poolOf({});
  const results = await Promise.all([pool.sample(request('a', '1')), pool.sample(request('a', '2')), pool.sample(request('a', '3'))]);
  assert.deepEqual(loads, ['a']);
  assert.deepEqual(results[1], results[0]);
});

test('a load that failed fails all who waited for it, and the next request tries again', async () => {
  const { pool, loads } = poolOf({}, ['disk is away']);
  const both = await Promise.allSettled([pool.sample(request('a', '1')), pool.sample(request('a', '2'))]);
  assert.deepEqual(
    both.map(({ status }) => status),
    ['rejected', 'rejected'],
  );
  assert.ok((await pool.sample(request('a', '1'))).tokens.length > 0);
  assert.deepEqual(loads, ['a', 'a']);
});

test('the least recently used policy without episodes makes room; one with episodes stays', async () => {
  const { pool, loads } = poolOf({ residentPolicies: 2 });
  const { tokens } = await pool.sample(request('a'));
  await pool.sample(request('b'));
  pool.endSession('b');
  await pool.sample(request('c'));
  assert.deepEqual(Object.keys(pool.statistics()), ['a', 'c']);
  await pool.sample({ ...request('a'), tokens: [1, 5, 6, ...tokens, 7] }, { continued: true });
  assert.deepEqual(loads, ['a', 'b', 'c']);
});

test('memory is a hard limit: a policy waits until the episodes of another are over, and is loaded then', async () => {
  const { pool } = poolOf({ memoryBytes: 1.5 * one });
  await pool.sample(request('a'));
  await assert.rejects(pool.sample(request('b')), (error) => error instanceof SamplerBusyError && error.retryAfterSeconds > 0);
  pool.endSession('a');
  assert.ok((await pool.sample(request('b'))).tokens.length > 0);
  assert.deepEqual(Object.keys(pool.statistics()), ['b']);
});

test('two policies that fit only one after the other are not loaded together', async () => {
  const { pool } = poolOf({ memoryBytes: 1.5 * one });
  const results = await Promise.allSettled([pool.sample(request('a')), pool.sample(request('b'))]);
  assert.deepEqual(results.map(({ status }) => status).sort(), ['fulfilled', 'rejected']);
});

test('a policy that no waiting makes fit is refused with the figures and the remedies', async () => {
  const { pool } = poolOf({ memoryBytes: one - 1 });
  await assert.rejects(
    pool.sample(request('a')),
    (error) => error instanceof UserError && /takes 0\.00 GiB .*TERMINAL_RSI_SAMPLER_SLOTS/.test(error.message),
  );
});

test('the policy of abandoned episodes may be dropped', async () => {
  const { pool } = poolOf({ memoryBytes: 1.5 * one, abandonedAfterMs: -1 });
  await pool.sample(request('a'));
  assert.ok((await pool.sample(request('b'))).tokens.length > 0);
  await assert.rejects(pool.sample({ ...request('b', 'a') }, { continued: true }), { code: 'session-lost' });
});

test('a pool that is closed while a policy loads leaves no sampler behind', async () => {
  const { pool } = poolOf({});
  const pending = pool.sample(request('a'));
  pool.close();
  await assert.rejects(pending, { code: 'session-lost' });
  assert.deepEqual(pool.statistics(), {});
});
