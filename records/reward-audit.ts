/**
 * The reward audit of a run (docs/method.md, Rewards), offline: the run's own training episodes, re-scored from their stored
 * verdicts under FDR and under SPR with the outcomes unchanged.
 */
import type { EpisodeVerdict } from '../environment/types.ts';
import { calibrateFamilies, familyDenseReward, rewardAudit, successPrioritizedReward, type RewardAudit } from '../method/rewards.ts';
import type { RunConfig } from '../workflows/config.ts';
import type { StageResult } from '../workflows/contract.ts';
import type { ArtifactStore } from './artifacts.ts';
import { verdictProgress, type Calibration } from './calibration.ts';
import { readChunks } from './chunks.ts';

/**
 * FDR divides by each family's mean progress over the run's first training episodes (those of the base policy): a mean over the
 * audited episodes themselves would make all families' means 1 by construction. A family without such episodes is unscaled.
 * Undefined when the run has no training episode with a verdict.
 */
export async function auditRun(
  store: ArtifactStore,
  stages: readonly Pick<StageResult, 'batches'>[],
  calibration: Calibration,
  settings: RunConfig['reward'],
): Promise<{ fdr: RewardAudit; spr: RewardAudit } | undefined> {
  const first = stages.find((stage) => stage.batches.length > 0);
  const episodes: { family: string; passed: boolean; progress: number; first: boolean }[] = [];
  for (const stage of stages) {
    const parts = stage.batches.flatMap((batch) => batch.chunks);
    for (const chunk of await readChunks(store, parts)) {
      for (const verdict of await store.readJsonLines<EpisodeVerdict>(chunk.verify.verdicts)) {
        const progress = verdictProgress(calibration, verdict);
        if (progress !== undefined)
          episodes.push({ family: verdict.family, passed: verdict.outcome === 'passed', progress, first: stage === first });
      }
    }
  }
  if (episodes.length === 0) return undefined;
  const families = calibrateFamilies(
    episodes.filter((episode) => episode.first),
    settings.fdrFloor,
  );
  const scored = (score: (episode: (typeof episodes)[number]) => number): RewardAudit =>
    rewardAudit(episodes.map((episode) => ({ family: episode.family, passed: episode.passed, reward: score(episode) })));
  return {
    fdr: scored(({ family, progress }) => familyDenseReward(progress, families[family]?.mean ?? 1, settings.fdrFloor)),
    spr: scored(({ progress, passed }) => successPrioritizedReward(progress, passed, settings.sprBonus, settings.sprCap)),
  };
}
