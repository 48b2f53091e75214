import assert from 'node:assert/strict';
import { it } from 'node:test';
import { stripVTControlCharacters } from 'node:util';
import type { RunProgress } from '../workflows/contract.ts';
import { duration, LiveTable, liveLines, secondsLeft, statusLine, type LiveState } from './live-table.ts';

const started = 1_000_000;
const finished = (name: string): RunProgress['stages'][number] => ({
  ...{ name, adopted: true, reused: false, fourSuiteMean: 0.25, standardError: 0.01 },
  suites: [{ name: 'core', metric: 'strict', headline: true, scores: [0.25, 0.25, 0.25], mean: 0.25, standardError: 0 }],
});
const progress = (over: Partial<RunProgress>): RunProgress => ({
  ...{
    runKey: 'k',
    profile: 'quick',
    status: 'running',
    stage: 'RSR-1',
    activity: 'rollout',
  },
  ...{ startedAt: started, stages: [], plannedStages: ['Base', 'RSR-1', 'RPR-1'] },
  ...over,
});
const state = (over: Partial<RunProgress>, rest: Partial<LiveState> = {}): LiveState => ({
  progress: progress(over),
  activities: [],
  now: started + 60_000,
  ...rest,
});

function recorder(isTTY: boolean): { stream: NodeJS.WriteStream; text: () => string } {
  let text = '';
  const stream = { isTTY, columns: 100, rows: 30, write: (chunk: string) => ((text += chunk), true) };
  return { stream: stream as unknown as NodeJS.WriteStream, text: () => text };
}

it('writes durations as a clock', () => {
  assert.equal(duration(75), '1:15');
  assert.equal(duration(3700), '1:01:40');
  assert.equal(duration(0), '0:00');
});

it('estimates the time left from finished and planned stages', () => {
  assert.equal(secondsLeft(state({})), undefined);
  // Base (weight 1) took 10 s, so 8 more units are 80 s, of which 50 s have passed.
  assert.equal(secondsLeft(state({ stages: [finished('Base')] }, { lastStageEndedAt: started + 10_000 })), 30);
  assert.equal(secondsLeft(state({ stages: [finished('Base')] }, { now: started + 900_000, lastStageEndedAt: started + 10_000 })), 0);
});

it('says what is going on in one line', () => {
  const line = statusLine(
    state(
      { count: { unit: 'episodes', done: 30, total: 120, passed: 12 }, loss: 9 },
      { activities: [{ type: 'fineTuneActor', attempt: 2, step: 5, totalSteps: 40, loss: 1.23456, lastFailure: 'trainer died' }] },
    ),
  );
  assert.equal(
    line,
    'RSR-1 · rollout · episodes 30/120 · success 40 % · step 5/40 · loss 1.235 · fineTuneActor: attempt 2 after "trainer died"',
  );
});

it('counts each activity in its own unit, with a success rate for episodes alone', () => {
  const line = (over: Partial<RunProgress>): string => statusLine(state(over));
  assert.equal(line({ count: { unit: 'episodes', done: 0, total: 8, passed: 0 } }), 'RSR-1 · rollout · episodes 0/8');
  assert.equal(
    line({ activity: 'rewrite', count: { unit: 'task groups', done: 1, total: 2, kept: 119 } }),
    'RSR-1 · rewrite · task groups 1/2 · 119 kept',
  );
  assert.equal(
    line({ stage: 'RPR-1', activity: 'PPO', count: { unit: 'iterations', done: 2, total: 5 }, loss: 0.5 }),
    'RPR-1 · PPO · iterations 2/5 · loss 0.5000',
  );
});

it('fills the bar with the steps of the iteration or of the epochs that are being trained', () => {
  const activities = [{ type: 'jointPpo', attempt: 1, step: 5, totalSteps: 10 }];
  const full = (over: Partial<RunProgress>): number => (liveLines(state(over, { activities }), 100)[1] ?? '').split('█').length - 1;
  // Of 24 places: two of four iterations and half of the third; half of the steps of all epochs.
  assert.equal(full({ count: { unit: 'iterations', done: 2, total: 4 } }), 15);
  assert.equal(full({ count: { unit: 'epochs', done: 0, total: 4 } }), 12);
  assert.equal(full({}), 12);
});

it('never writes a line wider than the terminal, and shows finished stages as a table', () => {
  const lines = liveLines(state({ activity: 'x'.repeat(300), stages: [finished('Base')] }), 80).map(stripVTControlCharacters);
  assert.match(lines[0] ?? '', /quick run {2}stage 2 of 3 {2}1:00 elapsed/);
  assert.ok((lines[1] ?? '').length <= 80);
  assert.ok(lines.some((line) => line.includes('four-suite mean')));
});

it('redraws in place on a terminal and keeps logged lines above', () => {
  const { stream, text } = recorder(true);
  const table = new LiveTable(stream);
  table.update(state({}));
  table.update(state({ count: { unit: 'episodes', done: 1, total: 2, passed: 0 } }));
  assert.ok(text().includes('\r\u001b[2A\u001b[0J'));
  table.log('a warning');
  assert.match(stripVTControlCharacters(text()), /a warning\n.*quick run/s);
});

it('without a terminal prints changes only, and each finished stage once', () => {
  const { stream, text } = recorder(false);
  const table = new LiveTable(stream);
  const first = state({ stages: [finished('Base')] });
  table.update(first);
  table.update({ ...first, now: first.now + 6000 });
  table.update({ ...first, now: first.now + 7000, progress: progress({ activity: 'verify', stages: [finished('Base')] }) });
  assert.deepEqual(text().trim().split('\n'), ['Base: four-suite mean 25.0 %', '[1:00] RSR-1 · rollout', '[1:07] RSR-1 · verify']);
});
