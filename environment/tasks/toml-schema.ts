/**
 * Every key of task.toml, with Harbor's types and defaults (schema 1.4) and its deprecated names. What is valid in Harbor and cannot be
 * run here is refused by name; keys that Harbor does not know either are named in a warning (`unknownKeys`) and ignored.
 */
import { z } from 'zod';
import { checkEnvironmentNetwork, checkPhaseNetwork, networkShape } from './network-rules.ts';
import { stepNameFault, stepNameKey } from './step-names.ts';

/** Numbers may stand in quotes, as Harbor accepts them. */
const lax = (value: unknown): unknown => (typeof value === 'string' && /^\s*[+-]?\d+(\.\d+)?\s*$/.test(value) ? Number(value) : value);
const number = z.preprocess(lax, z.number());
const whole = z.preprocess(lax, z.number().int());
const seconds = z.preprocess(lax, z.number().positive());
const text = z.string();
const user = z.union([text, z.number().int()], 'expected a user name or id').transform(String);
const env = z.record(text, text);
/** Harbor's key, which this project cannot do; an empty list or string asks for nothing. */
const unsupported = (what: string): z.ZodType =>
  z
    .unknown()
    .refine(
      (value) => value === undefined || value === '' || (Array.isArray(value) && value.length === 0),
      `${what} not supported; expected the key to be absent`,
    );
/** The one container that there is. */
const service = text.trim().refine((name) => name === 'main', 'services of compose files are not supported; expected main');

/** A size such as 2G, in MB. Harbor ignores what is no text here. */
const size = z.unknown().transform((value, context) => {
  if (typeof value !== 'string') return undefined;
  const [, digits = '', unit = ''] = /^([+-]?\d+(?:\.\d*)?|\.\d+)([KMG])$/.exec(value.trim().toUpperCase()) ?? [];
  if (unit === '') return (context.addIssue('expected a size such as 512M or 2G'), z.NEVER);
  return Math.trunc(Number(digits) * ({ K: 1 / 1024, G: 1024 }[unit] ?? 1));
});

const healthcheck = z.object({
  command: text,
  interval_sec: number.default(5),
  timeout_sec: seconds.default(30),
  start_period_sec: number.default(0),
  start_interval_sec: number.default(5),
  retries: whole.default(3),
});

const environment = z
  .object({
    ...networkShape,
    allow_internet: z.boolean().optional(),
    build_timeout_sec: seconds.default(600),
    docker_image: text.optional(),
    os: text.regex(/^linux$/i, 'Windows is not supported; expected linux').optional(),
    cpus: z.preprocess(lax, z.number().positive()).optional(),
    memory_mb: whole.optional(),
    storage_mb: whole.optional(),
    memory: size.optional(),
    storage: size.optional(),
    gpus: whole.optional(),
    gpu_types: z.array(text).optional(),
    tpu: unsupported('TPUs are').optional(),
    env: env.default({}),
    workdir: text.startsWith('/', 'expected an absolute path').optional(),
    skills_dir: unsupported('skills for agents are').optional(),
    mcp_servers: unsupported('MCP servers are').optional(),
    healthcheck: healthcheck.optional(),
  })
  .superRefine((table, context) => {
    checkEnvironmentNetwork(table, context);
    for (const key of ['memory', 'storage'] as const) {
      const [old, named] = [table[key], table[`${key}_mb`]];
      if (old !== undefined && named !== undefined && old !== named)
        context.addIssue({ code: 'custom', path: [key], message: `is ${old} MB; expected the same as ${key}_mb = ${named}` });
    }
  });

const agent = z
  .object({
    ...networkShape,
    // Infinity is no limit, as is no value.
    timeout_sec: z.preprocess((value) => (value === Infinity ? undefined : value), seconds.optional()),
    user: user.optional(),
  })
  .superRefine(checkPhaseNetwork);

const collect = z.object({ command: text, service: service.default('main'), timeout_sec: seconds.default(60), user: user.optional() });

const verifier = z
  .object({
    ...networkShape,
    timeout_sec: seconds.default(600),
    env: env.default({}),
    user: user.optional(),
    environment_mode: z.enum(['shared', 'separate']).optional(),
    environment: environment.optional(),
    collect: z.array(collect).default([]),
  })
  .superRefine((table, context) => {
    checkPhaseNetwork(table, context);
    if (table.environment_mode === 'shared' && table.environment)
      context.addIssue({ code: 'custom', path: ['environment_mode'], message: 'expected separate where verifier.environment is set' });
  });

