/** The result of a job of episodes (`npm run episodes -- --result-file`): counts, means and every trial's outcome. */
import { z } from 'zod';
import type { EpisodesJob, OpenJobResult, TrialSummary } from '../workflows/job-contract.ts';

const trialSchema = z.object({
  name: z.string(),
  task: z.string(),
  sample: z.number().int(),
  outcome: z.enum(['passed', 'failed', 'no-verdict']),
  reward: z.number().optional(),
  rewardValid: z.boolean(),
  error: z.string().optional(),
  infraFailed: z.boolean(),
  attempts: z.number().int(),
  seconds: z.number(),
});
export const jobResultSchema = z.object({
  schema: z.literal('terminal-rsi/job@1'),
  job: z.object({ workflowId: z.string(), runKey: z.string(), directory: z.string(), dataset: z.string(), source: z.string() }),
  agent: z.string(),
  harness: z.string(),
  sandbox: z.string(),
  verifier: z.string(),
  trials: z.array(trialSchema),
  counts: z.object({ trials: z.number(), passed: z.number(), failed: z.number(), noVerdict: z.number(), infraFailed: z.number() }),
  /** Over the trials with a valid reward; absent where there is none. */
  meanReward: z.number().optional(),
  /** Share of the trials that their environment failed. */
  infra_failed_rate: z.number(),
  /** Trials by error type. */
  errors: z.record(z.string(), z.number()),
  refused: z.array(z.object({ task: z.string(), reason: z.string() })),
});
export type JobResult = z.infer<typeof jobResultSchema>;

export function jobResult(
  { workflowId, runKey, config }: EpisodesJob,
  { directory, source, refused }: OpenJobResult,
  trials: readonly TrialSummary[],
): JobResult {
  const count = (which: (trial: TrialSummary) => boolean): number => trials.filter(which).length;
  const rewards = trials.flatMap(({ reward, rewardValid }) => (rewardValid && reward !== undefined ? [reward] : []));
  const errors: Record<string, number> = {};
  for (const { error } of trials) if (error !== undefined) errors[error] = (errors[error] ?? 0) + 1;
  const infraFailed = count((trial) => trial.infraFailed);
  const { agent, harness, sandbox, verifier, dataset } = config;
  return {
    schema: 'terminal-rsi/job@1',
    job: { workflowId, runKey, directory, dataset, source },
    ...{ agent, harness, sandbox, verifier },
    trials: trials.map((trial) => trialSchema.parse(trial)),
    counts: {
      trials: trials.length,
      passed: count(({ outcome }) => outcome === 'passed'),
      failed: count(({ outcome }) => outcome === 'failed'),
      noVerdict: count(({ outcome }) => outcome === 'no-verdict'),
      infraFailed,
    },
    ...(rewards.length === 0 ? {} : { meanReward: rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length }),
    infra_failed_rate: trials.length === 0 ? 0 : infraFailed / trials.length,
    errors,
    refused: [...refused],
  };
}
