/**
 * What makes two stages equal: their inputs, the settings that they use, and the code. A finished stage with the same key is reused
 * instead of run again.
 */
import type { RunConfig } from '../workflows/config.ts';
import type { StageInputs, StageKind } from '../workflows/contract.ts';
import { inRound } from '../workflows/profiles.ts';
import { canonicalHash } from './canonical-json.ts';

/** The settings that decide a stage's outcome; lists per round are resolved, so that another round's value changes nothing here. */
export function stageSettings(config: RunConfig, kind: StageKind, round: number): unknown {
  const { seed, sandbox, rollout, evaluation, adoption, rsr, rpr, reward } = config;
  const common = { seed, sandbox, rollout, evaluation };
  if (kind === 'base') return common;
  if (kind === 'rsr') return { ...common, adoption, rsr: { ...rsr, learningRate: inRound(rsr.learningRate, round) } };
  const resolved = {
    reward: inRound(rpr.reward, round),
    iterations: inRound(rpr.iterations, round),
    actorLearningRate: inRound(rpr.actorLearningRate, round),
    criticLearningRate: inRound(rpr.criticLearningRate, round),
  };
  // Where the stage's window of training tasks begins depends on the iterations of the round alone (workflows/rpr-stage.ts).
  return { ...common, adoption, reward, rpr: { ...rpr, ...resolved } };
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
