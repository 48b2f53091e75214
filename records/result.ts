/**
 * The machine-readable result of a run (`result.json`, `--result-file`): its schema, and how it is made from the workflow's
 * stages. docs/results.md describes every field; a change that breaks readers gets a new schema number.
 */
import { z } from 'zod';
import { runConfigSchema } from '../workflows/config.ts';
import type { ReportInput, StageResult } from '../workflows/contract.ts';
import type { RunAudit } from './reward-audit.ts';

export const RUN_RESULT_SCHEMA = 'terminal-rsi/run-result@1';

const share = z.number().min(0).max(1);
const whole = z.number().int().min(0);

const suiteSchema = z.object({
  name: z.string(),
  metric: z.enum(['strict', 'process']),
  headline: z.boolean(),
  mean: share,
  standardError: z.number().min(0),
  /** One score per independent evaluation. */
  repeats: z.array(share).min(1),
});
/** The figures of the reward audit (docs/method.md, Rewards), and how many trajectories they are of. */
const auditSchema = z.object({
  trajectories: whole,
  families: whole,
  passed: whole,
  failedRewardShare: share.optional(),
  failedAtLeastOne: whole,
  familyMeanDeviation: z.number().min(0),
  trajectoryDeviation: z.number().min(0),
});
const ppoSchema = z.object({
  ...{
    steps: whole,
    policyLoss: z.number(),
    valueLoss: z.number(),
    meanReward: z.number(),
    successRate: share,
    kl: z.number(),
    klToStart: z.number(),
  },
  ...{
    entropy: z.number(),
    clipFraction: share,
    gradientNorm: z.number(),
    criticGradientNorm: z.number(),
    explainedVariance: z.number().optional(),
  },
  tokensPerTurn: z.number(),
  stop: z.object({ rule: z.string(), value: z.number(), limit: z.number() }).optional(),
});
const recordSchema = z.object({ index: whole, hash: z.string() });
const stageSchema = z.object({
  name: z.string(),
  kind: z.enum(['base', 'rsr', 'rpr']),
  adopted: z.boolean(),
  decision: z.string(),
  policySha256: z.string().regex(/^[0-9a-f]{64}$/),
  suites: z.array(suiteSchema).min(1),
  fourSuiteMean: share,
  fourSuiteStandardError: z.number().min(0),
  tiers: z.record(z.string(), share),
  /** Training episodes and agent tokens of the stage. */
  episodes: whole,
  tokens: whole,
  evaluation: z.object({ episodes: whole, tokens: whole, noVerdict: whole }),
  seconds: z.number().min(0),
  rewrite: z.object({ successes: whole, kept: whole, executions: whole, dropped: z.record(z.string(), whole) }).optional(),
  fineTune: z.object({ steps: whole, tokens: whole, epochLosses: z.array(z.number()) }).optional(),
  warmUp: z
    .object({ steps: whole, epochs: z.array(z.object({ valueLoss: z.number(), explainedVariance: z.number().optional() })) })
    .optional(),
  ppo: z.array(ppoSchema).optional(),
  reward: z.enum(['fdr', 'spr']).optional(),
  stopped: z.string().optional(),
  /** Commands and episodes of training that ran into a time limit. */
  timeouts: whole.optional(),
  decidedBy: z.object({ start: z.string(), adoption: z.string() }).optional(),
  /** The stage's record in the run's ledger, and in that of the run whose finished stage it is. */
  record: recordSchema.extend({ reusedFrom: recordSchema.extend({ runKey: z.string() }).optional() }).optional(),
});
export const runResultSchema = z.object({
  schema: z.literal(RUN_RESULT_SCHEMA),
  /** `originalExecutionRunId` of the workflow; also the key of the run's folder. */
  runId: z.string().min(1),
  workflowId: z.string().min(1),
  profile: z.string(),
  seed: whole,
  sandbox: z.enum(['embedded', 'docker']),
  wallSeconds: z.number().min(0),
  config: runConfigSchema,
  versions: z.record(z.string(), z.string()),
  stages: z.array(stageSchema).min(1),
  /** The run's training episodes, re-scored under both rewards; null when the run has none. */
  rewardAudit: z
    .object({
      fdr: auditSchema,
      spr: auditSchema,
      /** Batch whose family means FDR divides by; absent in results of version 0.1. */
      scale: z.string().optional(),
      /** Each stage with the scale of its own training. */
      stages: z
        .array(
          z.object({
            stage: z.string(),
            scale: z.string(),
            trained: z.enum(['fdr', 'spr']).optional(),
            fdr: auditSchema,
            spr: auditSchema,
          }),
        )
        .optional(),
    })
    .nullable(),
});
export type RunResult = z.infer<typeof runResultSchema>;

/** Builds and validates the result. Throws ZodError naming every wrong field. */
export function buildResult(input: ReportInput, audit: RunAudit | undefined, versions: Readonly<Record<string, string>>): RunResult {
  const { config } = input;
  return runResultSchema.parse({
    schema: RUN_RESULT_SCHEMA,
    runId: input.runKey,
    workflowId: input.workflowId,
    profile: config.profile,
    seed: config.seed,
    sandbox: config.sandbox,
    wallSeconds: input.wallSeconds,
    config,
    versions,
    stages: input.stages.map(stageOf),
    rewardAudit: audit ?? null,
  });
}

function stageOf(stage: StageResult): unknown {
  const { evaluation } = stage;
  return {
    ...stage,
    policySha256: stage.policy.sha256,
    episodes: stage.counts.episodes,
    tokens: stage.counts.agentTokens,
    timeouts: stage.counts.timeouts,
    suites: evaluation.suites.map(({ scores, ...suite }) => ({ ...suite, repeats: scores })),
    fourSuiteMean: evaluation.fourSuiteMean,
    fourSuiteStandardError: evaluation.fourSuiteStandardError,
    tiers: evaluation.tiers,
    evaluation: { episodes: evaluation.episodes, tokens: evaluation.tokens, noVerdict: evaluation.noVerdict },
  };
}
