/**
 * What makes two stages equal: their inputs, the settings that they use, and the code. A finished stage with the same key is reused
 * instead of run again.
 */
import type { RunConfig } from '../workflows/config.ts';
import type { PrepareRunResult, StageInputs, StageKind } from '../workflows/contract.ts';
import { inRound } from '../workflows/profiles.ts';
import { canonicalHash } from './canonical-json.ts';

/**
 * The settings that decide a stage's outcome, and no others: lists per round are resolved, the constants of the other reward, how many
 * chunks are open at once, and what only chooses tasks (the inputs have them) are left out. docs/resume.md lists them.
 */
export function stageSettings(config: RunConfig, kind: StageKind, round: number): unknown {
  const { seed, sandbox, adoption } = config;
  const { chunksInFlight: _, temperature, ...episodes } = config.rollout;
  const { tasksPerSuite: __, ...evaluation } = config.evaluation;
  const common = { seed, sandbox, rollout: episodes, evaluation };
  if (kind === 'base') return common;
  if (kind === 'rsr') {
    const rsr = { ...config.rsr, learningRate: inRound(config.rsr.learningRate, round) };
    return { ...common, adoption, rollout: { ...episodes, temperature }, rsr };
  }
  const rpr = {
    ...config.rpr,
    reward: inRound(config.rpr.reward, round),
    iterations: inRound(config.rpr.iterations, round),
    actorLearningRate: inRound(config.rpr.actorLearningRate, round),
    criticLearningRate: inRound(config.rpr.criticLearningRate, round),
  };
  const { fdrFloor, sprBonus, sprCap } = config.reward;
  // Where the stage's window of training tasks begins depends on the iterations of the round alone (workflows/rpr-stage.ts).
  return { ...common, adoption, rpr, reward: rpr.reward === 'fdr' ? { fdrFloor } : { sprBonus, sprCap } };
}

/** Hex SHA-256. `code`: hash of the sources. Artifacts count by their hash alone. */
export function stageKey(stage: string, kind: StageKind, round: number, config: RunConfig, inputs: StageInputs, code: string): string {
  return keyOf({ stage, kind, round, config, inputs: inputHashes(inputs), code });
}

/** The same from what a ledger holds. */
export function keyOf(of: {
  readonly stage: string;
  readonly kind: StageKind;
  readonly round: number;
  readonly config: RunConfig;
  readonly inputs: InputHashes;
  readonly code: string;
}): string {
  const { stage, kind, round, config, inputs, code } = of;
  return canonicalHash({ stage, settings: stageSettings(config, kind, round), inputs, code });
}

/** `tasksHash` of PrepareRunResult. Where a task of another dataset lies does not change what it is. */
export function tasksHashOf({ suites, training }: Pick<PrepareRunResult, 'suites' | 'training'>): string {
  return canonicalHash({ suites, training: training.map(({ dir: _, ...listing }) => listing) });
}

export interface InputHashes {
  readonly policy: string;
  readonly critic?: string | undefined;
  readonly calibration: string;
  readonly tasksHash: string;
  readonly reference?: string | undefined;
}
export function inputHashes({ policy, critic, calibration, tasksHash, reference }: StageInputs): InputHashes {
  return {
    ...{ policy: policy.sha256, calibration: calibration.sha256, tasksHash },
    ...(critic ? { critic: critic.sha256 } : {}),
    ...(reference ? { reference: reference.sha256 } : {}),
  };
}
