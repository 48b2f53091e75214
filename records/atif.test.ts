/** ATIF: steps, calls and observations of each harness, the tokens beside it, Harbor's own model, and reading it back for a replay. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { UserError } from '../environment/errors.ts';
import type { EpisodeRecord } from '../environment/types.ts';
import { harborPython } from '../tests/harbor-python.ts';
import { toAtif } from './atif.ts';
import { replayReplies } from './replay.ts';
import { shellRecord, shellTokens, terminusRecord } from './trial-fixture.ts';

const harbor = await harborPython();
const skip = 'skip' in harbor ? harbor.skip : false;
const folder = await mkdtemp(join(tmpdir(), 'atif-'));
after(() => rm(folder, { recursive: true }));
const stored = async (value: unknown): Promise<string> => {
  const file = join(folder, `${createHash('sha256').update(JSON.stringify(value)).digest('hex')}.json`);
  await writeFile(file, typeof value === 'string' ? value : JSON.stringify(value));
  return file;
};
const usage = { promptTokens: 100, completionTokens: 20, cachedTokens: 50 };
const instruction = 'Sort the names.';
const shell = toAtif({ record: shellRecord, instruction, tokens: shellTokens });
const terminus = toAtif({ record: terminusRecord, instruction, usage });
const oracle = toAtif({ record: { ...shellRecord, agent: 'oracle' }, instruction });

describe('trajectories in ATIF', () => {
  it('hold for Harbor’s own model', { skip }, async () => {
    assert.ok(!('skip' in harbor));
    const script = `
import json, sys
from harbor.models.trajectories.trajectory import Trajectory
for document in json.loads(sys.argv[1]):
    print(len(Trajectory.model_validate(document).steps))`;
    const step = toAtif({ record: shellRecord, instruction, tokens: shellTokens, turns: [1, 3] });
    const documents = [shell, terminus, oracle, step].map(({ trajectory }) => trajectory);
    assert.deepEqual((await harbor.run(script, JSON.stringify(documents))).trim().split('\n'), ['4', '6', '4', '3']);
  });

  it('show each command of a shell as a call with its result', () => {
    const { steps, agent, final_metrics: metrics } = shell.trajectory;
    assert.deepEqual(
      steps.map(({ source, message }) => [source, message]),
      [
        ['user', instruction],
        ['agent', 'cat names.txt'],
        ['agent', 'nosuch'],
        ['agent', 'exit'],
      ],
    );
    assert.deepEqual(steps[2]?.tool_calls, [{ tool_call_id: 'call_1_1', function_name: 'bash', arguments: { command: 'nosuch' } }]);
    assert.deepEqual(steps[2]?.observation?.results, [
      { source_call_id: 'call_1_1', content: 'nosuch: command not found\n[exit 127]', extra: { exit_code: 127 } },
    ]);
    assert.deepEqual(steps[2]?.metrics, { prompt_tokens: 8, completion_tokens: 2 });
    assert.deepEqual([agent.name, agent.model_name, agent.extra.id], ['terminal-rsi', 'policy:bbbbbbbbbbbb', shellRecord.agent]);
    assert.deepEqual(metrics, { total_prompt_tokens: 23, total_completion_tokens: 7, total_steps: 4 });
  });

  it('show keystrokes as Harbor shows Terminus-2’s', () => {
    const { steps, final_metrics: metrics } = terminus.trajectory;
    assert.deepEqual(
      steps.slice(2).map(({ message }) => message),
      ['what?', 'Analysis: I see.\nPlan: I type.', 'Analysis: I see.\nPlan: I type.', 'Analysis: I see.\nPlan: I type.'],
    );
    assert.deepEqual(
      steps.slice(2).map(({ tool_calls: calls = [] }) => calls.map((call) => [call.function_name, call.arguments])),
      [
        [],
        [['bash_command', { keystrokes: 'ls\n', duration: 0.1 }]],
        [
          ['bash_command', { keystrokes: 'cd x\n', duration: 0.1 }],
          ['bash_command', { keystrokes: 'C-c', duration: 0 }],
          ['mark_task_complete', {}],
        ],
        [['mark_task_complete', {}]],
      ],
    );
    assert.deepEqual(steps[3]?.observation?.results, [{ source_call_id: 'call_1_1', content: 'New Terminal Output:\n$ ls' }]);
    assert.deepEqual(steps[4]?.observation?.results, [{ content: 'sure?' }], 'several calls share one observation');
    assert.deepEqual([steps[0]?.source, metrics.total_cached_tokens], ['system', 50]);
  });

  it('keep every token once, beside them, under a hash that they name', () => {
    const lines = (shell.tokenLines ?? '')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    assert.deepEqual(lines[1], {
      turn: 1,
      prompt_tokens: 8,
      new_prompt_token_ids: [7, 8],
      completion_token_ids: [9, 9],
      logprobs: [-0.4, -0.5],
    });
    assert.deepEqual(
      lines.flatMap((line) => [...(line.new_prompt_token_ids as number[]), ...(line.completion_token_ids as number[])]),
      shellTokens.tokens,
    );
    const sha256 = createHash('sha256')
      .update(shell.tokenLines ?? '')
      .digest('hex');
    assert.deepEqual(shell.trajectory.extra.tokens, { file: 'tokens.jsonl', sha256 });
    assert.deepEqual([oracle.tokenLines, oracle.trajectory.extra.tokens], [undefined, undefined]);
  });

  it('are not made of tokens that do not fit the turns', () => {
    const atif = (changes: Partial<typeof shellTokens>, record: EpisodeRecord = shellRecord) =>
      toAtif({ record, instruction, tokens: { ...shellTokens, ...changes } });
    assert.throws(() => atif({ logprobs: shellTokens.logprobs.slice(1) }), /14 tokens, 14 turn ids, 13 log-probabilities/);
    assert.throws(
      () => atif({ turnIds: shellTokens.turnIds.map((turn) => (turn === 1 ? 2 : turn)) }),
      /turn 2 at position 8; expected turn 1/,
    );
    const short = { ...shellRecord, turns: shellRecord.turns.slice(0, 2) };
    assert.throws(() => atif({}, short), /of 3 turns; the episode has 2/);
    assert.equal(
      atif({}, { ...short, stopReason: 'error' })
        .tokenLines?.trim()
        .split('\n').length,
      2,
      'an error left a reply without a turn',
    );
  });
});

describe('replies to replay', () => {
  it('come word for word from our records and trajectories', async () => {
    for (const record of [shellRecord, terminusRecord]) {
      const expected = record.turns.map(({ reply }) => reply);
      assert.deepEqual(await replayReplies(await stored(record), record.harness), expected);
      assert.deepEqual(await replayReplies(await stored(toAtif({ record, instruction }).trajectory), record.harness), expected);
    }
  });

  it('of a chat model are what was executed of them', async () => {
    const ran = (command: string) => ({ command, stdout: '', stderr: '', exitCode: 0, timedOut: false });
    const turns = [
      { reply: 'So:\n```bash\nls\n```', commands: [ran('ls')] },
      { reply: '`pwd`', commands: [ran('pwd')] },
      { reply: '```\nexit\n```', commands: [] },
    ];
    const record = { ...shellRecord, turns };
    assert.deepEqual(await replayReplies(await stored(record), 'shell'), ['ls', 'pwd', 'exit']);
    assert.deepEqual(await replayReplies(await stored(toAtif({ record, instruction }).trajectory), 'shell'), ['ls', 'pwd', 'exit']);
  });

  it('of several episodes are the task’s', async () => {
    const other = { ...shellRecord, taskId: 'other', turns: [{ reply: 'ls', commands: [] }] };
    const file = await stored(`${JSON.stringify(shellRecord)}\n${JSON.stringify(other)}\n`);
    assert.deepEqual(await replayReplies(file, 'shell', 'other'), ['ls']);
    await assert.rejects(replayReplies(file, 'shell', 'third'), /no episode of task third/);
  });

  it('go from shell to script, and never to or from a terminal', async () => {
    const file = await stored(shellRecord);
    assert.deepEqual(await replayReplies(file, 'script'), ['cat names.txt\nnosuch\nexit']);
    await assert.rejects(replayReplies(file, 'terminus'), UserError);
    await assert.rejects(replayReplies(await stored(terminusRecord), 'shell'), /recorded with the harness terminus/);
  });

  it('come from other agents’ calls', async () => {
    const agent = { name: 'other', version: '1' };
    const step = (calls: readonly object[], more: object = {}) => ({
      step_id: 1,
      source: 'agent',
      message: 'm',
      tool_calls: calls,
      ...more,
    });
    const bash = (command: string) => ({ tool_call_id: 'c', function_name: 'Bash', arguments: { command } });
    const type = (keystrokes: string) => ({ tool_call_id: 'c', function_name: 'bash_command', arguments: { keystrokes, duration: 1 } });
    const copied = step([bash('old')], { is_copied_context: true });
    const shellLike = {
      schema_version: 'ATIF-v1.5',
      agent,
      steps: [{ source: 'user', message: 'u' }, copied, step([bash('ls'), bash('pwd')])],
    };
    assert.deepEqual(await replayReplies(await stored(shellLike), 'shell'), ['ls', 'pwd', 'exit']);
    const typed = { schema_version: 'ATIF-v1.8', agent, steps: [step([]), step([type('ls\n')])] };
    assert.deepEqual(
      (await replayReplies(await stored(typed), 'terminus')).map((reply) => (JSON.parse(reply) as { commands: unknown }).commands),
      [[{ keystrokes: 'ls\n', duration: 1 }]],
    );
    const mute = { schema_version: 'ATIF-v1.8', agent, steps: [step([])] };
    await assert.rejects(replayReplies(await stored(mute), 'shell'), /no tool call with a command/);
  });

  it('say what is wrong with a file', async () => {
    await assert.rejects(replayReplies(join(folder, 'missing.json'), 'shell'), /missing.json: ENOENT/);
    await assert.rejects(replayReplies(await stored('{"a": 1}\n{"b"'), 'shell'), /:2: /);
    await assert.rejects(replayReplies(await stored({ schema_version: 'ATIF-v1.8' }), 'shell'), /expected an ATIF trajectory/);
  });
});