const dotted = (path: string): boolean => path.split('/').includes('..');
const artifact = z.preprocess(
  (value) => (typeof value === 'string' ? { source: value } : value),
  z.object({
    source: text.refine((path) => !dotted(path), 'expected a path without ..'),
    destination: text
      .refine(
        (path) =>
          path === '' || !(path.includes('\\') || path.startsWith('/') || dotted(path) || /^\.?\/*$|^(\.\/)*manifest\.json\/*$/.test(path)),
        'expected a relative path with forward slashes, without .., other than manifest.json',
      )
      .optional(),
    exclude: z.array(text).default([]),
    service: service.optional(),
  }),
);

const step = z.object({
  name: text.superRefine((name, context) => {
    const fault = stepNameFault(name);
    if (fault !== undefined) context.addIssue(fault);
  }),
  agent: agent.prefault({}),
  verifier: verifier.prefault({}),
  min_reward: z.union([number, z.record(text, number)], 'expected a number or a table of numbers by reward').optional(),
  healthcheck: healthcheck.optional(),
  artifacts: z.array(artifact).default([]),
});

export const packageName = text.regex(
  /^(?!.*\.\.)[a-zA-Z0-9][a-zA-Z0-9._-]*\/[a-zA-Z0-9][a-zA-Z0-9._-]*$/,
  'expected organisation/name of letters, digits, dots, hyphens and underscores',
);

export const taskTomlSchema = z.object({
  version: z.unknown().optional(),
  schema_version: text.default('1.4'),
  source: text.optional(),
  multi_step_reward_strategy: z.enum(['mean', 'final']).optional(),
  artifacts: z.array(artifact).default([]),
  task: z
    .object({
      name: packageName,
      version: text.min(1).optional(),
      description: text.default(''),
      authors: z.array(z.object({ name: text, email: text.optional() })).default([]),
      keywords: z.array(text).default([]),
    })
    .optional(),
  metadata: z.record(text, z.unknown()).default({}),
  agent: agent.prefault({}),
  verifier: verifier.prefault({}),
  environment: environment.prefault({}),
  solution: z.object({ env: env.default({}) }).prefault({}),
  steps: z
    .array(step)
    .superRefine((steps, context) => {
      const keys = steps.map(({ name }) => stepNameKey(name));
      const twice = keys.findIndex((key, index) => keys.indexOf(key) < index);
      if (twice >= 0)
        context.addIssue({ code: 'custom', path: [twice, 'name'], message: 'expected names that differ in more than case and accents' });
    })
    .optional(),
});

export type TaskTomlTables = z.infer<typeof taskTomlSchema>;
export type EnvironmentTable = z.infer<typeof environment>;
export type AgentTable = z.infer<typeof agent>;
export type VerifierTable = z.infer<typeof verifier>;
export type ArtifactTable = z.infer<typeof artifact>;
export type HealthcheckTable = z.infer<typeof healthcheck>;
export type StepTable = z.infer<typeof step>;

/** Paths of the keys in `value` that `schema` does not have. */
export function unknownKeys(schema: z.core.$ZodType, value: unknown, path = ''): string[] {
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodDefault || schema instanceof z.ZodPrefault)
    return unknownKeys(schema.def.innerType, value, path);
  if (schema instanceof z.ZodPipe) return unknownKeys(schema.in instanceof z.ZodTransform ? schema.out : schema.in, value, path);
  if (schema instanceof z.ZodArray && Array.isArray(value))
    return value.flatMap((item, index) => unknownKeys(schema.element, item, `${path}[${index}]`));
  if (!(schema instanceof z.ZodObject) || typeof value !== 'object' || value === null) return [];
  const shape = schema.shape as Record<string, z.core.$ZodType>;
  return Object.entries(value).flatMap(([key, item]) => {
    const known = Object.hasOwn(shape, key) ? shape[key] : undefined;
    const place = path === '' ? key : `${path}.${key}`;
    return known ? unknownKeys(known, item, place) : [place];
  });
}
