/**
 * The reward audit of a run (docs/method.md, Rewards), offline: the run's own training episodes, re-scored from their stored
 * verdicts under FDR and under SPR with the outcomes unchanged.
 *
 * FDR needs a scale, each family's mean progress over some batch, and which one depends on the question:
 *  - A stage is scored with the scale that its own training used, that of its warm-up batch, so that the figures are of the
 *    rewards that PPO saw. An RSR stage has no scale of its own and takes the run's.
 *  - The run as a whole, where two rewards are compared over all stages, has one scale: that of the run's first training batch,
 *    the first episodes of the base policy. A mean over the audited episodes themselves would make all families' means 1.
 * A family without episodes in the scaling batch is unscaled, as in training (activities/reward.ts).
 */
import type { EpisodeVerdict } from '../environment/types.ts';
import { calibrateFamilies, familyDenseReward, rewardAudit, successPrioritizedReward } from '../method/rewards.ts';
import type { FamilyCalibration, RewardAudit } from '../method/rewards.ts';
import type { RunConfig } from '../workflows/config.ts';
import type { StageBatch, StageResult } from '../workflows/contract.ts';
import type { ArtifactStore } from './artifacts.ts';
import { verdictProgress, type Calibration } from './calibration.ts';
import { readChunks } from './chunks.ts';

export interface ScaledAudit {
  /** Batch whose family means FDR divides by, e.g. `RPR-1 warm-up`. */
  readonly scale: string;
  readonly fdr: RewardAudit;
  readonly spr: RewardAudit;
}
export interface StageAudit extends ScaledAudit {
  readonly stage: string;
  /** What the stage trained on; absent where it trained on no reward. */
  readonly trained?: 'fdr' | 'spr';
}
export interface RunAudit extends ScaledAudit {
  /** Stages with training episodes, in order. */
  readonly stages: readonly StageAudit[];
}

interface Scored {
  readonly family: string;
  readonly passed: boolean;
  readonly progress: number;
}
type Families = Readonly<Record<string, FamilyCalibration>>;
type AuditedStage = Pick<StageResult, 'name' | 'batches'> & { readonly reward?: 'fdr' | 'spr' };

/** Undefined when the run has no training episode with a verdict. Throws ArtifactError for missing or changed artifacts. */
export async function auditRun(
  store: Pick<ArtifactStore, 'readJsonLines'>,
  stages: readonly AuditedStage[],
  calibration: Calibration,
  settings: RunConfig['reward'],
): Promise<RunAudit | undefined> {
  const all: Scored[] = [];
  const audits: StageAudit[] = [];
  let first: { readonly scale: string; readonly families: Families } | undefined;
  for (const stage of stages) {
    const batches: { readonly batch: StageBatch; readonly scored: Scored[] }[] = [];
    for (const batch of stage.batches) batches.push({ batch, scored: await scoredEpisodes(store, batch, calibration) });
    const scored = batches.flatMap((one) => one.scored);
    const [opening] = batches;
    if (!opening || scored.length === 0) continue;
    const scale = `${stage.name} ${opening.batch.purpose}`;
    const families = calibrateFamilies(opening.scored, settings.fdrFloor);
    first ??= { scale, families };
    const used = stage.reward === undefined ? first : { scale, families };
    audits.push({
      stage: stage.name,
      scale: used.scale,
      ...(stage.reward === undefined ? {} : { trained: stage.reward }),
      ...audited(scored, used.families, settings),
    });
    all.push(...scored);
  }
  return first && { scale: first.scale, ...audited(all, first.families, settings), stages: audits };
}

async function scoredEpisodes(store: Pick<ArtifactStore, 'readJsonLines'>, batch: StageBatch, calibration: Calibration): Promise<Scored[]> {
  const scored: Scored[] = [];
  for (const chunk of await readChunks(store, batch.chunks)) {
    for (const verdict of await store.readJsonLines<EpisodeVerdict>(chunk.verify.verdicts)) {
      const progress = verdictProgress(calibration, verdict);
      if (progress !== undefined) scored.push({ family: verdict.family, passed: verdict.outcome === 'passed', progress });
    }
  }
  return scored;
}

function audited(episodes: readonly Scored[], families: Families, settings: RunConfig['reward']): Pick<ScaledAudit, 'fdr' | 'spr'> {
  const score = (of: (episode: Scored) => number): RewardAudit =>
    rewardAudit(episodes.map((episode) => ({ family: episode.family, passed: episode.passed, reward: of(episode) })));
  return {
    fdr: score(({ family, progress }) => familyDenseReward(progress, families[family]?.mean ?? 1, settings.fdrFloor)),
    spr: score(({ progress, passed }) => successPrioritizedReward(progress, passed, settings.sprBonus, settings.sprCap)),
  };
}
