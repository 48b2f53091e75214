/**
 * From judged episodes to the numbers of a stage (docs/method.md, Evaluation): suite scores per repeat, the four-suite mean, tiers, and whether
 * a stage is adopted. An episode without a verdict is an infrastructure outcome: counted, never in a denominator.
 */
import { mean, standardError } from './statistics.ts';

export interface EvaluatedEpisode {
  readonly suite: string;
  readonly taskId: string;
  readonly family: string;
  readonly tier: string;
  /** 0-based number of the independent evaluation. */
  readonly repeat: number;
  readonly outcome: 'passed' | 'failed' | 'no-verdict';
  /** Share of valid checks passed, in [0, 1]; needed in suites with a process score, ignored without a verdict. */
  readonly progress?: number;
}
export interface SuiteDefinition {
  readonly name: string;
  /** `strict`: share of episodes that passed everything; `process`: mean progress. */
  readonly metric: 'strict' | 'process';
  /** Counts in the four-suite mean. */
  readonly headline: boolean;
}
export interface ScoredSuite extends SuiteDefinition {
  /** One score in [0, 1] per repeat that has a verdict at all. */
  readonly scores: readonly number[];
  readonly mean: number;
  /** Standard error over the repeats; 0 with one. */
  readonly standardError: number;
  /** Episodes with a verdict, over all repeats. */
  readonly episodes: number;
  readonly noVerdict: number;
}

/** Strict success as 0 or 1, or progress. @throws RangeError for a process suite's episode without progress. */
function score(episode: EvaluatedEpisode, metric: SuiteDefinition['metric']): number {
  if (metric === 'strict') return episode.outcome === 'passed' ? 1 : 0;
  if (episode.progress === undefined) {
    throw new RangeError(`evaluation: ${episode.suite}/${episode.taskId} has no progress, but its suite has a process score`);
  }
  return episode.progress;
}

/**
 * Score of one suite in each repeat that has a verdict; index = repeat, undefined where none of its episodes has one.
 * @param repeats number of independent evaluations
 */
function scoresByRepeat(suite: SuiteDefinition, judged: readonly EvaluatedEpisode[], repeats: number): (number | undefined)[] {
  return Array.from({ length: repeats }, (_, repeat) => {
    const values = judged.filter((episode) => episode.repeat === repeat).map((episode) => score(episode, suite.metric));
    return values.length > 0 ? mean(values) : undefined;
  });
}

export interface StageScores {
  readonly suites: readonly ScoredSuite[];
  /** Mean over the headline suites, then over repeats; a suite counts the same whatever its number of tasks. */
  readonly fourSuiteMean: number;
  /** Standard error over the repeats of that mean; 0 with one. */
  readonly fourSuiteStandardError: number;
  readonly noVerdict: number;
}

/**
 * Scores a stage. A repeat in which a suite has no verdict at all is left out of that suite's scores and of the four-suite mean.
 * @throws RangeError where a suite has no verdict in any repeat, where no repeat covers all headline suites, and for an episode of a suite or repeat that is not listed
 */
