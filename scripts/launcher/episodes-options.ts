/** The options of `npm run episodes`, and their errors. */
import path from 'node:path';
import { parseArgs } from 'node:util';
import { UserError } from '../../environment/errors.ts';
import type { TaskEpisodesInput } from '../../workflows/episodes-config.ts';

export const EPISODES_HELP = `npm run episodes -- --dataset DIR [options]

DIR is a folder of tasks in Harbor's format, a registry.json or a dataset.toml.

Options:
  --agent AGENT        oracle (default), nop, replay:FILE, model:NAME (with --base-url), policy:DIRECTORY or policy:SHA256
  --base-url URL       OpenAI-compatible endpoint of model:NAME; its key comes from OPENAI_API_KEY
  --harness NAME       shell (default), script or terminus
  --sandbox KIND       docker (default) or embedded
  --include GLOB       only tasks whose name matches; repeatable
  --exclude GLOB       not the tasks whose name matches; repeatable
  --limit N            at most N tasks
  --samples N          episodes of each task (default: 1)
  --concurrency N      episodes at a time (default: 8)
  --verifier MODE      shared or separate (default: as each task says)
  --attempts N         how often an episode is begun when its environment fails (default: 3)
  --seed N             of a policy's or model's sampling (default: 1)
  --temperature T      of sampling (default: 1)
  --max-turns N        turns of an episode
  --max-tokens N       tokens of one reply; a chat model wants more than a policy of ours, whose default is 64
  --observation-tokens N
                       tokens of what a policy reads at once
  --command-timeout S  seconds of one command
  --job-dir DIR        where the trials are written (default: jobs/… in the data folder); an earlier job there goes on
  --resume [DIR]       go on with the job in DIR, or with the newest one
  --result-file FILE   write the result as JSON
  --help`;

export interface EpisodesOptions {
  /** Only what was asked for. Paths are absolute. */
  readonly input: TaskEpisodesInput;
  /** '' for the newest job; absent without --resume. */
  readonly resume?: string;
  readonly resultFile?: string;
}

/** @throws UserError naming the option, its value and what was expected */
export function parseEpisodes(args: readonly string[]): EpisodesOptions | 'help' {
  const { values, positionals } = parse(args);
  if (values.help) return 'help';
  const { resume, 'result-file': resultFile, help: _, ...rest } = values;
  if (resultFile === '') throw new UserError('--result-file is empty; expected the path of a file to write');
  const common = resultFile === undefined ? {} : { resultFile };
  if (resume) {
    const others = Object.keys(rest);
    if (others.length > 0 || positionals.length > 1)
      throw new UserError(
        `--resume: a job goes on with its own settings; got ${[...others.map((key) => `--${key}`), ...positionals.slice(1)].join(' ')} beside it`,
      );
    return { input: {}, resume: positionals[0] ?? '', ...common };
  }
  if (positionals.length > 0) throw new UserError(`got ${positionals.join(' ')}; expected options only\n\n${EPISODES_HELP}`);
  if (rest.dataset === undefined || rest.dataset === '')
    throw new UserError(`--dataset is missing; expected a folder of tasks\n\n${EPISODES_HELP}`);
  const input: Record<string, unknown> = { dataset: path.resolve(rest.dataset) };
  const limits: Record<string, unknown> = {};
  if (rest.agent !== undefined) input['agent'] = agentWithPath(rest.agent);
  if (rest['base-url'] !== undefined) input['baseUrl'] = rest['base-url'];
  for (const key of ['harness', 'sandbox', 'include', 'exclude', 'verifier'] as const) if (rest[key] !== undefined) input[key] = rest[key];
  for (const key of ['limit', 'samples', 'concurrency', 'attempts', 'seed', 'temperature'] as const)
    if (rest[key] !== undefined) input[key] = number(key, rest[key]);
  for (const [option, field] of Object.entries(LIMITS) as [keyof typeof LIMITS, string][])
    if (rest[option] !== undefined) limits[field] = number(option, rest[option]);
  if (Object.keys(limits).length > 0) input['limits'] = limits;
  if (rest['job-dir'] !== undefined) input['jobDir'] = path.resolve(rest['job-dir']);
  return { input, ...common };
}

const LIMITS = {
  'max-turns': 'maxTurns',
  'max-tokens': 'maxTokensPerTurn',
  'observation-tokens': 'observationTokens',
  'command-timeout': 'commandTimeoutSec',
} as const;

/** Workers have another working directory than the person. */
function agentWithPath(agent: string): string {
  const [kind, ...rest] = agent.split(':');
  const named = rest.join(':');
  if ((kind !== 'replay' && kind !== 'policy') || named === '' || /^[0-9a-f]{64}$/.test(named)) return agent;
  return `${kind}:${path.resolve(named)}`;
}

function number(option: string, text: string): number {
  const value = Number(text);
  if (text.trim() === '' || !Number.isFinite(value)) throw new UserError(`--${option} is ${JSON.stringify(text)}; expected a number`);
  return value;
}

function parse(args: readonly string[]) {
  const text = { type: 'string' } as const;
  try {
    return parseArgs({
      args: [...args],
      strict: true,
      allowPositionals: true,
      options: {
        ...{ dataset: text, agent: text, 'base-url': text, harness: text, sandbox: text, verifier: text, limit: text, samples: text },
        ...{ concurrency: text, attempts: text, seed: text, temperature: text },
        ...{ 'max-turns': text, 'max-tokens': text, 'observation-tokens': text, 'command-timeout': text },
        ...{ 'job-dir': text, 'result-file': text },
        include: { type: 'string', multiple: true },
        exclude: { type: 'string', multiple: true },
        resume: { type: 'boolean' },
        help: { type: 'boolean', short: 'h' },
      },
    });
  } catch (error) {
    throw new UserError(`${error instanceof Error ? error.message : String(error)}\n\n${EPISODES_HELP}`);
  }
}
