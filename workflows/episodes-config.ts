/**
 * The input of `taskEpisodes`: episodes of any agent on a dataset's tasks, outside a training run. One JSON object whose every field
 * but `dataset` has a default; checked by the workflow itself, as a training run's is (config.ts). Sandbox-safe: no I/O.
 *
 * Nothing secret belongs here: inputs stay in histories. The key of a model's endpoint is in the workers' environment.
 */
import { z } from 'zod';
import { checked, ConfigError, mergeInput, objectOrNothing } from './profiles.ts';

const count = z.number().int().min(1);
const positive = z.number().positive();

export const episodesConfigSchema = z.strictObject({
  dataset: z.string().min(1).meta({
    description: 'The folder of tasks, or a `registry.json` or `dataset.toml`; absolute, or relative to the repository.',
  }),
  include: z.array(z.string().min(1)).meta({ description: 'Globs of task names; with any, only tasks that match one are run.' }),
  exclude: z.array(z.string().min(1)).meta({ description: 'Globs of task names that are left out.' }),
  limit: z.number().int().min(0).meta({ description: 'At most this many tasks, after the globs; 0 = all.', unit: 'tasks' }),
  agent: z
    .string()
    .regex(
      /^(oracle|nop|(replay|model|policy):.+)$/,
      'expected oracle, nop, replay:FILE, model:NAME, policy:DIRECTORY or policy:SHA256 of an artifact',
    )
    .meta({ description: '`oracle`, `nop`, `replay:FILE`, `model:NAME` (with `baseUrl`), `policy:DIRECTORY` or `policy:SHA256`.' }),
  baseUrl: z.string().min(1).nullable().meta({ description: 'Of an OpenAI-compatible endpoint, for `model:NAME`.' }),
  harness: z.enum(['shell', 'script', 'terminus']).meta({ description: 'How the agent works on the task.' }),
  sandbox: z.enum(['docker', 'embedded']).meta({ description: 'Where commands and verifiers run.' }),
  samples: count.meta({ description: 'Episodes of each task.', unit: 'episodes' }),
  concurrency: count.max(512).meta({ description: 'Episodes at a time.', unit: 'episodes' }),
  verifier: z.enum(['task', 'shared', 'separate']).meta({
    description: "Where tests run: as the task says, in the agent's sandbox, or in a fresh one that gets the declared files.",
  }),
  attempts: count.max(20).meta({
    description: 'How often an episode is begun, in a new sandbox each time, when an error of its environment ends it.',
    unit: 'attempts',
  }),
  seed: z.number().int().min(0).max(4294967295).meta({ description: "Seed of a policy's sampling." }),
  temperature: positive.meta({ description: 'Of sampling, for a policy or model.' }),
  limits: z
    .strictObject({
      maxTurns: count.meta({ description: 'Turns after which an episode ends.', unit: 'turns' }),
      maxTokensPerTurn: count.meta({ description: 'Limit of one reply.', unit: 'tokens' }),
      observationTokens: count.meta({ description: 'Observations of a policy are cut to this length.', unit: 'tokens' }),
      commandTimeoutSec: positive.meta({ description: 'Limit on one command of the agent.', unit: 's' }),
    })
    .meta({ description: 'Bounds of one episode.' }),
  maxInfraFailedRate: z.number().min(0).max(1).meta({
    description: 'Where more than this share of the last episodes failed for their environment, the job pauses; 1 = never.',
  }),
  jobDir: z
    .string()
    .min(1)
    .nullable()
    .meta({ description: 'Where the trials are written; default: `jobs/<workflow id>` of the data folder.' }),
});
export type EpisodesConfig = z.infer<typeof episodesConfigSchema>;
export type TaskEpisodesInput = { [K in keyof EpisodesConfig]?: unknown };

const defaults: Omit<EpisodesConfig, 'dataset'> = {
  include: [],
  exclude: [],
  limit: 0,
  agent: 'oracle',
  baseUrl: null,
  harness: 'shell',
  sandbox: 'docker',
  samples: 1,
  concurrency: 8,
  verifier: 'task',
  attempts: 3,
  seed: 1,
  temperature: 1,
  limits: { maxTurns: 50, maxTokensPerTurn: 4096, observationTokens: 4096, commandTimeoutSec: 120 },
  maxInfraFailedRate: 0.5,
  jobDir: null,
};
/** What the built-in policies are trained with (profiles.ts). */
const policyLimits: EpisodesConfig['limits'] = { maxTurns: 12, maxTokensPerTurn: 64, observationTokens: 96, commandTimeoutSec: 10 };

/** A complete configuration from any part of one that names a dataset. @throws ConfigError naming every bad field */
export function resolveEpisodesConfig(input: unknown): EpisodesConfig {
  const given = objectOrNothing(input, '{"dataset": "path/of/tasks"}');
  const isPolicy = typeof given['agent'] === 'string' && given['agent'].startsWith('policy:');
  const config = checked(episodesConfigSchema, mergeInput({ ...defaults, ...(isPolicy ? { limits: policyLimits } : {}) }, given));
  const fits = config.agent.startsWith('model:') === (config.baseUrl !== null);
  if (!fits) throw new ConfigError([{ path: 'baseUrl', value: config.baseUrl, expected: expectedBaseUrl(config.agent) }]);
  return config;
}

function expectedBaseUrl(agent: string): string {
  return agent.startsWith('model:') ? `the address of the endpoint that serves ${agent.slice('model:'.length)}` : `none for ${agent}`;
}
