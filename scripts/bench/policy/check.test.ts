import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { tinyConfig } from '../../../tests/fixtures/tiny-config.ts';
import { createModel, disposeModel } from '../../../policy/model-parameters.ts';
import { PolicySampler } from '../../../policy/sampler.ts';
import type { ModelConfig } from '../../../policy/types.ts';
import { checkSampling, checkTraining } from './check.ts';
import { ratios } from './compare.ts';
import type { Answer, Engine } from './peers.ts';
import type { Spec } from './workloads.ts';
import { PROMPT_TOKENS } from './workloads.ts';

const config: ModelConfig = {
  ...tinyConfig,
  vocab_size: 32,
  hidden_size: 16,
  intermediate_size: 32,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  head_dim: 8,
  max_position_embeddings: 64,
};
const model = createModel(config, 'actor', 3);
after(() => disposeModel(model));

const answer = (fields: Partial<Answer>): Answer => ({ prepareSeconds: 1, versions: {}, ...fields });

test('engines that train alike pass, and the largest relative difference is given', () => {
  const answers = new Map<Engine, Answer>([
    ['graph', answer({ losses: [6, 5], gradientNorms: [2, 1] })],
    ['torch', answer({ losses: [6, 5.0005], gradientNorms: [2.0001, 1] })],
  ]);
  assert.ok(Math.abs(checkTraining(answers) - 1e-4) < 1e-9);
});

test('an engine whose second step has another loss, or says none, is named with both values', () => {
  const reference = ['torch', answer({ losses: [6, 5], gradientNorms: [2, 1] })] as const;
  const other = (losses: number[]): ReadonlyMap<Engine, Answer> =>
    new Map<Engine, Answer>([reference, ['jax', answer({ losses, gradientNorms: [2, 1] })]]);
  assert.throws(() => checkTraining(other([6, 5.1])), /^InfrastructureError: JAX: losses\[1\] is 5\.1, expected 5 as PyTorch has it/);
  assert.throws(() => checkTraining(other([6])), /JAX: losses\[1\] is NaN/);
});

test("sampled tokens' log-probabilities are held against the training forward pass", async () => {
  const rows = 2;
  const length = PROMPT_TOKENS + 6;
  const prompts = Array.from({ length: rows * PROMPT_TOKENS }, (_, i) => 3 + (i % 20));
  const sampler = new PolicySampler({ config: { ...config, eos_token_id: [] }, params: model.params }, { slots: rows });
  const results = await Promise.all(
    [0, 1].map((row) =>
      sampler.sample({
        ...{ sessionId: `${row}`, policy: 'p', seed: row, maxTokens: 6, temperature: 1 },
        tokens: prompts.slice(row * PROMPT_TOKENS, (row + 1) * PROMPT_TOKENS),
      }),
    ),
  );
  sampler.close();
  const spec = { rows, length, tokens: prompts } as unknown as Spec;
  const tokens = results.map((result) => result.tokens);
  const logprobs = results.map((result) => result.logprobs);
  const check = (fields: Partial<Answer>): number => checkSampling(new Map([['graph', answer(fields)]]), model, spec);
  assert.ok(check({ tokens, logprobs }) < 1e-4);
  const off = logprobs.map((row) => row.map((value, i) => (i === 5 ? value + 0.002 : value)));
  assert.throws(() => check({ tokens, logprobs: off }), /ours, graphs: row 0, new token 5 was drawn with log-probability/);
  assert.throws(() => check({ tokens: tokens.map((row) => row.slice(1)), logprobs }), /row 0 has 5 new tokens, expected 6/);
});

test('ratios are taken round by round: of times for training, of rates for sampling', () => {
  const torch = [[1], [2], [4]];
  const own = [[2], [2], [2]];
  assert.deepEqual(ratios('training', own, torch), { median: 1, least: 0.5, most: 2 });
  assert.deepEqual(ratios('sampling', own, torch), { median: 1, least: 0.5, most: 2 });
  assert.deepEqual(ratios('training', [[3, 1, 8]], [[6]]), { median: 0.5, least: 0.5, most: 0.5 });
  assert.equal(ratios('training', own, undefined), undefined);
});
