/**
 * The three complete configurations, and the merge of a person's input over one of them. Sandbox-safe: the workflow
 * itself calls `resolveConfig`, so that a run started from the Temporal UI is checked as well.
 */
import { z } from 'zod';
import { runConfigSchema } from './config.ts';
import type { RunConfig } from './config.ts';
import type { StageName } from './contract.ts';

const quick: RunConfig = {
  profile: 'quick',
  seed: 1,
  sandbox: 'embedded',
  basePolicy: 'models/tiny-base',
  rounds: 2,
  requireApproval: false,
  dataset: null,
  gateFile: null,
  trainingTasks: 0,
  rollout: {
    chunkSize: 32,
    chunksInFlight: 4,
    maxTurns: 12,
    maxTokensPerTurn: 64,
    observationTokens: 96,
    temperature: 1,
    commandTimeoutSec: 10,
  },
  evaluation: { repeats: 3, temperature: 1, tasksPerSuite: 0 },
  rsr: {
    samplesPerTask: 4,
    complementarySamplesPerTask: 2,
    complementaryHarnesses: ['script'],
    keptPerTask: 2,
    epochs: 2,
    sequencesPerStep: 16,
    learningRate: [5e-4, 4e-4],
  },
  rpr: {
    reward: ['fdr', 'spr'],
    iterations: [3, 3],
    tasksPerIteration: 96,
    samplesPerTask: 3,
    gamma: 0.99,
    lambda: 0.9,
    epochs: 2,
    sequencesPerStep: 32,
    actorLearningRate: [1.5e-4, 1e-4],
    criticLearningRate: [3e-3, 3e-3],
    clipLow: 0.2,
    clipHigh: 0.28,
    dualClip: 3,
    valueClip: 0.5,
    klCoefficient: 0.01,
    entropyCoefficient: 0,
    stopRules: { maxKl: 0.2, maxKlToStart: 1, minEntropy: 0.005, maxTurnLengthRatio: 2.5, maxClipFraction: 0.5, maxGradientNorm: 100 },
  },
  reward: { fdrFloor: 0.1, sprBonus: 0.25, sprCap: 0.5 },
  adoption: { maxDropStandardErrors: 2 },
  reuse: 'lineage',
  fork: null,
};

/** Complete configurations. `smoke` touches every activity in the least time; `full` is for a real machine. */
export const profiles: Readonly<Record<RunConfig['profile'], RunConfig>> = {
  smoke: {
    ...quick,
    profile: 'smoke',
    rounds: 1,
    trainingTasks: 6,
    rollout: { ...quick.rollout, chunkSize: 16, maxTurns: 6 },
    evaluation: { ...quick.evaluation, repeats: 1, tasksPerSuite: 2 },
    rsr: { ...quick.rsr, samplesPerTask: 4, complementarySamplesPerTask: 1, keptPerTask: 1, epochs: 1 },
    rpr: { ...quick.rpr, iterations: [1], tasksPerIteration: 4, samplesPerTask: 2, epochs: 1 },
  },
  quick,
  full: {
    ...quick,
    profile: 'full',
    trainingTasks: 0,
    rollout: { ...quick.rollout, chunkSize: 64, chunksInFlight: 8, maxTurns: 24 },
    rsr: { ...quick.rsr, samplesPerTask: 8, complementarySamplesPerTask: 4, keptPerTask: 3 },
    rpr: { ...quick.rpr, iterations: [16, 16], tasksPerIteration: 64, samplesPerTask: 8 },
  },
};

export interface FieldError {
  readonly path: string;
  readonly value: unknown;
  readonly expected: string;
}

/** The input is not a configuration. `fields` has every bad field, `message` one line for each. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly fields: readonly FieldError[];
  constructor(fields: readonly FieldError[]) {
    super(fields.map(({ path, value, expected }) => `${path}: got ${show(value)}, expected ${expected}`).join('\n'));
    this.fields = fields;
  }
}

/**
 * A complete configuration from any part of one: objects are merged over the profile (default `quick`), lists replace.
 * @throws ConfigError naming every bad field, its value and what was expected.
 */
