/** Which episodes a stage did not train on, by which rule; and any episode whole. */
import type { DecidedRunbook } from '../../environment/rewriter.ts';
import type { EpisodeRecord, EpisodeVerdict } from '../../environment/types.ts';
import type { ChunkResult } from '../../workflows/contract.ts';
import type { Runbook } from '../../method/runbook.ts';
import { readChunks } from '../chunks.ts';
import type { StageRecord } from '../lineage.ts';
import type { ArtifactRef } from '../types.ts';
import type { AuditContext } from './context.ts';

export interface DroppedEpisode {
  readonly stage: string;
  /** A screen, another rule of the rewriter (environment/rewriter.ts), `no-verdict`, or `no-verdict in evaluation`. */
  readonly rule: string;
  readonly reason: string;
  readonly episodeId: string;
  /** Hash of the `episodes` artifact that holds it; undefined where that is not here. */
  readonly artifact: string | undefined;
  /** The procedure that was dropped, where the episode had become one. */
  readonly runbook?: Runbook;
}
export interface WholeEpisode {
  readonly episode: EpisodeRecord;
  readonly verdict: EpisodeVerdict | undefined;
  readonly artifact: string;
}

export async function droppedEpisodes(context: AuditContext, record: StageRecord): Promise<DroppedEpisode[]> {
  const { stage, outputs } = record.content;
  const result = await context.result(record);
  const dropped: DroppedEpisode[] = [];
  const artifacts = new Map<string, string>();
  const trained = result?.batches.flatMap(({ chunks }) => chunks) ?? [];
  for (const [parts, rule] of [
    [trained, 'no-verdict'],
    [outputs.evaluationChunks as readonly ArtifactRef[], 'no-verdict in evaluation'],
  ] as const) {
    for (const chunk of (await context.attempt('counts', `chunks of ${stage}`, () => readChunks(context.reader, parts))) ?? []) {
      const artifact = chunk.rollout.episodes.sha256;
      const verdicts = await context.attempt('counts', `verdicts of ${stage}`, () =>
        context.reader.readJsonLines<EpisodeVerdict>(chunk.verify.verdicts),
      );
      for (const { episodeId, outcome, error } of verdicts ?? []) {
        artifacts.set(episodeId, artifact);
        if (outcome === 'no-verdict')
          dropped.push({ stage, rule, reason: error ? `${error.type}: ${error.message}` : 'the verifier gave none', episodeId, artifact });
      }
    }
  }
  for (const ref of outputs.runbooks) {
    const decided = await context.attempt('counts', `runbooks of ${stage}`, () => context.reader.readJsonLines<DecidedRunbook>(ref));
    for (const { decision, sourceEpisode: episodeId, runbook } of decided ?? [])
      if (!decision.kept)
        dropped.push({ stage, rule: decision.rule, reason: decision.reason, episodeId, artifact: artifacts.get(episodeId), runbook });
  }
  return dropped;
}

/** The episodes of these names, with their verdicts. */
export async function findEpisodes(context: AuditContext, ids: ReadonlySet<string>): Promise<Map<string, WholeEpisode>> {
  const found = new Map<string, WholeEpisode>();
  for (const record of context.stages) {
    const { stage, outputs } = record.content;
    if (![...ids].some((id) => id.startsWith(`${stage}/`))) continue;
    const parts = [...outputs.chunks, ...outputs.evaluationChunks] as readonly ArtifactRef[];
    for (const chunk of (await context.attempt('counts', `chunks of ${stage}`, () => readChunks(context.reader, parts))) ?? [])
      await context.attempt('counts', `episodes of ${stage}`, () => take(context, chunk, ids, found));
  }
  return found;
}

async function take(
  context: AuditContext,
  { rollout, verify }: ChunkResult,
  ids: ReadonlySet<string>,
  found: Map<string, WholeEpisode>,
): Promise<void> {
  const episodes = (await context.reader.readJsonLines<EpisodeRecord>(rollout.episodes)).filter(({ episodeId }) => ids.has(episodeId));
  if (episodes.length === 0) return;
  const verdicts = await context.reader.readJsonLines<EpisodeVerdict>(verify.verdicts);
  for (const episode of episodes) {
    const verdict = verdicts.find(({ episodeId }) => episodeId === episode.episodeId);
    found.set(episode.episodeId, { episode, verdict, artifact: rollout.episodes.sha256 });
  }
}
