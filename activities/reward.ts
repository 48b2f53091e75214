/** Rewards one batch (docs/method.md, Rewards): FDR or SPR of each episode's progress, stored with its tokens for training. */
import { TaskError } from '../environment/errors.ts';
import type { EpisodeTokens, EpisodeVerdict } from '../environment/types.ts';
import { calibrateFamilies, familyDenseReward, successPrioritizedReward } from '../method/rewards.ts';
import type { RewardedEpisode } from '../policy/types.ts';
import type { ArtifactStore } from '../records/artifacts.ts';
import { verdictProgress } from '../records/calibration.ts';
import type { Calibration } from '../records/calibration.ts';
import { readChunks } from '../records/chunks.ts';
import type { ChunkResult, RewardInput, RewardResult } from '../workflows/contract.ts';

/** What rewarding asks of an artifact store; an audit computes a batch again with one that writes nothing. */
type Store = Pick<ArtifactStore, 'readJson' | 'readJsonLines' | 'putJsonLines'>;

export async function reward({ store }: { readonly store: Store }, input: RewardInput): Promise<RewardResult> {
  const { settings } = input;
  const chunks = await readChunks(store, input.chunks);
  const familyChunks = await readChunks(store, input.familyChunks);
  const calibration = await store.readJson<Calibration>(input.calibration);
  const families = calibrateFamilies(
    (await readVerdicts(store, familyChunks)).flatMap((verdict) => {
      const progress = verdictProgress(calibration, verdict);
      return progress === undefined ? [] : [{ family: verdict.family, progress }];
    }),
    settings.fdrFloor,
  );
  const scored: RewardedEpisode[] = [];
  let droppedNoVerdict = 0;
  for (const chunk of chunks) {
    const tokens = new Map((await store.readJsonLines<EpisodeTokens>(chunk.rollout.tokens)).map((episode) => [episode.episodeId, episode]));
    for (const verdict of await readVerdicts(store, [chunk])) {
      const progress = verdictProgress(calibration, verdict);
      if (progress === undefined) {
        droppedNoVerdict++;
        continue;
      }
      const episode = tokens.get(verdict.episodeId);
      if (!episode) throw new TaskError(`episode ${verdict.episodeId} has a verdict but no tokens in ${chunk.rollout.tokens.uri}`);
      const { suite, taskId, family } = verdict;
      const passed = verdict.outcome === 'passed';
      const value =
        input.reward === 'fdr'
          ? // A family without episodes in the calibrating batch has no scale: its progress counts unscaled.
            familyDenseReward(progress, families[family]?.mean ?? 1, settings.fdrFloor)
          : successPrioritizedReward(progress, passed, settings.sprBonus, settings.sprCap);
      scored.push({ ...episode, suite, taskId, family, passed, reward: value });
    }
  }
  if (scored.length === 0)
    throw new TaskError(
      `${input.key.stage} ${input.key.purpose}: none of the ${droppedNoVerdict} episodes has a verdict; nothing to train on`,
    );
  return {
    batch: await store.putJsonLines('batch', scored),
    episodes: scored.length,
    droppedNoVerdict,
    meanReward: scored.reduce((sum, episode) => sum + episode.reward, 0) / scored.length,
  };
}

async function readVerdicts(store: Store, chunks: readonly ChunkResult[]): Promise<EpisodeVerdict[]> {
  const lists: EpisodeVerdict[][] = [];
  for (const chunk of chunks) lists.push(await store.readJsonLines<EpisodeVerdict>(chunk.verify.verdicts));
  return lists.flat();
}
