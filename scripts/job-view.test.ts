import assert from 'node:assert/strict';
import { it } from 'node:test';
import { stripVTControlCharacters } from 'node:util';
import { jobResult } from '../records/job-result.ts';
import { resolveEpisodesConfig } from '../workflows/episodes-config.ts';
import type { JobProgress, TrialSummary } from '../workflows/job-contract.ts';
import { jobView, resultTable } from './job-view.ts';

const config = resolveEpisodesConfig({ dataset: '/tasks/some' });
const passed: TrialSummary = {
  ...{ name: 'a__0', task: 'a', sample: 0, outcome: 'passed', reward: 1, rewardValid: true, infraFailed: false, attempts: 1, seconds: 4 },
};
const timedOut: TrialSummary = { ...passed, name: 'b__0', task: 'b', outcome: 'failed', reward: 0.5, error: 'AgentTimeoutError' };
const broken: TrialSummary = {
  ...{ name: 'c__0', task: 'c', sample: 0, outcome: 'no-verdict', rewardValid: false, infraFailed: true, attempts: 3, seconds: 9 },
  error: 'SandboxBuildFailedError',
};
const job: JobProgress = {
  ...{ status: 'running', config, directory: '/jobs/x', source: 'some', startedAt: 0, trials: 6, refused: 1 },
  counts: { done: 3, passed: 1, failed: 1, noVerdict: 1, infraFailed: 1, rewardSum: 1.5, rewards: 2, errors: { AgentTimeoutError: 1 } },
  running: [{ task: 'd', sample: 0, since: 50_000 }],
  recent: [broken, timedOut, passed],
};

it('shows counts, rate and time left, and each episode at work with its phase', () => {
  const pending = [{ task: 'd', sample: 0, phase: 'agentExecution', attempt: 1 }];
  const lines = jobView(job, pending, new Map(), 60_000).lines(200).map(stripVTControlCharacters);
  assert.match(lines[0] ?? '', /^oracle on some, shell in docker$/);
  assert.match(lines[1] ?? '', /3 of 6 · 1 passed · 1 failed · .* · mean reward 0\.750 · 1 at work · 3\.0 episodes\/min · about 1:00 left/);
  assert.ok(lines.some((line) => /d #1 +agentExecution +0:10/.test(line)));
  assert.ok(lines.some((line) => /c #1 +SandboxBuildFailedError +0:09/.test(line)));
  assert.ok(
    jobView(job, pending, new Map(), 60_000)
      .lines(60)
      .every((line) => stripVTControlCharacters(line).length <= 60),
  );
});

it('names every episode that ended once, however few the job still lists', () => {
  const events = new Map<string, string>();
  jobView({ ...job, recent: [passed] }, [], events, 1);
  assert.deepEqual(jobView({ ...job, recent: [broken, timedOut] }, [], events, 2).events, [
    'a__0: passed 1',
    'b__0: failed (AgentTimeoutError) 0.500',
    'c__0: SandboxBuildFailedError',
  ]);
});

it('says why a job has paused', () => {
  const lines = jobView({ ...job, status: 'paused', message: '5 of the last 5 episodes failed' }, [], new Map(), 1)
    .lines(120)
    .map(stripVTControlCharacters);
  assert.match(lines[0] ?? '', /· paused$/);
  assert.ok(lines.includes('5 of the last 5 episodes failed'));
});

it('sums a finished job up without counting what its environment failed', () => {
  const opened = {
    directory: '/jobs/x',
    source: 'some',
    tasks: 3,
    trials: 3,
    plan: {} as never,
    refused: [{ task: 'e', reason: 'it has no solution/' }],
    refusedCount: 1,
  };
  const result = jobResult({ runKey: 'r', workflowId: 'w', config }, opened, [passed, timedOut, broken]);
  assert.deepEqual(
    [result.meanReward, result.infra_failed_rate, result.errors],
    [0.75, 1 / 3, { AgentTimeoutError: 1, SandboxBuildFailedError: 1 }],
  );
  const text = stripVTControlCharacters(resultTable(result));
  assert.match(text, /3 episodes: 1 passed, 1 failed, 1 without verdict; mean reward 0\.750; infra_failed_rate 0\.333/);
  assert.match(text, /Errors: AgentTimeoutError: 1, SandboxBuildFailedError: 1/);
  assert.match(text, /Not run:\n {2}e: it has no solution\//);
});
