import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { tinyConfig } from '../../tests/fixtures/tiny-config.ts';
import { UserError } from '../../environment/errors.ts';
import type { SampleRequest } from '../../environment/types.ts';
import { ArtifactStore } from '../../records/artifacts.ts';
import { readTokenizer, saveModel } from '../checkpoint.ts';
import { createModel, disposeModel } from '../model-parameters.ts';
import type { ModelConfig } from '../types.ts';
import { HttpSampler, HttpTrainer } from './client.ts';
import { TrainerLostError } from './errors.ts';
import { LocalTrainer } from './local.ts';

const config: ModelConfig = {
  ...tinyConfig,
  vocab_size: 64,
  hidden_size: 16,
  intermediate_size: 32,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  head_dim: 8,
  max_position_embeddings: 128,
  num_key_value_heads: 1,
};
const root = await mkdtemp(join(tmpdir(), 'trainer-test-'));
await mkdir(join(root, 'tokenizer'));
await writeFile(join(root, 'tokenizer', 'tokenizer.json'), '{}');
const directory = join(root, 'policy');
const model = createModel(config, 'actor', 1);
saveModel(model, directory, { tokenizer: readTokenizer(join(root, 'tokenizer')) });
disposeModel(model);
const policy = (await new ArtifactStore(join(root, 'data', 'artifacts')).putDirectory('policy', directory)).sha256;

const children: ChildProcess[] = [];
after(async () => {
  for (const child of children) child.kill('SIGKILL');
  await rm(root, { recursive: true, force: true });
});

async function start(port = 0, env: Record<string, string> = {}): Promise<{ child: ChildProcess; url: string; port: number }> {
  const child = fork(join(import.meta.dirname, 'main.ts'), {
    execArgv: ['--import', 'tsx'],
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    env: {
      ...process.env,
      TERMINAL_RSI_DATA: join(root, 'data'),
      TERMINAL_RSI_TRAINER_PORT: String(port),
      TERMINAL_RSI_SAMPLER_SLOTS: '4',
      ...env,
    },
  });
  children.push(child);
  const [message] = (await once(child, 'message')) as [{ type: string; port: number }];
  assert.equal(message.type, 'ready');
  return { child, port: message.port, url: `http://127.0.0.1:${message.port}` };
}
const request = (sessionId: string, tokens: number[], over: Partial<SampleRequest> = {}): SampleRequest => ({
  sessionId,
  policy,
  tokens,
  seed: 9,
  maxTokens: 6,
  temperature: 1,
  ...over,
});
const batch = { rows: 1, length: 4, tokens: [1, 5, 6, 7], mask: [0, 1, 1, 1] };
const adam = { learningRate: 0.01, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weightDecay: 0, maxGradientNorm: 1 };

test('over HTTP: sampling, training with the numbers of the in-process trainer, typed errors, restart', { timeout: 90_000 }, async (t) => {
  const first = await start();
  const sampler = new HttpSampler(first.url);
  const trainer = new HttpTrainer(first.url);
  let sampled: number[] = [];

  await t.test('samples in sessions and reports its health', async () => {
    const result = await sampler.sample(request('a', [1, 5, 6]));
    assert.equal(result.tokens.length, result.logprobs.length);
    sampled = result.tokens;
    await sampler.sample(request('a', [1, 5, 6, ...result.tokens, 9], { seed: 10 }));
    const health = (await (await fetch(`${first.url}/health`)).json()) as { pid: number; policies: Record<string, { busySlots: number }> };
    assert.equal(health.pid, first.child.pid);
    assert.equal(health.policies[policy]!.busySlots, 1);
    await sampler.endSession('a');
  });

  await t.test('trains as the in-process trainer does', async () => {
    const local = new LocalTrainer();
    const numbers = [];
    for (const one of [local, trainer]) {
      const handle = await one.load({ role: 'actor', directory });
      const before = await one.forward(handle, 'logprobs', batch);
      const sums = await one.forwardBackward(handle, { kind: 'sft', denominator: 3 }, batch);
      const step = await one.optimStep(handle, adam);
      numbers.push({ before, sums, step, after: await one.forward(handle, 'logprobs', batch) });
      const output = join(root, `saved-${numbers.length}`);
      await one.save(handle, { directory: output, optimizer: `${output}-optimizer` });
      await one.release(handle);
    }
    assert.deepEqual(numbers[1], numbers[0]);
    assert.ok(numbers[0]!.after[1]! > numbers[0]!.before[1]!);
  });

  await t.test('names the field, the value and what was expected in a bad request', async () => {
    await assert.rejects(
      sampler.sample(request('b', [1], { temperature: -1 })),
      (error: Error) => error instanceof UserError && /temperature is -1/.test(error.message),
    );
    await assert.rejects(sampler.sample(request('b', [999])), /tokens\[0\] is 999/);
    await assert.rejects(sampler.sample(request('b', [1], { policy: 'f'.repeat(64) })), UserError);
    await assert.rejects(trainer.load({ role: 'actor', directory: join(root, 'missing') }), UserError);
    await assert.rejects(trainer.forward('no-such-handle', 'values', batch), TrainerLostError);
  });

  await t.test('a client that goes away frees its slot', async () => {
    const abort = new AbortController();
    const pending = sampler.sample(request('gone', [1, 5], { maxTokens: 100, temperature: 50 }), abort.signal);
    abort.abort(new Error('cancelled'));
    await assert.rejects(pending, /cancelled/);
    for (;;) {
      const health = (await (await fetch(`${first.url}/health`)).json()) as { policies: Record<string, { busySlots: number }> };
      if (health.policies[policy]!.busySlots === 0) break;
    }
  });

  await t.test('after a restart: a running session is lost, a first request waits, and its tokens are the same as before', async () => {
    const kept = await sampler.sample(request('c', [1, 5, 6]));
    assert.deepEqual(kept.tokens, sampled);
    first.child.kill('SIGKILL');
    await once(first.child, 'exit');
    await assert.rejects(sampler.sample(request('c', [1, 5, 6, ...kept.tokens, 9])), { code: 'session-lost' });
    const waiting = sampler.sample(request('d', [1, 5, 6]));
    const second = await start(first.port);
    assert.deepEqual((await waiting).tokens, sampled);
    await assert.rejects(trainer.forward('actor-1', 'logprobs', batch), TrainerLostError);
    second.child.kill('SIGTERM');
    assert.deepEqual(await once(second.child, 'exit'), [0, null]);
  });
});

test('ends when its parent is gone, and refuses to be reachable from elsewhere without a token', { timeout: 60_000 }, async () => {
  const orphan = await start();
  orphan.child.disconnect();
  await once(orphan.child, 'exit');
  const open = fork(join(import.meta.dirname, 'main.ts'), {
    execArgv: ['--import', 'tsx'],
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    env: { ...process.env, TERMINAL_RSI_TRAINER_HOST: '0.0.0.0', TERMINAL_RSI_TRAINER_TOKEN: '' },
  });
  assert.deepEqual(await once(open, 'exit'), [1, null]);
});