export function resolveConfig(input: unknown): RunConfig {
  const given = objectOrNothing(input, '{} or {"profile": "smoke"}');
  const name = given['profile'] ?? 'quick';
  if (typeof name !== 'string' || !Object.hasOwn(profiles, name)) {
    throw new ConfigError([{ path: 'profile', value: name, expected: oneOf(Object.keys(profiles)) }]);
  }
  return withinOneHistory(checked(runConfigSchema, mergeInput(profiles[name as RunConfig['profile']], given)));
}

/** What a person gave as input: nothing is `{}`. */
export function objectOrNothing(input: unknown, example: string): JsonObject {
  const given = input ?? {};
  if (!isObject(given)) throw new ConfigError([{ path: 'input', value: given, expected: `a JSON object such as ${example}` }]);
  return given;
}

/** A complete object as `schema` has it. @throws ConfigError naming every bad field, its value and what was expected */
export function checked<T>(schema: z.ZodType<T>, merged: unknown): T {
  const parsed = schema.safeParse(merged);
  if (parsed.success) return parsed.data;
  throw new ConfigError(parsed.error.issues.flatMap((issue) => fieldErrors(issue, merged, schema)));
}

/** The value of a per-round list in round `round` (1-based): a shorter list repeats its last entry. */
export function inRound<T>(list: readonly T[], round: number): T {
  const value = list[Math.min(round, list.length) - 1];
  if (value === undefined) throw new RangeError(`round ${round}: a per-round list must have an entry`);
  return value;
}

/** The stages of a run in order: `Base`, then RSR and RPR of each round. */
export function plannedStages(rounds: number): StageName[] {
  return ['Base', ...Array.from({ length: rounds }, (_, index) => [`RSR-${index + 1}`, `RPR-${index + 1}`]).flat()];
}

/** What the training run's history may take from all progress signals together: each is up to four events of at most about 4,000. */
const SIGNALS_PER_RUN = 480;
/** Each costs the training run's history up to 22 events (`npm run bench:orchestration`), of at most 4,000. */
const BATCHES_PER_RUN = 176;

/** Batches of episodes that a run rolls out: evaluations, RSR's rollout, RPR's warm-up, and one an iteration. */
function plannedBatches({ rounds, evaluation, rpr }: RunConfig): number {
  let batches = (1 + 2 * rounds) * evaluation.repeats;
  for (let round = 1; round <= rounds; round++) batches += 2 + inRound(rpr.iterations, round);
  return batches;
}

/** Progress signals that one batch of episodes may send: many in a small run, at least the first and the last in a large one. */
export function signalsPerBatch(config: RunConfig): number {
  return Math.min(16, Math.max(2, Math.floor(SIGNALS_PER_RUN / plannedBatches(config))));
}

/** A run of more batches than its history should hold is refused before it starts, not when it is in the middle. */
function withinOneHistory(config: RunConfig): RunConfig {
  const batches = plannedBatches(config);
  if (batches <= BATCHES_PER_RUN) return config;
  const expected = `at most ${BATCHES_PER_RUN} batches of episodes in a run (evaluations, rollouts and iterations of all rounds; these settings make ${batches}): fewer iterations with more tasks in each, or the further rounds in a fork`;
  throw new ConfigError([{ path: 'rpr.iterations', value: config.rpr.iterations, expected }]);
}

type JsonObject = Record<string, unknown>;
function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** `over` over `base`. `null` and `undefined` mean "as in the base": a form's empty field arrives so. */
export function mergeInput(base: unknown, over: unknown): unknown {
  if (over === undefined || over === null) return base;
  if (!isObject(base) || !isObject(over)) return over;
  const result: JsonObject = { ...base };
  for (const [key, value] of Object.entries(over)) result[key] = mergeInput(base[key], value);
  return result;
}

