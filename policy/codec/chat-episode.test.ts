/**
 * A chat model's way through the product, with a tiny random one: episodes in the embedded sandbox, and training on them as they were
 * sampled.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { EmbeddedProvider } from '../../environment/embedded/provider.ts';
import { runCommands, runEpisode } from '../../environment/harness/harness.ts';
import type { EpisodeOptions } from '../../environment/harness/harness.ts';
import { fixture } from '../../environment/testing.ts';
import type { SampleRequest, SampleResult, Sampler } from '../../environment/types.ts';
import { saveModel } from '../checkpoint.ts';
import { loadCodec } from '../codec.ts';
import { createModel, disposeModel } from '../model-parameters.ts';
import { PolicySampler } from '../sampler.ts';
import { loadTokenizer } from '../tokenizer.ts';
import { LocalTrainer } from '../trainer/local.ts';
import { fineTuneActor } from '../training/fine-tune.ts';

const fixtures = join(import.meta.dirname, '../../tests/fixtures/chat');
const scratch = mkdtempSync(join(tmpdir(), 'chat-episode-'));
after(() => rmSync(scratch, { recursive: true }));

/** Random weights of Qwen3's kind with a tokenizer and a template. */
const directory = join(scratch, 'policy');
const tokenizer = loadTokenizer(fixtures);
const model = createModel(
  {
    architectures: ['Qwen3ForCausalLM'],
    model_type: 'qwen3',
    vocab_size: tokenizer.vocabSize,
    ...{ hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1, head_dim: 8 },
    ...{ max_position_embeddings: 2048, rms_norm_eps: 1e-6, rope_theta: 10000, tie_word_embeddings: true, torch_dtype: 'float32' },
    eos_token_id: tokenizer.special('<|endoftext|>') as number,
  },
  'actor',
  3,
);
after(() => disposeModel(model));
saveModel(model, directory, {
  tokenizer: new Map(
    Object.entries({ 'tokenizer.json': 'tokenizer.json', 'chat_template.jinja': 'qwen3.jinja' }).map(([name, file]) => [
      name,
      readFileSync(join(fixtures, file)),
    ]),
  ),
});
const codec = loadCodec(directory);
const [end, text] = [codec.endOfTurn, tokenizer.special('<|endoftext|>') as number];

const task = await fixture('sort-names');
const base = {
  ...{ episodeId: 'episode', suite: 'fixtures', task, sample: 0, seed: 1, provider: new EmbeddedProvider(), runKey: 'test', codec },
  limits: { maxTurns: 6, maxTokensPerTurn: 60, observationTokens: 80, commandTimeoutSec: 5 },
  contextLength: 2048,
} as const;
const play = (sampler: Sampler, changes: Partial<EpisodeOptions> = {}) =>
  runEpisode({ ...base, harness: 'shell', sampler, policy: 'abc', temperature: 1, turnSeed: (turn) => 100 + turn, ...changes });

/** Says token sequences one after another, as a model would. */
class Says implements Sampler {
  readonly requests: SampleRequest[] = [];
  readonly #turns: readonly (readonly number[])[];

  constructor(turns: readonly (readonly number[])[]) {
    this.#turns = turns;
  }

  sample(request: SampleRequest): Promise<SampleResult> {
    const all = this.#turns[this.requests.length] ?? [...tokenizer.encode('exit'), end];
    this.requests.push(request);
    const tokens = all.slice(0, request.maxTokens);
    const stopReason = tokens.length < all.length || !request.stopTokens?.includes(tokens.at(-1) ?? -1) ? 'max-tokens' : 'stop-token';
    return Promise.resolve({ tokens, logprobs: tokens.map(() => -1), stopReason });
  }

  endSession(): Promise<void> {
    return Promise.resolve();
  }
}
const says = (...replies: string[]): number[][] => replies.map((reply) => [...tokenizer.encode(reply), end]);

