import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Mark } from './marks.ts';
import type { ActivityOutcome } from './outcome.ts';
import { fits, planDisturbances, pointsOf, type DisturbanceKind } from './plan.ts';

let time = 0;
const mark = (kind: Mark['kind'], group: string, name: string): Mark => ({ kind, group, name, at: ++time });
const marksOf = (kind: Mark['kind'], group: string, file: string, count: number): Mark[] =>
  Array.from({ length: count }, (_, i) => mark(kind, group, `${group}/${file}#${i + 1}`));
const stored = (stage: string, purpose: string, type: string): ActivityOutcome => ({
  ...{ name: `${stage}/${purpose}/${type}/0`, type, stage, purpose, attempts: 1, endedAt: ++time },
  artifacts: [{ field: 'it', ref: { kind: 'episodes', uri: `artifact:${String(time)}`, sha256: String(time), bytes: 1 } }],
});

/** A run in small: gate, evaluation, rollout, verdicts, rewriting, training. */
function smallRun(): { marks: Mark[]; activities: ActivityOutcome[] } {
  time = 0;
  const activities: ActivityOutcome[] = [];
  const marks = [...marksOf('task', 'Base/calibrate', 'gate', 5), ...marksOf('episode', 'Base/evaluation-1', '0.jsonl', 6)];
  marks.push(...marksOf('episode', 'RSR-1/rollout', '0.jsonl', 6));
  activities.push(stored('RSR-1', 'rollout', 'rollout'));
  marks.push(...marksOf('verdict', 'RSR-1/rollout', '0-verdicts.jsonl', 6), ...marksOf('rewrite', 'RSR-1/rewrite', '0.jsonl', 4));
  marks.push(
    ...marksOf('checkpoint', 'RSR-1/fine-tune', 'checkpoint', 6),
    mark('training-end', 'RSR-1/fine-tune', 'RSR-1/fine-tune/result#1'),
  );
  activities.push(stored('RSR-1', 'fine-tune', 'fineTuneActor'));
  return { marks, activities };
}
const points = (() => {
  const { marks, activities } = smallRun();
  return pointsOf(marks, activities);
})();
const plan = (kills: number, seed: number, without: DisturbanceKind[] = ['Docker daemon']) =>
  planDisturbances(points, { kills, seed, without: new Set(without) });

describe('points of a run', () => {
  it('are in the order of the run, and none lies after the last piece of an activity but its end', () => {
    assert.deepEqual([...new Set(points.map(({ group }) => group))].slice(0, 3), ['Base/calibrate', 'Base/evaluation-1', 'RSR-1/rollout']);
    assert.ok(points.some(({ name }) => name === 'RSR-1/rollout/0.jsonl#5'));
    assert.ok(!points.some(({ name }) => name === 'RSR-1/rollout/0.jsonl#6'));
    const ends = points.filter(({ moment }) => moment === 'between activity end and its report').map(({ name }) => name);
    assert.deepEqual(ends, ['RSR-1/rollout/rollout/0', 'RSR-1/fine-tune/result#1']);
  });

  it('have every moment of the crash model', () => {
    assert.deepEqual(
      new Set(points.map(({ moment }) => moment)),
      new Set([
        ...['in the gate', 'during evaluation', 'mid-rollout', 'mid-verify', 'mid-rewrite'],
        ...['between activity end and its report', 'while a checkpoint is being written', 'between minibatches'],
      ]),
    );
  });
});

describe('a plan', () => {
  it('is the same for the same seed and another one for another', () => {
    assert.deepEqual(plan(9, 1), plan(9, 1));
    assert.notDeepEqual(plan(9, 1), plan(9, 2));
  });

  for (const seed of [1, 2, 3, 4, 5]) {
    it(`disturbs every process and tears a checkpoint with six disturbances, in the run's order (seed ${seed})`, () => {
      const disturbances = plan(6, seed);
      assert.deepEqual(
        new Set(disturbances.map(({ kind }) => kind)),
        new Set(['rollout worker', 'trainer', 'GPU worker', 'Temporal server', 'launcher', 'torn checkpoint']),
      );
      const places = disturbances.map(({ point }) => points.indexOf(point));
      assert.deepEqual(
        places,
        [...places].sort((a, b) => a - b),
      );
      for (const { kind, point } of disturbances) assert.ok(fits(kind, point), `${kind} at ${point.name}`);
    });
  }

  it('leaves out what cannot happen here', () => {
    const kinds = plan(20, 1, ['Docker daemon', 'full disk']).map(({ kind }) => kind);
    assert.ok(!kinds.includes('full disk') && !kinds.includes('Docker daemon'));
    assert.equal(kinds.length, 20);
  });

  it('refuses more disturbances than the run has points', () => {
    assert.throws(() => plan(points.length + 1, 1), /expected at least/);
  });
});
