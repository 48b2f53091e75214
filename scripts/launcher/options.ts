/** The options that `start` and `start-run` share, and their errors. */
import { userInfo } from 'node:os';
import { parseArgs } from 'node:util';
import { UserError } from '../../environment/errors.ts';
import { runConfigSchema } from '../../workflows/config.ts';
import type { StageName, TrainingRunInput } from '../../workflows/contract.ts';

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

export interface ResumeOptions {
  /** Workflow id or key of a run. */
  readonly run: string;
  readonly resultFile: string | undefined;
  readonly intent:
    | { readonly kind: 'go-on' }
    | { readonly kind: 'restart'; readonly from: StageName; readonly by: string }
    | { readonly kind: 'fork'; readonly from: StageName; readonly changes: TrainingRunInput };
}

export const RESUME_HELP = `npm run resume -- RUN [options]

RUN is a run's workflow id or key. Without options an open run is followed, and one that failed goes on where it failed.

Options:
  --from STAGE         run STAGE (base, rsr-1, rpr-1, …) and all after it again, with what was made before it
  --by NAME            who asks for that, for the ledger (default: the user's name)
  --fork               with --from: leave the run as it is, and start a new one that shares the stages before STAGE
  --set PATH=VALUE     with --fork: a setting that differs, e.g. --set rpr.epochs=3; repeatable
  --seed N             with --fork: another seed
  --result-file FILE   write the run's result as JSON (docs/results.md)`;

/** Reads the options of `resume`. Throws UserError naming the option, its value and what was expected. */
export function parseResumeOptions(args: readonly string[]): ResumeOptions | 'help' {
  const { values, positionals } = parseResume(args);
  if (values.help) return 'help';
  const [run, ...more] = positionals;
  if (run === undefined || more.length > 0)
    throw new UserError(`expected one run, got ${positionals.join(' ') || 'none'}\n\n${RESUME_HELP}`);
  if (values['result-file'] === '') throw new UserError('--result-file is empty; expected the path of a file to write');
  const changes: Record<string, unknown> = {};
  if (values.seed !== undefined) changes['seed'] = seed(values.seed);
  for (const assignment of values.set ?? []) assign(changes, assignment);
  const from = values.from === undefined ? undefined : stage(values.from);
  const common = { run, resultFile: values['result-file'] };
  if (values.fork) {
    if (from === undefined) throw new UserError('--fork needs --from STAGE: the first stage that the new run does not share');
    return { ...common, intent: { kind: 'fork', from, changes } };
  }
  if (Object.keys(changes).length > 0) {
    throw new UserError(
      `${values.seed === undefined ? '--set' : '--seed'}: what a run has made belongs to its configuration; add --fork for a new run with a changed one`,
    );
  }
  if (from === undefined) return { ...common, intent: { kind: 'go-on' } };
  return { ...common, intent: { kind: 'restart', from, by: values.by ?? userInfo().username } };
}

function parseResume(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      strict: true,
      allowPositionals: true,
      options: {
        from: { type: 'string' },
        by: { type: 'string' },
        fork: { type: 'boolean' },
        set: { type: 'string', multiple: true },
        seed: { type: 'string' },
        'result-file': { type: 'string' },
        help: { type: 'boolean', short: 'h' },
      },
    });
  } catch (error) {
    throw new UserError(`${error instanceof Error ? error.message : String(error)}\n\n${RESUME_HELP}`);
  }
}

/** `rpr-1` → `RPR-1`. */
function stage(text: string): StageName {
  if (text.toLowerCase() === 'base') return 'Base';
  if (!/^(rsr|rpr)-[1-9]$/i.test(text)) throw new UserError(`--from is ${JSON.stringify(text)}; expected base, rsr-1, rpr-1, rsr-2, …`);
  return text.toUpperCase();
}