describe('an episode of a chat model', () => {
  it('runs what its replies say, in one sequence of the tokens that were sampled', async () => {
    const turns = says('I sort them.\n```bash\nsort names.txt > sorted.txt\n```\nDone soon.', 'cat sorted.txt', '```\nexit\n```');
    const sampler = new Says(turns);
    const { record, tokens, snapshot } = await play(sampler);
    assert.deepEqual(
      [record.stopReason, record.turns.map((turn) => [turn.commands.map(({ command }) => command), turn.observation])],
      [
        'exit',
        [
          [['sort names.txt > sorted.txt'], '[ok]'],
          [['cat sorted.txt'], 'apple\nfig\npear'],
          [[], undefined],
        ],
      ],
    );
    assert.ok(snapshot.files['sorted.txt']);
    assert.match(record.turns[0]?.reply ?? '', /^I sort them\..*Done soon\.$/s, 'the record has what was said');
    const [first = [], second = [], third = []] = turns;
    const parts = [
      codec.prompt('shell', task.instruction),
      ...[first, codec.observation('[ok]', 80), second, codec.observation('apple\nfig\npear', 80), third],
    ];
    assert.deepEqual(tokens.tokens, parts.flat());
    assert.deepEqual(
      tokens.turnIds,
      parts.flatMap((part, index) => part.map(() => (index % 2 === 1 ? (index - 1) / 2 : -1))),
    );
    for (const request of sampler.requests) assert.deepEqual(request.stopTokens, [end, text]);
  });

  it('ends a turn with any of the policy’s stop tokens, and the episode with a reply that has none', async () => {
    const { record } = await play(new Says([[...tokenizer.encode('echo a'), text], tokenizer.encode('echo b '.repeat(40))]));
    assert.deepEqual([record.turns.map(({ commands }) => commands.length), record.stopReason], [[1, 0], 'output-length']);
  });

  it('runs several commands of a script, and ends where the context is full', async () => {
    const { record } = await play(new Says(says('```bash\ncd empty\npwd\nexit\n```')), { harness: 'script' });
    assert.deepEqual([record.stopReason, record.turns[0]?.commands.map(({ command }) => command)], ['exit', ['cd empty', 'pwd']]);
    const [reply = []] = says('echo a');
    const room = codec.prompt('shell', task.instruction).length + reply.length + codec.observation('a', 80).length;
    const full = await play(new Says([reply]), { contextLength: room });
    assert.deepEqual([full.record.stopReason, full.record.turns.length], ['context', 1]);
  });

  it('of replayed commands has their fences in it, as the model would write them', async () => {
    const { tokens, record } = await runCommands({ ...base, harness: 'shell', agent: 'replay', commands: ['sort names.txt > sorted.txt'] });
    const said = (turn: number): string => codec.decode(tokens.tokens.filter((_, index) => tokens.turnIds[index] === turn));
    assert.deepEqual([said(0), said(1)], ['```bash\nsort names.txt > sorted.txt\n```', '```bash\nexit\n```']);
    assert.equal(record.stopReason, 'exit');
  });
});

describe('training a chat model', () => {
  const trainer = new LocalTrainer();
  const context = (name: string) => ({
    ...{ trainer, checkpointDirectory: join(scratch, name), progress: () => undefined, signal: new AbortController().signal },
  });
  const adam = { learningRate: 0.01, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weightDecay: 0, maxGradientNorm: 10 };

  it('computes the log-probabilities that were recorded when it was sampled', async () => {
    const sampler = new PolicySampler(model, { slots: 2 });
    const sampled = await play(
      { sample: (request) => sampler.sample(request), endSession: async () => undefined },
      { limits: { ...base.limits, maxTokensPerTurn: 12 } },
    );
    sampler.close();
    assert.ok(sampled.record.agentTokens > 0);
    const { tokens, turnIds, logprobs } = sampled.tokens;
    const handle = await trainer.load({ role: 'actor', directory });
    const forward = await trainer.forward(handle, 'logprobs', {
      rows: 1,
      length: tokens.length,
      tokens,
      mask: turnIds.map((turn) => (turn < 0 ? 0 : 1)),
    });
    await trainer.release(handle);
    forward.forEach((value, index) =>
      assert.ok(Math.abs(value - (logprobs[index] ?? 0)) < 1e-4, `token ${index}: ${value}, sampled ${logprobs[index]}`),
    );
  });

  it('imitates a replayed episode, and leaves a folder that plays on', async () => {
    const { tokens } = await runCommands({ ...base, harness: 'shell', agent: 'replay', commands: ['cat names.txt'] });
    const outputDirectory = join(scratch, 'tuned');
    const input = { actorDirectory: directory, examples: [tokens], epochs: 5, sequencesPerStep: 1, adam, seed: 1, outputDirectory };
    const { epochLosses } = await fineTuneActor(context('fine-tune'), input);
    assert.ok((epochLosses.at(-1) ?? Infinity) < (epochLosses[0] ?? 0), String(epochLosses));
    const tuned = loadCodec(outputDirectory);
    assert.deepEqual([tuned.prompt('shell', 'x'), tuned.stopTokens], [codec.prompt('shell', 'x'), codec.stopTokens]);
  });
});
