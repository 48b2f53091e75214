/**
 * A run's configuration: one JSON object whose every field has a default, so that `{}` in the Temporal UI's form is a
 * complete input. Sandbox-safe (no I/O): the workflow itself validates, and a wrong field fails the run with a message
 * that names the field, the value and what was expected.
 */
import { z } from 'zod';

const unit = z.number().min(0).max(1);
const positive = z.number().positive();
const count = z.number().int().min(1);

/** A number per round (round 1 first); a shorter list repeats its last entry. */
const perRound = <T extends z.ZodType>(item: T) => z.array(item).min(1);

export const runConfigSchema = z.strictObject({
  profile: z.enum(['smoke', 'quick', 'full']),
  /** Every random choice of the run derives from it. */
  seed: z.number().int().min(0).max(4294967295),
  sandbox: z.enum(['embedded', 'docker']),
  /** Directory in Hugging Face layout, relative to the repository or absolute. */
  basePolicy: z.string().min(1),
  /** Rounds of RSR and RPR; the paper has 2. */
  rounds: count.max(8),
  /** Wait for the `approveStage` update before each stage. */
  requireApproval: z.boolean(),
  /** At most this many training tasks; 0 = all. */
  trainingTasks: z.number().int().min(0),
  rollout: z.strictObject({
    /** Episodes in one rollout activity, run at the same time. */
    chunkSize: count,
    /** Rollout activities of one batch that may be open at once. */
    chunksInFlight: count,
    maxTurns: count,
    maxTokensPerTurn: count,
    /** Observations are cut to this many tokens. */
    observationTokens: count,
    /** Of RSR's rollouts. RPR always samples at 1, because PPO's ratio is against the policy itself. */
    temperature: positive,
    commandTimeoutSec: positive,
  }),
  evaluation: z.strictObject({
    /** Independent evaluations of each stage; the paper has 3. */
    repeats: count,
    temperature: positive,
    /** At most this many tasks of each suite; 0 = all. */
    tasksPerSuite: z.number().int().min(0),
  }),
  rsr: z.strictObject({
    /** Episodes per task in the target harness. */
    samplesPerTask: count,
    /** Episodes per task in each complementary harness. */
    complementarySamplesPerTask: z.number().int().min(0),
    complementaryHarnesses: z.array(z.enum(['script'])),
    /** At most this many distinct runbooks kept per task. */
    keptPerTask: count,
    epochs: count,
    sequencesPerStep: count,
    learningRate: perRound(positive),
  }),
  rpr: z.strictObject({
    /** Reward function per round: FDR, then SPR, as published. */
    reward: perRound(z.enum(['fdr', 'spr'])),
    iterations: perRound(count),
    /** Training tasks per iteration; 0 = all. */
    tasksPerIteration: z.number().int().min(0),
    samplesPerTask: count,
    gamma: unit,
    lambda: unit,
    epochs: count,
    sequencesPerStep: count,
    actorLearningRate: perRound(positive),
    criticLearningRate: perRound(positive),
    clipLow: positive,
    clipHigh: positive,
    /** Dual clip c > 1 for negative advantages; 0 = off. */
    dualClip: z.number().min(0),
    valueClip: z.number().min(0),
    klCoefficient: z.number().min(0),
    entropyCoefficient: z.number().min(0),
    stopRules: z.strictObject({
      maxKl: positive,
      maxKlToStart: positive,
      minEntropy: z.number().min(0),
      maxTurnLengthRatio: positive,
      maxClipFraction: unit,
      maxGradientNorm: positive,
    }),
  }),
  reward: z.strictObject({
    /** FDR: lower bound of a family's calibrated mean progress; above 0, because the reward divides by it. */
    fdrFloor: positive.max(1),
    /** SPR: what strict success earns beyond 1. */
    sprBonus: z.number().min(0),
    /** SPR: cap on partial credit, below 1. */
    sprCap: unit.refine((cap) => cap < 1, 'expected a number below 1'),
  }),
  adoption: z.strictObject({
    /** A stage is adopted unless its `dev` success falls more than this many standard errors below the stage before. */
    maxDropStandardErrors: z.number().min(0),
  }),
});
export type RunConfig = z.infer<typeof runConfigSchema>;
