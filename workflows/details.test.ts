import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { RunProgress } from './contract.ts';
import { runDetails, tasksText } from './details.ts';

const run: RunProgress = {
  ...{ runKey: 'key', profile: 'smoke', status: 'running', stage: 'RSR-1', activity: 'rollout', startedAt: 0 },
  ...{ stages: [], plannedStages: ['Base', 'RSR-1', 'RPR-1'] },
};
const task = (id: string): { suite: string; id: string } => ({ suite: 'train', id });

it('the details link to the report, and say that it is not there before the run has ended', () => {
  const reportUrl = 'http://127.0.0.1:7310/reports/key/';
  assert.doesNotMatch(runDetails(run), /report/i);
  assert.ok(runDetails({ ...run, reportUrl }).endsWith(`[Report](${reportUrl}), written when the run ends`));
  assert.ok(runDetails({ ...run, reportUrl, status: 'finished' }).endsWith(`[Report of this run](${reportUrl})`));
});

it('the details of a run that waits for a person say what to send', () => {
  assert.match(runDetails({ ...run, status: 'waiting-for-approval' }), /`approveStage` with `\{"stage": "RSR-1"\}`/);
  assert.match(runDetails({ ...run, status: 'paused' }), /update `resume`/);
  assert.doesNotMatch(runDetails(run), /send/);
});

it('a summary names one task, and of several the first and their number', () => {
  assert.equal(tasksText([task('sort-3')]), 'train/sort-3');
  assert.equal(tasksText([task('sort-3')], 1), 'train/sort-3 (1 episode)');
  assert.equal(tasksText([task('sort-3'), task('sort-3'), task('copy-1')], 3), 'train/sort-3 … (2 tasks, 3 episodes)');
  assert.equal(tasksText([]), 'no task');
});

it('a summary stays under the 400 bytes that the server takes, whatever a task is called', () => {
  const longest = `RPR-12 · evaluation-100 · chunk 1000 of 1000 · ${tasksText([task('名'.repeat(500)), task('b')], 10_000)}`;
  assert.ok(Buffer.byteLength(JSON.stringify(longest)) < 400, longest);
});
