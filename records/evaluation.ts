/**
 * From the verdict artifacts of a stage's evaluations to its numbers: a table with every task of every repeat (stored as an
 * artifact) and the summary that goes into the workflow's result. The formulas are method/evaluation.ts's.
 */
import type { EpisodeVerdict, Tier } from '../environment/types.ts';
import { scoreStage, tierMeans, type EvaluatedEpisode } from '../method/evaluation.ts';
import type { EvaluateResult, SuiteListing, SuiteMetric } from '../workflows/contract.ts';
import type { ArtifactStore } from './artifacts.ts';
import { verdictProgress, type Calibration } from './calibration.ts';
import { readChunks } from './chunks.ts';
import type { ArtifactRef } from './types.ts';

export interface TaskScore {
  readonly taskId: string;
  readonly family: string;
  readonly tier: Tier;
  readonly passes: number;
  /** Episodes with a verdict. */
  readonly n: number;
  readonly noVerdict: number;
  /** Mean share of valid checks passed over those n; absent when n = 0. */
  readonly meanProgress?: number;
}
export interface SuiteTable {
  readonly name: string;
  readonly metric: SuiteMetric;
  readonly headline: boolean;
  /** One entry a repeat: the tasks in the suite's order. */
  readonly repeats: readonly (readonly TaskScore[])[];
}
export interface EvaluationTable {
  readonly schema: 'terminal-rsi/evaluation@1';
  readonly suites: readonly SuiteTable[];
  readonly noVerdict: number;
  /** Agent tokens sampled in all repeats. */
  readonly tokens: number;
}

export interface BuildEvaluationInput {
  readonly suites: readonly SuiteListing[];
  /** One list of verified chunks per independent evaluation. */
  readonly repeats: readonly (readonly ArtifactRef[])[];
  readonly calibration: Calibration;
  readonly store: Pick<ArtifactStore, 'readJsonLines' | 'putJson'>;
}

/**
 * Reads the evaluations' verdicts, scores them, and stores the table.
 * Throws RangeError for an episode of an unlisted task and where a suite has no verdict at all, ArtifactError for missing or changed artifacts.
 */
export async function buildEvaluation(input: BuildEvaluationInput): Promise<{ table: EvaluationTable; result: EvaluateResult }> {
  const { suites, calibration, store } = input;
  const repeats = await Promise.all(input.repeats.map((parts) => readChunks(store, parts)));
  const listed = new Set(suites.flatMap((suite) => suite.tasks.map((task) => `${suite.name}/${task.id}`)));
  const episodes: EvaluatedEpisode[] = [];
  for (const [repeat, chunks] of repeats.entries()) {
    for (const chunk of chunks) {
      for (const verdict of await store.readJsonLines<EpisodeVerdict>(chunk.verify.verdicts)) {
        if (!listed.has(`${verdict.suite}/${verdict.taskId}`))
          throw new RangeError(`evaluation: task ${verdict.suite}/${verdict.taskId} is of no listed suite`);
        const { suite, taskId, family, tier, outcome } = verdict;
        const progress = verdictProgress(calibration, verdict);
        episodes.push({ suite, taskId, family, tier, repeat, outcome, ...(progress === undefined ? {} : { progress }) });
      }
    }
  }
  const tokens = repeats.flat().reduce((sum, chunk) => sum + chunk.rollout.agentTokens, 0);
  const scores = scoreStage(suites, episodes, repeats.length);
  const table: EvaluationTable = {
    schema: 'terminal-rsi/evaluation@1',
    suites: suites.map((suite) => suiteTable(suite, episodes, repeats.length)),
    noVerdict: scores.noVerdict,
    tokens,
  };
  // The tiers cover the suites a stage is judged by; `dev` only decides adoption and would count its tasks twice.
  const judged = new Set(suites.filter((suite) => suite.name !== 'dev').map((suite) => suite.name));
  const result: EvaluateResult = {
    table: await store.putJson('evaluation', table),
    suites: scores.suites.map(({ name, metric, headline, scores: perRepeat, mean, standardError }) => ({
      name,
      metric,
      headline,
      scores: perRepeat,
      mean,
      standardError,
    })),
    fourSuiteMean: scores.fourSuiteMean,
    fourSuiteStandardError: scores.fourSuiteStandardError,
    tiers: tierMeans(episodes.filter((episode) => judged.has(episode.suite))),
    episodes: episodes.length,
    tokens,
    noVerdict: scores.noVerdict,
    chunks: input.repeats.flat(),
  };
  return { table, result };
}

function suiteTable(suite: SuiteListing, episodes: readonly EvaluatedEpisode[], repeats: number): SuiteTable {
  const byTask = new Map<string, EvaluatedEpisode[]>();
  const key = (repeat: number, taskId: string): string => `${repeat}/${taskId}`;
  for (const episode of episodes) {
    if (episode.suite !== suite.name) continue;
    const place = key(episode.repeat, episode.taskId);
    byTask.set(place, [...(byTask.get(place) ?? []), episode]);
  }
  return {
    name: suite.name,
    metric: suite.metric,
    headline: suite.headline,
    repeats: Array.from({ length: repeats }, (_, repeat) =>
      suite.tasks.map(({ id, family, tier }) => ({ taskId: id, family, tier, ...counts(byTask.get(key(repeat, id)) ?? []) })),
    ),
  };
}

function counts(episodes: readonly EvaluatedEpisode[]): Omit<TaskScore, 'taskId' | 'family' | 'tier'> {
  const judged = episodes.filter((episode) => episode.outcome !== 'no-verdict');
  const progress = judged.map((episode) => episode.progress ?? 0);
  return {
    passes: judged.filter((episode) => episode.outcome === 'passed').length,
    n: judged.length,
    noVerdict: episodes.length - judged.length,
    ...(judged.length === 0 ? {} : { meanProgress: progress.reduce((sum, p) => sum + p, 0) / judged.length }),
  };
}
