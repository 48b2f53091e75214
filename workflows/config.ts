/**
 * A run's configuration: one JSON object whose every field has a default, so that `{}` in the Temporal UI's form is a
 * complete input. Sandbox-safe (no I/O): the workflow itself validates, and a wrong field fails the run with a message
 * that names the field, the value and what was expected.
 *
 * Each field carries its documentation: `description`, `unit`, and `published` with what the paper says of it (without
 * that the field is ours). docs/configuration.md is printed from it: `npm run config-docs`.
 */
import { z } from 'zod';

const unit = z.number().min(0).max(1);
const positive = z.number().positive();
const notNegative = z.number().min(0);
const count = z.number().int().min(1);
const countOrZero = z.number().int().min(0);

/** A value per round (round 1 first); a shorter list repeats its last entry. */
const perRound = <T extends z.ZodType>(item: T) => z.array(item).min(1);

const rollout = z.strictObject({
  chunkSize: count.meta({ description: 'Episodes of one rollout activity, run at the same time and verified together.', unit: 'episodes' }),
  chunksInFlight: count.meta({ description: 'Chunks of one batch that may be open at once.', unit: 'chunks' }),
  maxTurns: count.meta({ description: 'Turns after which an episode ends.', unit: 'turns' }),
  maxTokensPerTurn: count.meta({ description: 'A reply that has not ended by then is not executed and ends the episode.', unit: 'tokens' }),
  observationTokens: count.meta({ description: 'Observations are cut to this length before the policy sees them.', unit: 'tokens' }),
  temperature: positive.meta({
    description: 'Sampling temperature of RSR rollouts. RPR always samples at 1, because the ratio of PPO is against the policy itself.',
  }),
  commandTimeoutSec: positive.meta({ description: 'Limit on one command of the agent.', unit: 's' }),
});

const evaluation = z.strictObject({
  repeats: count.meta({ description: 'Independent evaluations of each stage.', published: 'three evaluations' }),
  temperature: positive.meta({ description: 'Sampling temperature of the evaluation episodes.' }),
  tasksPerSuite: countOrZero.meta({ description: 'At most this many tasks of each suite, `dev` included; 0 = all.', unit: 'tasks' }),
});

const rsr = z.strictObject({
  samplesPerTask: count.meta({ description: 'Episodes of each training task in the target harness, `shell`.', unit: 'episodes' }),
  complementarySamplesPerTask: countOrZero.meta({
    description: 'Episodes of each training task in each complementary harness.',
    unit: 'episodes',
  }),
  complementaryHarnesses: z.array(z.enum(['script'])).meta({
    description: 'Harnesses that supply successes which the target harness misses.',
    published: 'that there are such harnesses',
  }),
  keptPerTask: count.meta({
    description: 'At most this many distinct runbooks are kept for a task, the shortest first.',
    unit: 'runbooks',
  }),
  epochs: count.meta({ description: 'Passes of fine-tuning over the kept examples.', unit: 'passes' }),
  sequencesPerStep: count.meta({ description: 'Examples in one optimizer step of fine-tuning.', unit: 'examples' }),
  learningRate: perRound(positive).meta({
    description: "Adam's learning rate of fine-tuning, per round.",
    published: 'that rates are set per stage',
  }),
});

const stopRules = z.strictObject({
  maxKl: positive.meta({
    description: 'Approximate KL to the policy that sampled the batch: mean old − new log-probability over an epoch.',
    unit: 'nats/token',
  }),
  maxKlToStart: positive.meta({ description: "KL to the stage's starting policy (k3 estimate), mean over an epoch.", unit: 'nats/token' }),
  minEntropy: notNegative.meta({ description: 'Mean entropy of the policy over an epoch. Fires below the limit.', unit: 'nats/token' }),
  maxTurnLengthRatio: positive.meta({
    description:
      "Agent tokens per turn, as a multiple of those in the stage's first PPO batch; checked before the first step of an iteration.",
  }),
  maxClipFraction: unit.meta({ description: 'Share of agent tokens whose ratio was clipped, over an epoch.' }),
  maxGradientNorm: positive.meta({ description: "Largest norm of the actor's gradient in the iteration, before clipping." }),
});