export function scoreStage(suites: readonly SuiteDefinition[], episodes: readonly EvaluatedEpisode[], repeats: number): StageScores {
  for (const { suite, taskId, repeat } of episodes) {
    if (!suites.some((listed) => listed.name === suite)) throw new RangeError(`evaluation: ${suite}/${taskId} is of no listed suite`);
    if (!(Number.isInteger(repeat) && repeat >= 0 && repeat < repeats)) {
      throw new RangeError(`evaluation: ${suite}/${taskId} is of repeat ${repeat}, expected 0 to ${repeats - 1}`);
    }
  }
  const byRepeat = new Map<string, (number | undefined)[]>();
  const scored = suites.map((suite): ScoredSuite => {
    const all = episodes.filter((episode) => episode.suite === suite.name);
    const judged = all.filter((episode) => episode.outcome !== 'no-verdict');
    if (judged.length === 0) throw new RangeError(`evaluation: none of the ${all.length} episodes of suite ${suite.name} has a verdict`);
    const perRepeat = scoresByRepeat(suite, judged, repeats);
    byRepeat.set(suite.name, perRepeat);
    const scores = perRepeat.filter((value) => value !== undefined);
    return {
      ...{ name: suite.name, metric: suite.metric, headline: suite.headline },
      scores,
      mean: mean(scores),
      standardError: standardError(scores),
      episodes: judged.length,
      noVerdict: all.length - judged.length,
    };
  });
  const headline = suites.filter((suite) => suite.headline).map((suite) => byRepeat.get(suite.name) ?? []);
  const fourSuite: number[] = [];
  for (let repeat = 0; repeat < repeats; repeat++) {
    const values = headline.map((perRepeat) => perRepeat[repeat]).filter((value) => value !== undefined);
    if (values.length > 0 && values.length === headline.length) fourSuite.push(mean(values));
  }
  if (fourSuite.length === 0) throw new RangeError('evaluation: no repeat has a verdict in every headline suite');
  return {
    suites: scored,
    fourSuiteMean: mean(fourSuite),
    fourSuiteStandardError: standardError(fourSuite),
    noVerdict: scored.reduce((sum, suite) => sum + suite.noVerdict, 0),
  };
}

/** Strict success by tier over all given episodes with a verdict, in [0, 1]; tiers without any are absent. Pass evaluation suites only. */
export function tierMeans(episodes: readonly EvaluatedEpisode[]): Record<string, number> {
  const tiers: Record<string, number> = {};
  for (const tier of new Set(episodes.map((episode) => episode.tier))) {
    const judged = episodes.filter((episode) => episode.tier === tier && episode.outcome !== 'no-verdict');
    if (judged.length > 0) tiers[tier] = mean(judged.map((episode) => score(episode, 'strict')));
  }
  return tiers;
}

export interface AdoptionScore {
  readonly mean: number;
  readonly standardError: number;
  /** Episodes behind `mean` (all repeats); lets the rule see sampling noise that few repeats cannot show. */
  readonly episodes?: number;
}

/**
 * Ours: a stage is adopted unless its `dev` success falls more than `maxDropStandardErrors` pooled standard errors below the stage before.
 * The pooled standard error is the larger of sqrt(se_before² + se_after²) and, where `episodes` are given, the binomial one of two
 * proportions: with one to three repeats the first is often 0 by chance, and any drop would then count as significant.
 */
export function decideAdoption(input: {
  readonly before: AdoptionScore;
  readonly after: AdoptionScore;
  readonly maxDropStandardErrors: number;
}): { adopted: boolean; reason: string } {
  const { before, after, maxDropStandardErrors } = input;
  const pooled = Math.max(Math.hypot(before.standardError, after.standardError), binomialError(before, after));
  const drop = before.mean - after.mean;
  // A score that did not change must not be refused over the last bit of a mean.
  const adopted = drop <= maxDropStandardErrors * pooled + 1e-12;
  const percent = (value: number): string => `${(100 * value).toFixed(1)} %`;
  const comparison = `dev ${percent(before.mean)} → ${percent(after.mean)}`;
  const limit = `${maxDropStandardErrors} × ${percent(pooled)} pooled standard error`;
  if (drop <= 0) return { adopted, reason: `${comparison}: not lower` };
  return { adopted, reason: `${comparison}: drop of ${percent(drop)} is ${adopted ? 'within' : 'more than'} ${limit}` };
}

function binomialError(before: AdoptionScore, after: AdoptionScore): number {
  if (!before.episodes || !after.episodes) return 0;
  const p = (before.mean * before.episodes + after.mean * after.episodes) / (before.episodes + after.episodes);
  return Math.sqrt(Math.max(0, p * (1 - p)) * (1 / before.episodes + 1 / after.episodes));
}
