/** Agents behind an OpenAI-compatible endpoint: a server of our own that speaks the protocol, and the embedded sandbox. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, describe, it } from 'node:test';
import { EmbeddedProvider } from '../embedded/provider.ts';
import { InfrastructureError, TaskError, UserError } from '../errors.ts';
import { fixture } from '../testing.ts';
import type { Agent } from './agent.ts';
import { commandClock, wallClock } from './clock.ts';
import { endpointAgent } from './endpoint-agent.ts';
import { interact } from './interact.ts';
import type { Interaction, InteractOptions } from './interact.ts';

interface Asked {
  readonly model: string;
  readonly messages: readonly { readonly role: string; readonly content: string }[];
  readonly temperature?: number;
  readonly seed?: number;
  readonly max_tokens?: number;
  readonly max_completion_tokens?: number;
}
type Answer =
  { readonly status: number; readonly body: unknown } | { readonly text: string; readonly finish?: string } | 'hang up' | 'silence';

/** Gives its answers one after another. */
async function serve(answers: readonly Answer[]) {
  const asked: Asked[] = [];
  const keys: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => (body += String(chunk)));
    request.on('end', () => {
      const answer = answers[asked.length] ?? { text: 'exit' };
      asked.push(JSON.parse(body) as Asked);
      keys.push(request.headers.authorization);
      if (answer === 'silence') return;
      if (answer === 'hang up') return void request.socket.destroy();
      const { status, body: sent } = 'status' in answer ? answer : { status: 200, body: completion(answer) };
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(sent));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { asked, keys, baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1` };
}
const completion = ({ text, finish = 'stop' }: { text: string; finish?: string }) => ({
  id: 'x',
  object: 'chat.completion',
  choices: [{ index: 0, finish_reason: finish, message: { role: 'assistant', content: text } }],
  usage: { prompt_tokens: 10, completion_tokens: 3, total_tokens: 13, prompt_tokens_details: { cached_tokens: 4 } },
});
const failure = (status: number, message: string, code: string | null = null): Answer => ({
  status,
  body: { error: { message, code, type: 'x' } },
});

const task = await fixture('sort-names');
const labels = { runKey: 'endpoint-test', episodeId: 'episode', purpose: 'rollout' } as const;
const limits = { maxTurns: 4, maxTokensPerTurn: 60, observationTokens: 100, commandTimeoutSec: 5 };
async function play(agent: Agent, changes: Partial<InteractOptions> = {}): Promise<Interaction> {
  const sandbox = await new EmbeddedProvider().start(task, labels);
  const conversation = agent.open({ episodeId: 'episode', harness: changes.harness ?? 'shell' });
  try {
    return await interact({ sandbox, task, harness: 'shell', limits, clock: commandClock(60), conversation, ...changes });
  } finally {
    await sandbox.close();
  }
}

describe('an agent behind an endpoint', () => {
  it('is told the protocol, sees what its commands say, and is sent the whole conversation each time', async () => {
    const { asked, keys, baseUrl } = await serve([
      { text: 'cat names.txt' },
      { text: '```bash\nsort names.txt > sorted.txt\n```' },
      { text: 'exit' },
    ]);
    const agent = endpointAgent({ baseUrl, model: 'm', apiKey: 'secret', temperature: 0.5, maxTokens: 99, seed: 7 });
    const { turns, stopReason } = await play(agent);
    assert.deepEqual([agent.name, stopReason], ['model:m', 'exit']);
    assert.deepEqual(
      turns.map(({ commands }) => commands.map((one) => one.command)),
      [['cat names.txt'], ['sort names.txt > sorted.txt'], []],
    );
    assert.equal(turns[1]?.reply, '```bash\nsort names.txt > sorted.txt\n```', 'the record has what was said');
    assert.deepEqual(
      asked.map(({ messages }) => messages.map(({ role }) => role).join(' ')),
      ['system user', 'system user assistant user', 'system user assistant user assistant user'],
    );
    assert.match(asked[0]?.messages[0]?.content ?? '', /one bash command/);
    assert.equal(asked[0]?.messages[1]?.content, task.instruction);
    assert.equal(asked[1]?.messages[3]?.content, 'pear\napple\nfig');
    assert.deepEqual([asked[0]?.model, asked[0]?.temperature, asked[0]?.max_tokens, asked[0]?.seed], ['m', 0.5, 99, 7]);
    assert.deepEqual(new Set(keys), new Set(['Bearer secret']));
  });

  it('limits a reply by the name that the model knows', async () => {
    const refusal = failure(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", 'unsupported_parameter');
    const { asked, baseUrl } = await serve([refusal, { text: 'ls' }]);
    await play(endpointAgent({ baseUrl, model: 'm', maxTokens: 99 }));
    assert.deepEqual(
      asked.map((one) => [one.max_tokens, one.max_completion_tokens]),
      [
        [99, undefined],
        [undefined, 99],
        [undefined, 99],
      ],
    );
  });

  it('counts what the endpoint counts', async () => {
    const { baseUrl } = await serve([{ text: 'ls' }]);
    const conversation = endpointAgent({ baseUrl, model: 'm' }).open({ episodeId: 'e', harness: 'shell' });
    conversation.instruct('do');
    await conversation.reply(0);
    await conversation.reply(1);
    assert.deepEqual(conversation.account(), {
      agentTokens: 6,
      totalTokens: 26,
      usage: { promptTokens: 20, completionTokens: 6, cachedTokens: 8 },
    });
  });

  it('runs what a thinking model wrote last, and nothing of a reply that was cut off', async () => {
    const { baseUrl } = await serve([{ text: '<think>touch wrong</think>\n\ntouch right' }, { text: 'touch cut', finish: 'length' }]);
    const { turns, stopReason } = await play(endpointAgent({ baseUrl, model: 'm' }));
    assert.deepEqual(
      turns.map(({ commands }) => commands.map((one) => one.command)),
      [['touch right'], []],
    );
    assert.equal(stopReason, 'output-length');
  });

  it('stops when the conversation does not fit any more', async () => {
    const openai = await serve([{ text: 'ls' }, failure(400, 'Please reduce the length of the messages.', 'context_length_exceeded')]);
    assert.equal((await play(endpointAgent({ baseUrl: openai.baseUrl, model: 'm' }))).stopReason, 'context');
    const vllm = await serve([failure(400, "This model's maximum context length is 32 tokens. However, you requested 40 tokens.")]);
    assert.equal((await play(endpointAgent({ baseUrl: vllm.baseUrl, model: 'm' }))).stopReason, 'context');
  });

  it('tries again what may pass, and types what does not', async () => {
    const passing = await serve([failure(500, 'busy'), { text: 'exit' }]);
    assert.equal((await play(endpointAgent({ baseUrl: passing.baseUrl, model: 'm', retries: 1 }))).stopReason, 'exit');
    const rejects = async (
      answer: Answer,
      kind: new (...args: never[]) => Error,
      type: string | undefined,
      message: RegExp,
    ): Promise<void> => {
      const { baseUrl } = await serve([answer]);
      await assert.rejects(
        play(endpointAgent({ baseUrl, model: 'm', retries: 0, timeoutSec: 0.3 })),
        (error: Error & { type?: string }) => {
          assert.ok(error instanceof kind, error.stack);
          assert.equal(error.type, type);
          assert.match(error.message, message);
          return true;
        },
      );
    };
    await rejects(failure(429, 'slow down'), InfrastructureError, 'RateLimitError', /slow down/);
    await rejects(failure(500, 'oops'), InfrastructureError, 'InternalServerError', /oops/);
    await rejects(failure(503, 'later'), InfrastructureError, 'ServiceUnavailableError', /later/);
    await rejects('hang up', InfrastructureError, 'APIConnectionError', /model m/);
    await rejects('silence', InfrastructureError, 'Timeout', /timed out/);
    await rejects(failure(401, 'no key'), UserError, undefined, /no key.*OPENAI_API_KEY/);
    await rejects(failure(404, 'no model m'), UserError, undefined, /no model m.*\/v1/);
    await rejects(failure(400, 'seed is not supported'), TaskError, 'BadRequestError', /seed is not supported/);
    assert.throws(() => endpointAgent({ baseUrl: 'localhost', model: 'm' }), UserError);
  });

  it('ends with the time limit while the model thinks, where thinking counts', async () => {
    const { baseUrl } = await serve(['silence']);
    const { turns, stopReason } = await play(endpointAgent({ baseUrl, model: 'm' }), { clock: wallClock(0.2) });
    assert.deepEqual([turns, stopReason], [[], 'agent-timeout']);
  });

  it('leaves what it did before an error', async () => {
    const { baseUrl } = await serve([{ text: 'ls' }, failure(401, 'expired')]);
    const turns: InteractOptions['turns'] = [];
    await assert.rejects(play(endpointAgent({ baseUrl, model: 'm' }), { turns }), /expired/);
    assert.deepEqual(
      turns.map(({ reply }) => reply),
      ['ls'],
    );
  });
});
