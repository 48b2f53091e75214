import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EvaluatedEpisode, SuiteDefinition } from './evaluation.ts';
import { decideAdoption, scoreStage, tierMeans } from './evaluation.ts';

const suites: SuiteDefinition[] = [
  { name: 'one', metric: 'strict', headline: true },
  { name: 'two', metric: 'strict', headline: true },
  { name: 'long', metric: 'process', headline: false },
];
const episode = (
  suite: string,
  repeat: number,
  outcome: EvaluatedEpisode['outcome'],
  more: Partial<EvaluatedEpisode> = {},
): EvaluatedEpisode => ({
  ...{ suite, repeat, outcome, taskId: 't', family: 'f', tier: 'easy', progress: outcome === 'passed' ? 1 : 0 },
  ...more,
});

test('suite scores per repeat, their mean and standard error, and the mean over headline suites', () => {
  const result = scoreStage(
    suites,
    [
      ...[episode('one', 0, 'passed'), episode('one', 0, 'failed'), episode('one', 1, 'passed'), episode('one', 1, 'passed')],
      ...[episode('two', 0, 'failed'), episode('two', 1, 'failed', { progress: 0.9 })],
      ...[episode('long', 0, 'failed', { progress: 0.25 }), episode('long', 1, 'passed')],
    ],
    2,
  );
  assert.deepEqual(
    result.suites.map((suite) => suite.scores),
    [
      [0.5, 1],
      [0, 0],
      [0.25, 1],
    ],
  );
  assert.equal(result.suites[0]?.mean, 0.75);
  assert.ok(Math.abs((result.suites[0]?.standardError ?? 0) - 0.25) < 1e-12);
  assert.equal(result.fourSuiteMean, 0.375); // repeats: .25 and .5; the process suite stays out
  assert.ok(Math.abs(result.fourSuiteStandardError - 0.125) < 1e-12);
});

test('episodes without a verdict leave the denominator and are counted', () => {
  const result = scoreStage(
    suites.slice(0, 1),
    [episode('one', 0, 'passed'), episode('one', 0, 'no-verdict'), episode('one', 1, 'no-verdict')],
    2,
  );
  assert.deepEqual(result.suites[0]?.scores, [1]);
  assert.equal(result.suites[0]?.episodes, 1);
  assert.equal(result.noVerdict, 2);
  assert.equal(result.fourSuiteMean, 1);
  assert.equal(result.fourSuiteStandardError, 0);
});

test('what cannot be scored is an error that names suite and task', () => {
  assert.throws(() => scoreStage(suites.slice(0, 1), [episode('one', 0, 'no-verdict')], 1), /none of the 1 episodes of suite one/);
  assert.throws(() => scoreStage(suites.slice(0, 1), [episode('else', 0, 'passed')], 1), /else\/t is of no listed suite/);
  assert.throws(() => scoreStage(suites.slice(0, 1), [episode('one', 3, 'passed')], 3), /repeat 3, expected 0 to 2/);
  const { progress: _, ...withoutProgress } = episode('long', 0, 'failed');
  assert.throws(() => scoreStage(suites.slice(2), [withoutProgress], 1), /long\/t has no progress/);
  const crossed = [episode('one', 0, 'passed'), episode('two', 1, 'passed')];
  assert.throws(() => scoreStage(suites.slice(0, 2), crossed, 2), /no repeat has a verdict in every headline suite/);
});

test('tier means are strict success over episodes with a verdict', () => {
  const tiers = tierMeans([
    episode('one', 0, 'passed', { tier: 'hard' }),
    episode('long', 0, 'failed', { tier: 'hard', progress: 0.9 }),
    episode('one', 0, 'no-verdict', { tier: 'hard' }),
    episode('one', 0, 'no-verdict', { tier: 'extreme' }),
  ]);
  assert.deepEqual(tiers, { hard: 0.5 });
});

test('adoption: a rise and a drop within the limit are adopted, a larger drop is not', () => {
  const before = { mean: 0.5, standardError: 0.03 };
  const decide = (mean: number): { adopted: boolean; reason: string } =>
    decideAdoption({ before, after: { mean, standardError: 0.04 }, maxDropStandardErrors: 2 });
  assert.deepEqual(decide(0.6), { adopted: true, reason: 'dev 50.0 % → 60.0 %: not lower' });
  assert.equal(decide(0.41).adopted, true); // pooled .05, limit .1
  assert.deepEqual(decide(0.39), {
    adopted: false,
    reason: 'dev 50.0 % → 39.0 %: drop of 11.0 % is more than 2 × 5.0 % pooled standard error',
  });
});

test('adoption with equal repeats still sees the sampling noise of few episodes', () => {
  const quiet = { before: { mean: 0.5, standardError: 0 }, after: { mean: 0.45, standardError: 0 }, maxDropStandardErrors: 2 };
  assert.equal(decideAdoption(quiet).adopted, false);
  const counted = { ...quiet, before: { ...quiet.before, episodes: 40 }, after: { ...quiet.after, episodes: 40 } };
  assert.equal(decideAdoption(counted).adopted, true);
  assert.equal(decideAdoption({ ...counted, after: { mean: 0.1, standardError: 0, episodes: 40 } }).adopted, false);
});
