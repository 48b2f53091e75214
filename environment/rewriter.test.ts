import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { EmbeddedProvider } from './embedded/provider.ts';
import { runCommands } from './harness/harness.ts';
import { addRewriteCounts } from '../method/rewrite-counts.ts';
import { rewriteTask } from './rewriter.ts';
import type { RewriteOptions, RewriteOutcome } from './rewriter.ts';
import { loadTask } from './tasks/task.ts';
import type { EpisodeCodec, EpisodeRecord, HarnessName, Task } from './types.ts';

/** Bytes as tokens; 256 and up are the layout's marks. */
const bytes = (text: string): number[] => [...Buffer.from(text)];
const codec: EpisodeCodec = {
  endOfTurn: 256,
  prompt: (harness, instruction, runbook) => [harness === 'shell' ? 257 : 258, ...bytes(runbook ?? ''), ...bytes(instruction), 259],
  observation: (text, maxTokens) => [260, ...bytes(text).slice(0, maxTokens), 259],
  reply: (_harness, text) => [...bytes(text), 256],
  decode: (tokens) => Buffer.from(tokens.filter((token) => token < 256)).toString('utf8'),
};
const provider = new EmbeddedProvider();
const limits = { maxTurns: 12, maxTokensPerTurn: 200, observationTokens: 400, commandTimeoutSec: 10 };
const fixture = (name: string): Promise<Task> =>
  loadTask(fileURLToPath(new URL(`../tests/fixtures/rewrite-tasks/${name}`, import.meta.url)));

/** A real episode of these commands. */
async function episode(task: Task, commands: string[], sample = 0, harness: HarnessName = 'shell'): Promise<EpisodeRecord> {
  const base = { suite: 'train', task, provider, runKey: 'test', contextLength: 10_000, agent: 'replay', seed: sample } as const;
  const many = { ...limits, maxTurns: 100 };
  return (await runCommands({ ...base, commands, sample, harness, limits: many, episodeId: `${task.id}/${harness}/${sample}` })).record;
}
async function rewrite(task: Task, successes: EpisodeRecord[], more: Partial<RewriteOptions> = {}): Promise<RewriteOutcome> {
  const base = { suite: 'train', task, successes, provider, codec, runKey: 'test', limits, contextLength: 10_000, keptPerTask: 2 };
  return await rewriteTask({ ...base, ...more });
}
const commandsOf = (outcome: RewriteOutcome, index = 0): string[] =>
  outcome.runbooks[index]?.runbook.steps.map((step) => step.command) ?? [];
const rules = (outcome: RewriteOutcome): (string | undefined)[] =>
  outcome.runbooks.map(({ decision }) => (decision.kept ? undefined : decision.rule));

const pointerWalk = ['cat notes/moon.txt', 'cat notes/arrow.txt', 'echo ruby > oak.txt'];

test('a success becomes the shortest verified procedure, with the commands that showed what it acts on', async () => {
  const task = await fixture('pointer-chain');
  const wandering = ['ls', 'pwd', ...pointerWalk, 'cat oak.txt', 'echo done'];
  const outcome = await rewrite(task, [await episode(task, wandering)]);
  assert.deepEqual(commandsOf(outcome), pointerWalk);
  assert.deepEqual(outcome.runbooks[0]?.runbook.steps[1], {
    number: 2,
    purpose: 'Read notes/arrow.txt',
    command: 'cat notes/arrow.txt',
    expected: 'ruby',
  });
  assert.equal(outcome.counts.kept, 1);
  assert.deepEqual(outcome.counts.dropped, {});
});

test('an example is an episode of the target harness without the runbook, with agent tokens exactly at the replies', async () => {
  const task = await fixture('pointer-chain');
  const outcome = await rewrite(task, [await episode(task, pointerWalk, 0, 'script')]);
  const [example] = outcome.examples;
  assert.ok(example && outcome.examples.length === 1);
  assert.deepEqual(example.tokens.slice(0, bytes(task.instruction).length + 2), codec.prompt('shell', task.instruction));
  const turns = [0, 1, 2, 3].map((turn) => codec.decode(example.tokens.filter((_, j) => example.turnIds[j] === turn)));
  assert.deepEqual(turns, [...pointerWalk, 'exit']);
  assert.ok(example.logprobs.every((logprob) => logprob === 0));
  const text = codec.decode(example.tokens);
  assert.ok(!text.includes('Read notes/arrow.txt'), 'the runbook must not be in the context');
});

test('an answer that was guessed is a leak, however it verified', async () => {
  const task = await fixture('pointer-chain');
  const outcome = await rewrite(task, [await episode(task, ['echo ruby > oak.txt'])]);
  assert.deepEqual(rules(outcome), ['leak']);
  assert.equal(outcome.examples.length, 0);
});

