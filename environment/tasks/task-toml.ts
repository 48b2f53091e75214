/**
 * Reads task.toml with Harbor's names and defaults (schema 1.4). A foreign task may hold any key: unknown ones are named
 * in a warning. What changes the task's meaning and is not supported here is refused.
 */
import { z } from 'zod';
import { TaskError } from '../errors.ts';
import type { TaskLogger } from './task.ts';
import type { Tier } from '../types.ts';

export interface TaskToml {
  readonly family: string;
  readonly tier: Tier;
  readonly workdir: string | undefined;
  readonly dockerImage: string | undefined;
  /** Infinity where the task sets none, as in Harbor. */
  readonly agentTimeoutSec: number;
  readonly verifierTimeoutSec: number;
  readonly memoryMb: number;
  readonly env: Record<string, string>;
  readonly verifierEnv: Record<string, string>;
  readonly solutionEnv: Record<string, string>;
  readonly needs: readonly string[];
}

/** Memory of a sandbox whose task names none. */
const defaultMemoryMb = 512;

const seconds = z.number().positive();
// Values such as ${VAR} come from the host's environment in Harbor; a sandbox here gets nothing from the host.
const env = z.record(z.string(), z.string().regex(/^(?!.*\$\{)/s, 'expected a literal string without ${...}'));
const network = z.enum(['public', 'no-network', 'allowlist']);
const user = z.union([z.literal('root'), z.literal(0)], 'expected root, the only supported user');
const unsupported = z.undefined('is not supported; expected the key to be absent').optional();
const known = {
  root: ['version', 'schema_version', 'source', 'artifacts', 'task', 'metadata', 'agent', 'verifier', 'environment', 'solution'],
  agent: ['timeout_sec', 'user', 'network_mode', 'allowed_hosts'],
  verifier: ['timeout_sec', 'env', 'user', 'environment_mode', 'network_mode', 'allowed_hosts'],
  environment: [
    'build_timeout_sec',
    'docker_image',
    'os',
    'cpus',
    'memory_mb',
    'memory',
    'storage_mb',
    'storage',
    'gpus',
    'gpu_types',
    'network_mode',
    'allowed_hosts',
    'allow_internet',
    'env',
    'workdir',
    'skills_dir',
  ],
  solution: ['env'],
} as const;

const schema = z.object({
  steps: unsupported,
  metadata: z
    .object({ family: z.string().min(1).optional(), tier: z.enum(['easy', 'medium', 'hard', 'extreme']).default('medium') })
    .prefault({}),
  agent: z.object({ timeout_sec: seconds.default(Infinity), user: user.optional(), network_mode: network.optional() }).prefault({}),
  verifier: z
    .object({
      timeout_sec: seconds.default(600),
      env: env.default({}),
      user: user.optional(),
      // Verification always happens in a fresh sandbox here; a verifier image of its own is another thing.
      environment_mode: z.literal('shared', 'expected shared').optional(),
      environment: unsupported,
      collect: unsupported,
      network_mode: network.optional(),
    })
    .prefault({}),
  environment: z
    .object({
      docker_image: z.string().min(1).optional(),
      os: z
        .string()
        .regex(/^linux$/i, 'expected linux')
        .default('linux'),
      memory_mb: z.number().int().min(6).optional(),
      memory: z
        .string()
        .regex(/^\d+(\.\d+)?[KMG]$/i, 'expected a size such as 512M or 2G')
        .optional(),
      gpus: z.number().int().min(0).default(0),
      network_mode: network.optional(),
      allow_internet: z.boolean().optional(),
      env: env.default({}),
      workdir: z.string().startsWith('/').optional(),
      mcp_servers: unsupported,
      tpu: unsupported,
      healthcheck: unsupported,
    })
    .prefault({}),
  solution: z.object({ env: env.default({}) }).prefault({}),
});

/**
 * @param parsed task.toml as parsed TOML
 * @param id the task's directory name, its family where it names none
 * @throws TaskError naming file, key, value and what was expected
 */
export function readTaskToml(parsed: Record<string, unknown>, id: string, file: string, logger?: TaskLogger): TaskToml {
  warnUnknown(parsed, file, logger);
  const result = schema.safeParse(parsed);
  if (!result.success) {
    const [issue] = result.error.issues;
    const path = issue?.path ?? [];
    throw new TaskError(`${file}: ${path.join('.')} = ${JSON.stringify(valueAt(parsed, path))}: ${issue?.message ?? 'invalid'}`);
  }
  const { metadata, agent, verifier, environment, solution } = result.data;
  if (environment.memory !== undefined && environment.memory_mb !== undefined) {
    throw new TaskError(`${file}: environment.memory and environment.memory_mb are both set; expected one of them`);
  }
  // Harbor's default is a public network. Here a sandbox has none, so only a task that asks for it by name needs it.
  const modes = [environment.network_mode, agent.network_mode, verifier.network_mode];
  const wantsNetwork =
    modes.some((mode) => mode === 'public' || mode === 'allowlist') ||
    (environment.network_mode === undefined && environment.allow_internet === true);
  return {
    family: metadata.family ?? id,
    tier: metadata.tier,
    workdir: environment.workdir,
    dockerImage: environment.docker_image,
    agentTimeoutSec: agent.timeout_sec,
    verifierTimeoutSec: verifier.timeout_sec,
    memoryMb: environment.memory_mb ?? (environment.memory === undefined ? defaultMemoryMb : megabytes(environment.memory)),
    env: environment.env,
    verifierEnv: verifier.env,
    solutionEnv: solution.env,
    needs: [...(wantsNetwork ? ['network'] : []), ...(environment.gpus > 0 ? ['gpu'] : [])],
  };
}

function megabytes(size: string): number {
  const factor = { K: 1 / 1024, M: 1, G: 1024 }[size.slice(-1).toUpperCase()] ?? 1;
  return Math.max(6, Math.ceil(Number.parseFloat(size) * factor));
}

function warnUnknown(parsed: Record<string, unknown>, file: string, logger?: TaskLogger): void {
  if (!logger) return;
  const report = (table: unknown, names: readonly string[], prefix: string): void => {
    if (typeof table !== 'object' || table === null) return;
    for (const key of Object.keys(table)) if (!names.includes(key)) logger.warn(`${file}: unknown key ${prefix}${key} is ignored`);
  };
  report(parsed, known.root, '');
  for (const name of ['agent', 'verifier', 'environment', 'solution'] as const) report(parsed[name], known[name], `${name}.`);
}

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>(
    (at, key) => (typeof at === 'object' && at !== null ? (at as Record<PropertyKey, unknown>)[key] : undefined),
    value,
  );
}
