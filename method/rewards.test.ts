import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  calibrateChecks,
  calibrateFamilies,
  familyDenseReward,
  familyMeans,
  progress,
  rewardAudit,
  successPrioritizedReward,
} from './rewards.ts';
import { Random } from './seeds.ts';

const check = (name: string, passed: boolean): { name: string; passed: boolean } => ({ name, passed });

test('a check is valid if it fails untouched and passes after the reference solution', () => {
  const nop = [check('already-there', true), check('made', false), check('broken', false)];
  const oracle = [check('already-there', true), check('made', true), check('broken', false), check('not-run-before', true)];
  assert.deepEqual(
    calibrateChecks(nop, oracle).map((valid) => valid.name),
    ['made', 'not-run-before'],
  );
});

test('without a reference solution every check that fails untouched is valid', () => {
  assert.deepEqual(calibrateChecks([check('a', false), check('b', true)], undefined), [{ name: 'a', weight: 1 }]);
});

test('a check listed twice has passed only if both entries have', () => {
  const valid = calibrateChecks([check('a', false)], [check('a', true), check('a', true)]);
  assert.equal(progress([check('a', true), check('a', false)], valid), 0);
  assert.equal(progress([check('a', true), check('a', true)], valid), 1);
});

test('progress is the weighted share of valid checks; others and missing ones give nothing', () => {
  const valid = calibrateChecks([], [check('a', true), check('b', true), check('c', true)], { a: 2 });
  assert.equal(progress([check('a', true), check('free', true)], valid), 0.5);
  assert.equal(progress([check('a', true), check('b', true), check('c', true)], valid), 1);
  assert.equal(progress([], valid), 0);
  assert.throws(() => progress([check('a', true)], []), /no valid check/);
  assert.throws(() => calibrateChecks([], [check('a', true)], { a: 0 }), /weight 0/);
});

test('FDR divides by the family mean, bounded below by the floor, and lets a failed episode exceed 1', () => {
  assert.equal(familyDenseReward(0.5, 0.25, 0.1), 2);
  assert.equal(familyDenseReward(0.5, 0.01, 0.1), 5);
  assert.equal(familyDenseReward(0, 0.25, 0.1), 0);
  assert.throws(() => familyDenseReward(0.5, 0, 0), /both 0/);
  assert.throws(() => familyDenseReward(1.5, 0.5, 0.1), /progress = 1.5/);
});

test('FDR stays within [0, 1/floor] and SPR keeps every failure below every success', () => {
  const random = new Random(21);
  for (let trial = 0; trial < 500; trial++) {
    const [p, familyMean, floor, cap, bonus] = [random.next(), random.next(), 0.05 + 0.9 * random.next(), random.next(), random.next()];
    const fdr = familyDenseReward(p, familyMean, floor);
    assert.ok(fdr >= 0 && fdr <= 1 / floor);
    const failed = successPrioritizedReward(p, false, bonus, cap);
    assert.ok(failed >= 0 && failed <= cap && failed < 1);
    assert.equal(successPrioritizedReward(p, true, bonus, cap), 1 + bonus);
  }
  assert.ok(successPrioritizedReward(1, false, 0, 0.999) < 1);
  assert.throws(() => successPrioritizedReward(1, false, 0, 1), /cap = 1/);
  assert.throws(() => successPrioritizedReward(1, true, -0.1, 0.5), /bonus = -0.1/);
});

test('family calibration gives mean, scale and count; family means keep the order of appearance', () => {
  const records = [
    { family: 'grep', progress: 0 },
    { family: 'sed', progress: 1 },
    { family: 'grep', progress: 0.1 },
  ];
  assert.deepEqual(calibrateFamilies(records, 0.2), {
    grep: { mean: 0.05, scale: 0.2, episodes: 2 },
    sed: { mean: 1, scale: 1, episodes: 1 },
  });
  const values = records.map((record) => ({ family: record.family, value: record.progress }));
  assert.deepEqual([...familyMeans(values)], [['grep', 0.05], ['sed', 1]]); // prettier-ignore
});

test('the audit gives the five figures of a small example worked out by hand', () => {
  const audit = rewardAudit([
    { family: 'a', passed: true, reward: 1 },
    { family: 'a', passed: false, reward: 1 },
    { family: 'b', passed: false, reward: 0.5 },
    { family: 'b', passed: true, reward: 1.5 },
    { family: 'c', passed: false, reward: 0 },
  ]);
  assert.equal(audit.trajectories, 5);
  assert.equal(audit.families, 3);
  assert.equal(audit.passed, 2);
  assert.equal(audit.failedRewardShare, 1.5 / 4);
  assert.equal(audit.failedAtLeastOne, 1);
  assert.ok(Math.abs(audit.familyMeanDeviation - Math.sqrt(1 / 3)) < 1e-12); // means 1, 1, 0
  assert.ok(Math.abs(audit.trajectoryDeviation - Math.sqrt(1.3 / 4)) < 1e-12); // squares around 0.8: .04 + .04 + .09 + .49 + .64
});

test('from FDR to SPR the failed share falls and no failure reaches 1, outcomes unchanged', () => {
  const random = new Random(22);
  const episodes = Array.from({ length: 400 }, (_, i) => {
    const p = random.chance(0.3) ? 1 : random.next() * 0.95;
    return { family: `f${i % 7}`, p, passed: p === 1 };
  });
  const families = calibrateFamilies(
    episodes.map((episode) => ({ family: episode.family, progress: episode.p })),
    0.1,
  );
  const fdr = rewardAudit(episodes.map((e) => ({ ...e, reward: familyDenseReward(e.p, families[e.family]?.mean ?? 1, 0.1) })));
  const spr = rewardAudit(episodes.map((e) => ({ ...e, reward: successPrioritizedReward(e.p, e.passed, 0.5, 0.5) })));
  assert.equal(fdr.passed, spr.passed);
  assert.ok(fdr.failedAtLeastOne > 0 && spr.failedAtLeastOne === 0);
  assert.ok((spr.failedRewardShare ?? 1) < (fdr.failedRewardShare ?? 0));
});

test('the audit of nothing and of zero rewards is defined', () => {
  assert.deepEqual(rewardAudit([]), {
    trajectories: 0,
    families: 0,
    passed: 0,
    failedAtLeastOne: 0,
    familyMeanDeviation: 0,
    trajectoryDeviation: 0,
  });
  assert.equal(rewardAudit([{ family: 'a', passed: false, reward: 0 }]).failedRewardShare, undefined);
});
