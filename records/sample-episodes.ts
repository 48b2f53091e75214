/** A few whole episodes for the report: what the agent typed and saw, one success and one failure of each stage's rollouts. */
import type { EpisodeRecord, EpisodeVerdict } from '../environment/types.ts';
import type { StageResult } from '../workflows/contract.ts';
import type { ArtifactStore } from './artifacts.ts';
import { readChunks } from './chunks.ts';

export interface SampleEpisode {
  readonly stage: string;
  readonly outcome: 'passed' | 'failed';
  readonly episode: EpisodeRecord;
  readonly verdict: EpisodeVerdict;
}

/** The first success and the first failure of each stage, from its last chunk backwards: late episodes show where the stage got to. */
export async function sampleEpisodes(
  store: ArtifactStore,
  stages: readonly Pick<StageResult, 'name' | 'batches'>[],
): Promise<SampleEpisode[]> {
  const samples: SampleEpisode[] = [];
  for (const stage of stages) {
    const wanted = new Set<'passed' | 'failed'>(['passed', 'failed']);
    const parts = stage.batches.flatMap((batch) => batch.chunks);
    for (const chunk of (await readChunks(store, parts)).toReversed()) {
      if (wanted.size === 0) break;
      const verdicts = await store.readJsonLines<EpisodeVerdict>(chunk.verify.verdicts);
      const chosen = [...wanted].flatMap((outcome) => verdicts.find((verdict) => verdict.outcome === outcome) ?? []);
      if (chosen.length === 0) continue;
      const episodes = new Map(
        (await store.readJsonLines<EpisodeRecord>(chunk.rollout.episodes)).map((episode) => [episode.episodeId, episode]),
      );
      for (const verdict of chosen) {
        const episode = episodes.get(verdict.episodeId);
        const { outcome } = verdict;
        if (!episode || outcome === 'no-verdict') continue;
        samples.push({ stage: stage.name, outcome, episode, verdict });
        wanted.delete(outcome);
      }
    }
  }
  return samples;
}
