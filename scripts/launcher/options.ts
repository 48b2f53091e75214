/** The options that `start` and `start-run` share, and their errors. */
import { parseArgs } from 'node:util';
import { UserError } from '../../environment/errors.ts';
import { runConfigSchema } from '../../workflows/config.ts';
import type { TrainingRunInput } from '../../workflows/contract.ts';

export interface LaunchOptions {
  /** The workflow's input: only what was asked for. */
  readonly input: TrainingRunInput;
  readonly resultFile: string | undefined;
  readonly detach: boolean;
  /** Start another run although one is open. */
  readonly fresh: boolean;
  readonly help: boolean;
}

export const OPTION_HELP = `Options:
  --profile NAME       ${runConfigSchema.shape.profile.options.join(' | ')} (default: quick)
  --seed N             seed of every random choice (default: 1)
  --sandbox KIND       ${runConfigSchema.shape.sandbox.options.join(' | ')} (default: embedded)
  --set PATH=VALUE     any other field of the configuration, e.g. --set rsr.epochs=3 --set rpr.reward='["fdr","spr"]'; repeatable
  --result-file FILE   write the run's result as JSON (docs/results.md)`;

/** Reads the options of `start` (and, with `allowDetach`, of `start-run`). Throws UserError naming the option, its value and what was expected. */
export function parseOptions(args: readonly string[], allowDetach: boolean): LaunchOptions {
  const { values } = parse(args, allowDetach);
  const input: Record<string, unknown> = {};
  if (values.profile !== undefined) input['profile'] = choice('--profile', values.profile, runConfigSchema.shape.profile.options);
  if (values.sandbox !== undefined) input['sandbox'] = choice('--sandbox', values.sandbox, runConfigSchema.shape.sandbox.options);
  if (values.seed !== undefined) input['seed'] = seed(values.seed);
  for (const assignment of values.set ?? []) assign(input, assignment);
  if (values['result-file'] === '') throw new UserError('--result-file is empty; expected the path of a file to write');
  return {
    input,
    resultFile: values['result-file'],
    detach: values.detach ?? false,
    fresh: values.new ?? false,
    help: values.help ?? false,
  };
}

/** Whether a run with these options executes in Docker. */
export function wantsDocker(options: LaunchOptions): boolean {
  return options.input.sandbox === 'docker';
}

function parse(args: readonly string[], allowDetach: boolean) {
  try {
    const parsed = parseArgs({
      args: [...args],
      strict: true,
      allowPositionals: false,
      options: {
        profile: { type: 'string' },
        seed: { type: 'string' },
        sandbox: { type: 'string' },
        set: { type: 'string', multiple: true },
        'result-file': { type: 'string' },
        detach: { type: 'boolean' },
        new: { type: 'boolean' },
        help: { type: 'boolean', short: 'h' },
      },
    });
    if (parsed.values.detach && !allowDetach) throw new UserError('--detach belongs to `npm run start-run`');
    return parsed;
  } catch (error) {
    if (error instanceof UserError) throw error;
    throw new UserError(`${error instanceof Error ? error.message : String(error)}\n${OPTION_HELP}`);
  }
}

function choice(option: string, value: string, allowed: readonly string[]): string {
  if (!allowed.includes(value)) throw new UserError(`${option} is ${JSON.stringify(value)}; expected one of ${allowed.join(', ')}`);
  return value;
}

function seed(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value > 0xffffffff)
    throw new UserError(`--seed is ${JSON.stringify(text)}; expected a whole number from 0 to 4294967295`);
  return value;
}

/** Puts `a.b=value` into the input. The value is read as JSON where it is JSON, else as text. */
function assign(input: Record<string, unknown>, assignment: string): void {
  const split = assignment.indexOf('=');
  const keys = assignment.slice(0, Math.max(split, 0)).split('.');
  if (split < 1 || keys.some((key) => !/^[A-Za-z]\w*$/.test(key))) {
    throw new UserError(`--set is ${JSON.stringify(assignment)}; expected PATH=VALUE, for example rsr.epochs=3`);
  }
  const last = keys.pop() as string; // split() gives at least one key
  let place = input;
  for (const [i, key] of keys.entries()) {
    const next = (place[key] ??= {});
    if (typeof next !== 'object' || next === null || Array.isArray(next)) {
      throw new UserError(`--set ${assignment}: ${keys.slice(0, i + 1).join('.')} is already set to a value that has no fields`);
    }
    place = next as Record<string, unknown>;
  }
  place[last] = parseValue(assignment.slice(split + 1));
}

function parseValue(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
