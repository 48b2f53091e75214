/** Trials for the tests of what is written about them: several harnesses, agents, steps and outcomes. */
import type { Trial } from '../environment/trial/types.ts';
import type { EpisodeRecord, EpisodeTokens, FileTree } from '../environment/types.ts';

const at = (second: number): string => `2026-03-01T10:00:${String(second).padStart(2, '0')}.000Z`;
const period = (from: number, to: number) => ({ startedAt: at(from), finishedAt: at(to) });
const tree = (files: Readonly<Record<string, string>>): FileTree =>
  new Map(Object.entries(files).map(([name, text]) => [name, { data: Buffer.from(text), mode: 0o644 }]));
const done = { stdout: '', stderr: '', exitCode: 0, timedOut: false };

export const shellRecord: EpisodeRecord = {
  episodeId: 'episode-1',
  suite: 'fixtures',
  taskId: 'sort-names',
  taskChecksum: 'a'.repeat(64),
  family: 'sorting',
  tier: 'easy',
  harness: 'shell',
  sandbox: 'docker',
  agent: `policy:${'b'.repeat(64)}`,
  sample: 1,
  seed: 7,
  turns: [
    { reply: 'cat names.txt', commands: [{ ...done, command: 'cat names.txt', stdout: 'pear\napple\n' }], observation: 'pear\napple' },
    {
      reply: 'nosuch',
      commands: [{ ...done, command: 'nosuch', stderr: 'nosuch: command not found\n', exitCode: 127 }],
      observation: 'nosuch: command not found\n[exit 127]',
    },
    { reply: 'exit', commands: [] },
  ],
  stopReason: 'exit',
  agentTokens: 7,
  totalTokens: 14,
};
/** Prompt 1 2 3, reply 4 5 6, observation 7 8, reply 9 9, observation 3 2, reply 4 5. */
export const shellTokens: EpisodeTokens = {
  episodeId: 'episode-1',
  tokens: [1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 3, 2, 4, 5],
  turnIds: [-1, -1, -1, 0, 0, 0, -1, -1, 1, 1, -1, -1, 2, 2],
  logprobs: [0, 0, 0, -0.1, -0.2, -0.3, 0, 0, -0.4, -0.5, 0, 0, -0.6, -0.7],
};

const said = (commands: readonly object[], complete = false): string =>
  JSON.stringify({ analysis: 'I see.', plan: 'I type.', commands, task_complete: complete });
export const terminusRecord: EpisodeRecord = {
  ...shellRecord,
  episodeId: 'episode-2',
  harness: 'terminus',
  agent: 'model:org/some-model',
  turns: [
    { reply: 'what?', commands: [], observation: 'The previous response could not be read' },
    {
      reply: said([{ keystrokes: 'ls\n', duration: 0.1 }]),
      commands: [],
      keystrokes: [{ keystrokes: 'ls\n', durationSec: 0.1 }],
      observation: 'New Terminal Output:\n$ ls',
    },
    {
      reply: said(
        [
          { keystrokes: 'cd x\n', duration: 0.1 },
          { keystrokes: 'C-c', duration: 0 },
        ],
        true,
      ),
      commands: [],
      keystrokes: [
        { keystrokes: 'cd x\n', durationSec: 0.1 },
        { keystrokes: 'C-c', durationSec: 0 },
      ],
      taskComplete: true,
      observation: 'sure?',
    },
    { reply: said([], true), commands: [], taskComplete: true },
  ],
};

const files = {
  agent: tree({ 'notes/log.txt': 'x\n' }),
  verifier: tree({ 'reward.txt': '1\n', 'test-stdout.txt': 'ok\n' }),
  artifacts: tree({ 'app/out.txt': 'o\n' }),
};
const noFiles = { agent: tree({}), verifier: tree({}), artifacts: tree({}) };
const untrained: Trial = {
  name: 'sort-names__abcdefg',
  task: { id: 'sort-names', name: 'org/sort-names', dir: '/tasks/sort-names', checksum: 'a'.repeat(64) },
  source: 'fixtures',
  instruction: 'Sort the names.\n',
  record: shellRecord,
  verdict: { outcome: 'passed', checks: [{ name: 'reward', passed: true }], reward: 1 },
  verifierMode: 'shared',
  rewardValid: true,
  period: period(0, 30),
  phases: { environmentSetup: period(0, 5), agentSetup: period(5, 6), agentExecution: period(6, 20), verifier: period(20, 30) },
  files,
};
export const passed: Trial = { ...untrained, tokens: shellTokens };
export const failed: Trial = {
  ...untrained,
  name: 'sort-names__bbbbbbb',
  record: terminusRecord,
  usage: { promptTokens: 100, completionTokens: 20, cachedTokens: 50 },
  verdict: { outcome: 'failed', checks: [], reward: 0, rewards: { reward: 0, style: 0.5 } },
  error: { type: 'AgentTimeoutError', message: 'the agent took longer than 9 s', policy: { retry: false, grade: true, rewardValid: true } },
};
export const broken: Trial = {
  ...untrained,
  name: 'sort-names__ccccccc',
  record: { ...shellRecord, agent: 'oracle', sandbox: 'embedded', turns: [], stopReason: 'error', agentTokens: 0, totalTokens: 0 },
  verdict: { outcome: 'no-verdict', checks: [], error: { type: 'EnvironmentStartTimeoutError', message: 'no start' } },
  error: { type: 'EnvironmentStartTimeoutError', message: 'no start', policy: { retry: true, grade: false, rewardValid: false } },
  rewardValid: false,
  phases: { environmentSetup: period(0, 5) },
  files: noFiles,
};
export const stepped: Trial = {
  ...passed,
  name: 'two-steps__ddddddd',
  steps: [
    {
      name: 'first',
      instruction: 'Begin.',
      turns: [0, 2],
      verdict: passed.verdict,
      phases: { agentExecution: period(6, 10), verifier: period(10, 12) },
      files,
    },
    { name: 'second', turns: [2, 3], verdict: { outcome: 'failed', checks: [], reward: 0 }, phases: {}, files: noFiles },
  ],
};