function fieldErrors(issue: z.core.$ZodIssue, merged: unknown, schema: z.ZodType): FieldError[] {
  const path = issue.path.map(String);
  if (issue.code === 'unrecognized_keys') {
    const known = Object.keys(
      (valueAt(
        z.toJSONSchema(schema),
        path.flatMap((key) => ['properties', key]),
      )?.['properties'] as JsonObject | undefined) ?? {},
    );
    return issue.keys.map((key) => ({
      path: [...path, key].join('.'),
      value: at(merged, [...path, key]),
      expected: `no such field; the nearest known one is ${[...path, nearest(key, known)].join('.')}`,
    }));
  }
  const said = issue.code === 'custom' || issue.code === 'invalid_format';
  const expected = said ? issue.message.replace(/^expected /, '') : accepted(schemaAt(schema, path));
  return [{ path: path.join('.') || 'input', value: at(merged, path), expected }];
}

function at(value: unknown, path: readonly string[]): unknown {
  return path.reduce<unknown>((here, key) => (typeof here === 'object' && here !== null ? (here as JsonObject)[key] : undefined), value);
}
function valueAt(value: unknown, path: readonly string[]): JsonObject | undefined {
  const found = at(value, path);
  return isObject(found) ? found : undefined;
}
/** JSON Schema is made only when something is wrong: good runs do not pay for it. */
function schemaAt(schema: z.ZodType, path: readonly string[]): JsonObject {
  let here: JsonObject = z.toJSONSchema(schema);
  for (const key of path) here = valueAt(here, ['properties', key]) ?? valueAt(here, ['items']) ?? {};
  return here;
}

/** What a JSON Schema node accepts, in words. */
export function accepted(schema: JsonObject): string {
  const either = schema['anyOf'];
  if (Array.isArray(either)) return (either as JsonObject[]).map((one) => (one['type'] === 'null' ? 'null' : accepted(one))).join(' or ');
  const options = schema['enum'];
  if (Array.isArray(options)) return oneOf(options.map(String));
  if (schema['type'] === 'array')
    return `a non-empty list, each entry ${accepted((schema['items'] as JsonObject | undefined) ?? {})}`.replace(
      'a non-empty list',
      schema['minItems'] ? 'a non-empty list' : 'a list',
    );
  if (schema['type'] === 'boolean') return 'true or false';
  if (schema['type'] === 'object')
    return `an object with ${Object.keys((schema['properties'] as JsonObject | undefined) ?? {}).join(', ')}`;
  if (schema['type'] === 'string') return schema['minLength'] ? 'a text that is not empty' : 'a text';
  const noun = schema['type'] === 'integer' ? 'a whole number' : 'a number';
  const bound = (name: string): string | undefined => (typeof schema[name] === 'number' ? String(schema[name]) : undefined);
  const low = bound('minimum');
  const above = bound('exclusiveMinimum');
  // zod writes the largest safe integer where the schema sets no maximum.
  const high = schema['maximum'] === Number.MAX_SAFE_INTEGER ? undefined : bound('maximum');
  if (low !== undefined && high !== undefined) return `${noun} between ${low} and ${high}`;
  if (above !== undefined) return `${noun} above ${above}${high === undefined ? '' : ` and at most ${high}`}`;
  if (low !== undefined) return `${noun} of at least ${low}`;
  return noun;
}

function oneOf(options: readonly string[]): string {
  return `one of ${options.join(', ')}`;
}
function show(value: unknown): string {
  const text = JSON.stringify(value) ?? 'nothing';
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}

/** The known name with the fewest edits to `name` (Levenshtein distance). */
function nearest(name: string, known: readonly string[]): string {
  let best = known[0] ?? '';
  let fewest = Infinity;
  for (const candidate of known) {
    const edits = distance(name.toLowerCase(), candidate.toLowerCase());
    if (edits < fewest) [best, fewest] = [candidate, edits];
  }
  return best;
}
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next.push(Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