test('a number from a note keeps the note in a longer job; equal lists of two harnesses are one success', async () => {
  const task = await fixture('release');
  const solution = Buffer.from(task.solution?.get('solve.sh')?.data ?? []).toString('utf8');
  const jobs = solution.split('\n').filter((line) => line !== '' && !line.startsWith('#') && !line.startsWith('cd '));
  const commands = ['ls', 'cat notes/harbor.txt', 'cat coral.txt', ...jobs];
  const outcome = await rewrite(task, [await episode(task, commands), await episode(task, commands, 1, 'script')]);
  assert.deepEqual(rules(outcome), ['repeated', undefined]);
  const kept = commandsOf(outcome, 1);
  assert.deepEqual(kept.slice(0, 2), ['cat notes/harbor.txt', jobs[0]]);
  assert.ok(!kept.includes('ls') && !kept.includes('cat coral.txt'), kept.join('\n'));
  assert.deepEqual(outcome.counts.dropped, { repeated: 1 });
});

test('a program that was concluded from examples keeps the reading of the examples', async () => {
  const task = await fixture('workflow-rebuild');
  const commands = ['cat examples/1.in', 'cat examples/1.out', `echo 'grep maple "$1"' > run.sh`, 'sh run.sh examples/2.in'];
  const outcome = await rewrite(task, [await episode(task, commands)]);
  assert.deepEqual(commandsOf(outcome), commands.slice(0, 3));
  assert.equal(outcome.counts.kept, 1);
});

test('failures that are handed in, near-identical ways and more than the limit are dropped by name', async () => {
  const task = await fixture('pointer-chain');
  const looks = ['cat notes/moon.txt', 'cat notes/arrow.txt'];
  const successes = [
    await episode(task, [...looks, 'cp notes/arrow.txt oak.txt'], 0),
    await episode(task, pointerWalk, 1),
    await episode(task, [...looks, 'echo "ruby" > oak.txt'], 2),
    await episode(task, ['cat notes/moon.txt', 'head -n 1 notes/arrow.txt | tee oak.txt'], 3),
    await episode(task, ['echo wrong > oak.txt'], 4),
  ];
  const decisions = async (keptPerTask: number): Promise<(string | undefined)[]> => {
    const { runbooks } = await rewrite(task, successes, { keptPerTask });
    const bySource = new Map(runbooks.map((decided) => [decided.sourceEpisode, decided.decision]));
    return successes.map(({ episodeId }) => {
      const decision = bySource.get(episodeId);
      return decision?.kept ? 'kept' : decision?.rule;
    });
  };
  assert.deepEqual(await decisions(3), ['kept', 'kept', 'duplicate', 'kept', 'not-reproduced']);
  // The copy is the shortest: it needs only the look that named the file.
  assert.deepEqual(await decisions(1), ['kept', 'limit', 'limit', 'limit', 'not-reproduced']);
});

test('what does not fit the target harness is too long; a tampering procedure is never executed as an example', async () => {
  const task = await fixture('pointer-chain');
  const tight = await rewrite(task, [await episode(task, pointerWalk)], { limits: { ...limits, maxTurns: 3 } });
  assert.deepEqual(rules(tight), ['too-long']);
  const small = await rewrite(task, [await episode(task, pointerWalk)], { contextLength: 150 });
  assert.deepEqual(rules(small), ['too-long']);
  const tampering = ['cat notes/moon.txt', 'cat notes/arrow.txt', 'mkdir -p /tests && cp notes/arrow.txt oak.txt'];
  assert.deepEqual(rules(await rewrite(task, [await episode(task, tampering)])), ['tamper']);
});

test('the same successes give the same outcome, progress counts every execution, and counts add up', async () => {
  const task = await fixture('pointer-chain');
  const successes = [await episode(task, ['ls', ...pointerWalk]), await episode(task, ['pwd', ...pointerWalk], 1)];
  const seen: number[] = [];
  const first = await rewrite(task, successes, { progress: (executions) => seen.push(executions) });
  const second = await rewrite(task, successes);
  assert.deepEqual(second, first);
  assert.deepEqual(
    seen,
    seen.map((_, i) => i + 1),
  );
  assert.equal(seen.length, first.counts.executions);
  assert.deepEqual(addRewriteCounts([first.counts, second.counts]), {
    successes: 4,
    kept: 2,
    executions: 2 * first.counts.executions,
    dropped: { duplicate: 2 },
  });
});

test('an aborted signal stops before the next execution', async () => {
  const task = await fixture('pointer-chain');
  const success = await episode(task, pointerWalk);
  const controller = new AbortController();
  const aborted = rewrite(task, [success], { signal: controller.signal, progress: () => controller.abort(new Error('stopped')) });
  await assert.rejects(aborted, /stopped/);
});