const rpr = z.strictObject({
  reward: perRound(z.enum(['fdr', 'spr'])).meta({
    description: 'Reward function, per round: Family Dense Reward or Success-Prioritized Reward.',
    published: 'both functions, and that rewards evolve',
  }),
  iterations: perRound(count).meta({ description: 'PPO iterations, per round. Each rolls out its own batch.', unit: 'iterations' }),
  tasksPerIteration: countOrZero.meta({
    description: 'Training tasks of the warm-up batch and of each iteration; 0 = all.',
    unit: 'tasks',
  }),
  samplesPerTask: count.meta({ description: 'Episodes of each of these tasks.', unit: 'episodes' }),
  gamma: unit.meta({
    description: 'Discount γ, applied at turn boundaries only.',
    published: 'that it applies at turn boundaries',
  }),
  lambda: unit.meta({
    description: 'Trace decay λ of TB-GAE, applied at turn boundaries only.',
    published: 'that it applies at turn boundaries',
  }),
  epochs: count.meta({
    description: 'Passes over the batch of a PPO iteration. (The critic warm-up has four; that is no setting.)',
    unit: 'passes',
  }),
  sequencesPerStep: count.meta({ description: 'Episodes in one optimizer step of PPO and of the critic warm-up.', unit: 'episodes' }),
  actorLearningRate: perRound(positive).meta({
    description: "Adam's learning rate of the actor in PPO, per round.",
    published: 'that rates are set per stage',
  }),
  criticLearningRate: perRound(positive).meta({
    description: "Adam's learning rate of the critic in warm-up and PPO, per round.",
    published: 'that rates are set per stage',
  }),
  clipLow: positive.meta({ description: 'The ratio is clipped at 1 − clipLow.' }),
  clipHigh: positive.meta({ description: 'The ratio is clipped at 1 + clipHigh.' }),
  dualClip: notNegative.meta({ description: 'Dual clip: for negative advantages the loss is at most c × |A|, with c > 1; 0 = off.' }),
  valueClip: notNegative.meta({
    description: 'Values may move this far from those before the iteration; 0 = no clip. Not used in warm-up.',
  }),
  klCoefficient: notNegative.meta({ description: "Weight of the KL to the stage's starting policy (k3 estimate) in the loss; 0 = off." }),
  entropyCoefficient: notNegative.meta({ description: 'Weight of the entropy bonus in the loss; 0 = off.' }),
  stopRules: stopRules.meta({ description: "Limits that end a stage's PPO. What was trained up to there is kept and evaluated." }),
});

const reward = z.strictObject({
  fdrFloor: positive.max(1).meta({
    description: "FDR: lower bound of a family's mean progress; above 0, because the reward divides by it.",
  }),
  sprBonus: notNegative.meta({ description: 'SPR: strict success earns 1 plus this.' }),
  sprCap: unit
    .refine((cap) => cap < 1, 'expected a number below 1')
    .meta({
      description: 'SPR: without strict success an episode earns this share of its progress; below 1.',
      published: 'that partial credit is bounded',
    }),
});

const adoption = z.strictObject({
  maxDropStandardErrors: notNegative.meta({
    description:
      'A stage is adopted unless its `dev` success falls more than this many pooled standard errors below that of the last adopted stage.',
    unit: 'standard errors',
  }),
});

export const runConfigSchema = z.strictObject({
  profile: z.enum(['smoke', 'quick', 'full']).meta({ description: 'Which defaults the other fields take.' }),
  seed: z.number().int().min(0).max(4294967295).meta({ description: 'Every random choice of the run derives from it.' }),
  sandbox: z.enum(['embedded', 'docker']).meta({ description: 'Where the commands of all episodes and verifiers run.' }),
  basePolicy: z.string().min(1).meta({
    description: 'Directory of the policy to start from, in Hugging Face layout; absolute, or relative to the repository.',
  }),
  rounds: count.max(8).meta({ description: 'Rounds, each of one RSR and one RPR stage.', unit: 'rounds', published: '2' }),
  requireApproval: z.boolean().meta({ description: 'Wait for the update `approveStage` before each stage but Base.' }),
  dataset: z.string().min(1).nullable().default(null).meta({
    description:
      'Tasks to train on in place of the built-in ones: a folder of tasks in the format of Harbor, a registry.json or a dataset.toml; absolute, or relative to the repository. Only tasks that its gate file accepts are used (`npm run tasks -- check`). Evaluation stays on the built-in suites.',
  }),
  gateFile: z.string().min(1).nullable().default(null).meta({ description: "The dataset's gate file; null = `gate.json` in its folder." }),
  trainingTasks: countOrZero.meta({ description: 'At most this many training tasks, families taking turns; 0 = all.', unit: 'tasks' }),
  rollout: rollout.meta({ description: 'How episodes are rolled out, in training and in evaluation.' }),
  evaluation: evaluation.meta({ description: 'How each stage is measured.' }),
  rsr: rsr.meta({ description: 'Recursive Self-Rewrite: rollout, rewriting, fine-tuning.' }),
  rpr: rpr.meta({ description: 'Recursive Policy-Refine: critic warm-up and joint PPO.' }),
  reward: reward.meta({ description: 'Constants of the two reward functions.' }),
  adoption: adoption.meta({ description: 'Whether a run goes on with what a stage trained.' }),
  reuse: z.enum(['lineage', 'any', 'never']).default('lineage').meta({
    description:
      'Whose finished stages are reused where inputs, code and configuration are equal: those of this run (after a reset) and of the run it was forked from, of any run in the data folder, or none.',
  }),
  fork: z
    .strictObject({
      run: z.string().min(1).meta({ description: 'Workflow id or run key of a run in this data folder.' }),
      from: z
        .string()
        .regex(/^(RSR|RPR)-[1-8]$/, 'expected a stage such as RPR-1')
        .meta({ description: 'First stage of its own; those before it are taken over from `run` as they are.' }),
    })
    .nullable()
    .default(null)
    .meta({ description: 'Go on from the stages of another run (`npm run resume -- RUN --from STAGE --fork`).' }),
});
export type RunConfig = z.infer<typeof runConfigSchema>;
