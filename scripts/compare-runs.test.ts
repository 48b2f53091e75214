import assert from 'node:assert/strict';
import { test } from 'node:test';
import { UserError } from '../environment/errors.ts';
import type { RunResult } from '../records/result.ts';
import { profiles } from '../workflows/profiles.ts';
import { compareRuns } from './compare-runs.ts';

const stage = (name: string, score: number, adopted = true): RunResult['stages'][number] => ({
  name,
  kind: name === 'Base' ? 'base' : 'rsr',
  adopted,
  decision: '',
  policySha256: '0'.repeat(64),
  suites: [{ name: 'core', metric: 'strict', headline: true, mean: score, standardError: 0.01, repeats: [score] }],
  fourSuiteMean: score,
  fourSuiteStandardError: 0.01,
  tiers: {},
  episodes: 10,
  tokens: 100,
  evaluation: { episodes: 5, tokens: 50, noVerdict: 1 },
  seconds: 1,
});
const run = (seed: number, stages: RunResult['stages']): RunResult => ({
  schema: 'terminal-rsi/run-result@1',
  runId: `run-${seed}`,
  workflowId: `run-${seed}`,
  profile: 'quick',
  seed,
  sandbox: 'embedded',
  wallSeconds: 60,
  config: profiles.quick,
  versions: {},
  stages,
  rewardAudit: null,
});

test('runs stand side by side, with the mean and standard error over the seeds', () => {
  const text = compareRuns([run(1, [stage('Base', 0.1), stage('RSR-1', 0.4)]), run(2, [stage('Base', 0.2), stage('RSR-1', 0.5, false)])]);
  assert.match(text, /\| seed 1 \| 10\.0 ± 1\.0 \| 40\.0 ± 1\.0 \|/);
  assert.match(text, /\| seed 2 \| 20\.0 ± 1\.0 \| 50\.0 ± 1\.0 † \|/);
  // Two values that differ by 0.1: sample standard deviation 0.0707, standard error 0.05.
  assert.match(text, /\| mean of the seeds \| 15\.0 ± 5\.0 \| 45\.0 ± 5\.0 \|/);
  assert.match(text, /\| seed 2 \| quick \| embedded \| 60 \| 20 \| 10 \| 2 \|/);
});

test('runs with other stages are refused by name', () => {
  assert.throws(
    () => compareRuns([run(1, [stage('Base', 0)]), run(2, [stage('Base', 0), stage('RSR-1', 0)])]),
    (error: unknown) => {
      assert.ok(error instanceof UserError);
      assert.match(error.message, /run-2: got the stages Base, RSR-1, expected Base/);
      return true;
    },
  );
});
