/** Episodes: turns, stop reasons, and the token record, with a scripted sampler and the real embedded sandbox. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { EmbeddedProvider } from '../embedded/provider.ts';
import { UserError } from '../errors.ts';
import { commandClock } from './clock.ts';
import { runCommands, runEpisode, runOracle } from './harness.ts';
import type { EpisodeOptions, EpisodeResult } from './harness.ts';
import { interact } from './interact.ts';
import { observationText } from './observation.ts';
import { policyAgent } from './policy-agent.ts';
import { backends, countContainers, fixture, letterCodec, ScriptedSampler, testRunKey } from '../testing.ts';
import type { EpisodeCodec, SampleResult, Sampler } from '../types.ts';

const task = await fixture('sort-names');
const base = {
  episodeId: 'episode',
  suite: 'fixtures',
  task,
  harness: 'shell',
  sample: 3,
  seed: 7,
  provider: new EmbeddedProvider(),
  runKey: 'test',
  limits: { maxTurns: 5, maxTokensPerTurn: 60, observationTokens: 100, commandTimeoutSec: 5 },
  contextLength: 1000,
} as const;
const play = (sampler: Sampler, changes: Partial<EpisodeOptions> = {}): Promise<EpisodeResult> =>
  runEpisode({ ...base, sampler, policy: 'abc', codec: letterCodec, temperature: 1, turnSeed: (turn) => 100 + turn, ...changes });

describe('runEpisode', () => {
  it('shows each command’s output to the agent and ends at exit', async () => {
    const sampler = new ScriptedSampler(['cat names.txt', ' sort names.txt > sorted.txt ', 'exit']);
    const { record, snapshot } = await play(sampler);
    assert.deepEqual(
      [record.stopReason, record.agent, record.taskChecksum, record.sandbox],
      ['exit', 'policy:abc', task.checksum, 'embedded'],
    );
    assert.deepEqual(
      record.turns.map((turn) => [turn.reply, turn.commands.map((command) => command.command), turn.observation]),
      [
        ['cat names.txt', ['cat names.txt'], 'pear\napple\nfig'],
        [' sort names.txt > sorted.txt ', ['sort names.txt > sorted.txt'], '[ok]'],
        ['exit', [], undefined],
      ],
    );
    assert.equal(Buffer.from(snapshot.files['sorted.txt']?.data ?? '', 'base64').toString(), 'apple\nfig\npear\n');
    assert.deepEqual(snapshot.emptyDirectories, ['empty']);
    assert.deepEqual(sampler.ended, ['episode']);
  });

  it('records one append-only token sequence with the sampled log-probabilities', async () => {
    const sampler = new ScriptedSampler(['echo a', 'exit']);
    const { tokens, record } = await play(sampler);
    const [prompt, first, observed, second] = [
      letterCodec.prompt('shell', task.instruction),
      letterCodec.reply('shell', 'echo a'),
      letterCodec.observation('a', 100),
      letterCodec.reply('shell', 'exit'),
    ];
    assert.deepEqual(tokens.tokens, [...prompt, ...first, ...observed, ...second]);
    assert.deepEqual(tokens.turnIds, [...prompt.map(() => -1), ...first.map(() => 0), ...observed.map(() => -1), ...second.map(() => 1)]);
    assert.deepEqual(tokens.logprobs, [
      ...prompt.map(() => 0),
      ...first.map((_, i) => -0.25 * (i + 1)),
      ...observed.map(() => 0),
      ...second.map((_, i) => -0.25 * (i + 1)),
    ]);
    assert.deepEqual([record.agentTokens, record.totalTokens], [first.length + second.length, tokens.tokens.length]);
    assert.deepEqual(
      sampler.requests.map((request) => [request.seed, request.sessionId]),
      [
        [100, 'episode'],
        [101, 'episode'],
      ],
    );
    const asked = sampler.requests.map((request) => request.tokens);
    assert.deepEqual(asked[1]?.slice(0, asked[0]?.length), asked[0], 'each request extends the one before');
  });

  it('runs the lines of a script reply in order until exit', async () => {
    const { record } = await play(new ScriptedSampler(['echo one\n\n  nosuch\necho three', 'echo last\nexit\necho never']), {
      harness: 'script',
    });
    assert.deepEqual(
      record.turns.map((turn) => turn.commands.map((command) => command.command)),
      [['echo one', 'nosuch', 'echo three'], ['echo last']],
    );
    assert.match(record.turns[0]?.observation ?? '', /^one\n.*nosuch: command not found\n\[exit 127\]\nthree$/s);
    assert.equal(record.stopReason, 'exit');
  });

  it('does not run a reply without end-of-turn', async () => {
    const { record, snapshot, tokens } = await play(new ScriptedSampler([`touch made; ${'x'.repeat(100)}`]));
    assert.deepEqual([record.stopReason, record.turns[0]?.commands, record.agentTokens], ['output-length', [], 60]);
    assert.equal(snapshot.files.made, undefined);
    assert.equal(tokens.turnIds.filter((turn) => turn === 0).length, 60);
  });

  it('stops at the turn limit without a last observation', async () => {
    const { record, tokens } = await play(new ScriptedSampler(Array(9).fill('echo again')), { limits: { ...base.limits, maxTurns: 2 } });
    assert.deepEqual([record.stopReason, record.turns.length, record.turns[1]?.observation], ['max-turns', 2, undefined]);
    assert.equal(tokens.turnIds.at(-1), 1, 'the sequence ends with an agent token');
  });

  it('stops when the context is full, in a reply and before an observation', async () => {
    const prompt = letterCodec.prompt('shell', task.instruction).length;
    const inReply = await play(new ScriptedSampler(['echo abcdefgh']), { contextLength: prompt + 5 });
    assert.deepEqual([inReply.record.stopReason, inReply.record.totalTokens], ['context', prompt + 5]);
    const before = await play(new ScriptedSampler(['echo abcdefgh']), { contextLength: prompt + 20 });
    assert.deepEqual(
      [before.record.stopReason, before.record.turns[0]?.commands.length, before.record.turns[0]?.observation],
      ['context', 1, undefined],
    );
    assert.equal((await play(new ScriptedSampler([]), { contextLength: prompt })).record.stopReason, 'context');
  });

  it('stops at the agent’s time limit, over all its commands', async () => {
    const hurried = { ...task, agentTimeoutSec: 0.3 };
    const inCommand = await play(new ScriptedSampler(['sleep 20', 'exit']), { task: hurried });
    assert.deepEqual([inCommand.record.stopReason, inCommand.record.turns[0]?.commands[0]?.timedOut], ['agent-timeout', true]);
    const later = await play(new ScriptedSampler(['sleep 0.2', 'sleep 0.2', 'exit']), { task: hurried });
    assert.deepEqual(
      [later.record.stopReason, later.record.turns.map((turn) => turn.commands[0]?.timedOut)],
      ['agent-timeout', [false, true]],
    );
  });

  it('does not count what the agent waits for the sampler', async () => {
    const scripted = new ScriptedSampler(['echo on', 'exit']);
    const slow: Sampler = {
      async sample(request) {
        await new Promise((resolve) => setTimeout(resolve, 100));
        return await scripted.sample(request);
      },
      endSession: () => Promise.resolve(),
    };
    const { record } = await play(slow, { task: { ...task, agentTimeoutSec: 0.05 } });
    assert.deepEqual([record.stopReason, record.turns.length], ['exit', 2]);
  });

  it('refuses a harness that the policy does not know before it starts a sandbox', async () => {
    const refused = new UserError('no such marker');
    const provider = new EmbeddedProvider();
    provider.start = () => Promise.reject(new Error('a sandbox was started'));
    const codec: EpisodeCodec = {
      ...letterCodec,
      prompt: () => {
        throw refused;
      },
    };
    await assert.rejects(play(new ScriptedSampler([]), { codec, provider, harness: 'terminus' }), refused);
  });

  it('rejects with the caller’s reason when cancelled', async () => {
    const reason = new Error('cancelled');
    const controller = new AbortController();
    const silent: Sampler = {
      sample: (_request, signal) =>
        new Promise((_resolve, reject) => signal?.addEventListener('abort', () => reject(signal.reason as Error))),
      endSession: () => Promise.resolve(),
    };
    setTimeout(() => controller.abort(reason), 100);
    await assert.rejects(play(silent, { signal: controller.signal }), reason);
  });

  it('rejects a sampler that breaks its contract', async () => {
    const answering = (result: SampleResult): Sampler => ({ sample: () => Promise.resolve(result), endSession: () => Promise.resolve() });
    await assert.rejects(
      play(answering({ tokens: [5, 0], logprobs: [-1], stopReason: 'end-of-turn' })),
      /2 sampled tokens but 1 log-probabilities/,
    );
    await assert.rejects(
      play(answering({ tokens: [5, 6], logprobs: [-1, -1], stopReason: 'end-of-turn' })),
      /end-of-turn is at position -1/,
    );
    await assert.rejects(play(answering({ tokens: [0, 6], logprobs: [-1, -1], stopReason: 'max-tokens' })), /end-of-turn is at position 0/);
    await assert.rejects(play(answering({ tokens: [5, 0], logprobs: [Number.NaN, -1], stopReason: 'end-of-turn' })), /log-probability NaN/);
    await assert.rejects(play(answering({ tokens: [], logprobs: [], stopReason: 'max-tokens' })), /returned 0 tokens/);
  });
});

describe('interact', () => {
  it('goes on with a conversation in a second step, in one sequence of tokens and with turns that count on', async () => {
    const sandbox = await base.provider.start(task, { runKey: 'test', episodeId: 'steps', purpose: 'rollout' });
    const sampler = new ScriptedSampler(['ls', 'exit', 'cat made.txt', 'exit']);
    const options = { sampler, policy: 'abc', codec: letterCodec, limits: base.limits, contextLength: 1000, temperature: 1 };
    const conversation = policyAgent({ ...options, turnSeed: (turn) => turn }).open({ episodeId: 'steps', harness: 'shell' });
    const step = { sandbox, task, harness: 'shell', limits: { ...base.limits, maxTurns: 2 }, conversation } as const;
    const first = await interact({ ...step, clock: commandClock(10) });
    const second = await interact({
      ...step,
      clock: commandClock(10),
      task: { ...task, instruction: 'next' },
      firstTurn: first.turns.length,
    });
    await sandbox.close();
    assert.deepEqual([first.stopReason, second.stopReason, second.turns.length], ['exit', 'exit', 2]);
    const { tokens } = conversation.account();
    assert.deepEqual([...new Set(tokens?.turnIds)], [-1, 0, 1, 2, 3]);
    assert.deepEqual(
      sampler.requests.map(({ seed }) => seed),
      [0, 1, 2, 3],
    );
    const asked = sampler.requests.map((request) => request.tokens);
    assert.deepEqual(asked[2], [...(asked[1] ?? []), ...letterCodec.reply('shell', 'exit'), ...letterCodec.observation('next', Infinity)]);
  });
});

describe('replayed and reference episodes', () => {
  it('replay has the tokens the policy’s own episode would have, with log-probabilities 0', async () => {
    const commands = ['cat names.txt', 'sort names.txt > sorted.txt'];
    const sampled = await play(new ScriptedSampler([...commands, 'exit']));
    const replayed = await runCommands({ ...base, agent: 'replay', commands, codec: letterCodec });
    assert.deepEqual([replayed.tokens.tokens, replayed.tokens.turnIds], [sampled.tokens.tokens, sampled.tokens.turnIds]);
    assert.ok(replayed.tokens.logprobs.every((logprob) => logprob === 0));
    assert.deepEqual(replayed.snapshot, sampled.snapshot);
    assert.deepEqual([replayed.record.agent, replayed.record.stopReason], ['replay', 'exit']);
  });

  it('needs no codec, and puts all commands into one script reply', async () => {
    const { record, tokens } = await runCommands({ ...base, harness: 'script', agent: 'replay', commands: ['echo a', 'echo b'] });
    assert.deepEqual([record.turns.length, record.turns[0]?.commands.length, record.stopReason, tokens.tokens.length], [1, 2, 'exit', 0]);
    await assert.rejects(runCommands({ ...base, harness: 'script', agent: 'replay', commands: ['echo a\necho b'] }), /several lines/);
  });

  it('the oracle runs solution/solve.sh, which no other agent ever sees', async () => {
    const { record, snapshot } = await runOracle(base);
    assert.deepEqual([record.agent, record.stopReason], ['oracle', 'exit']);
    assert.ok(snapshot.files['sorted.txt']);
    const { record: other } = await runCommands({ ...base, agent: 'nop', commands: ['ls /solution /tests'] });
    assert.notEqual(other.turns[0]?.commands[0]?.exitCode, 0);
  });
});

const docker = (await backends()).find(({ name }) => name === 'docker');
describe('episodes in Docker', { skip: docker?.skip ?? true }, () => {
  it('keep one shell over all commands, and end when one kills the sandbox, with the files that it left', async () => {
    const provider = docker?.provider();
    assert.ok(provider);
    // The shell that kills all others lives on until the container's first process has noticed; nothing waits for that but a longer command.
    const commands = ['sort names.txt > sorted.txt; cd /tmp; x=kept', 'echo $x $PWD', 'kill -9 -1; while :; do :; done', 'echo never'];
    const { record, snapshot } = await runCommands({ ...base, provider, runKey: testRunKey, agent: 'replay', commands });
    await provider.close();
    assert.deepEqual([record.stopReason, record.turns.length, record.turns[1]?.observation], ['sandbox-died', 3, 'kept /tmp']);
    assert.ok(snapshot.files['sorted.txt']);
    assert.equal(await countContainers(testRunKey), 0, 'neither the sandbox nor its control is left');
  });
});

describe('snapshots', () => {
  it('drop the largest files beyond the limit and name them', async () => {
    const { snapshot } = await runCommands({
      ...base,
      agent: 'replay',
      commands: ['printf "%0900000d" 1 > big1; printf "%0900001d" 1 > big2; echo s > small'],
    });
    assert.deepEqual(snapshot.dropped, ['big2']);
    assert.deepEqual(Object.keys(snapshot.files), ['big1', 'made.txt', 'names.txt', 'small']);
  });
});

describe('observationText', () => {
  it('joins stdout, stderr and status', () => {
    const command = { stdout: '', stderr: '', exitCode: 0, timedOut: false };
    assert.equal(observationText([command]), '[ok]');
    assert.equal(observationText([]), '[ok]');
    assert.equal(observationText([{ ...command, stdout: 'a\n', stderr: 'b\n', exitCode: 2 }]), 'a\nb\n[exit 2]');
    assert.equal(observationText([{ ...command, stdout: 'a', exitCode: 137, timedOut: true }]), 'a\n[timed out]');
  });
});
