/** From task.toml and the task's directories to the phases of a task: the single one, or that of each step. */
import { join } from 'node:path';
import { TaskError } from '../errors.ts';
import type { ArtifactSpec, CollectHook, EnvironmentSpec, FileTree, Healthcheck, TaskPhase, TaskStep } from '../types.ts';
import { environmentSpec } from './environment-spec.ts';
import { networkPolicy } from './network-rules.ts';
import { sorted, stripCanary, subtree, textOf } from './task-files.ts';
import type { TaskLogger } from './task-toml.ts';
import type { ArtifactTable, HealthcheckTable, StepTable, TaskTomlTables, VerifierTable } from './toml-schema.ts';

export interface TaskSource {
  readonly directory: string;
  readonly tomlFile: string;
  readonly toml: TaskTomlTables;
  /** All files of the directory. */
  readonly files: FileTree;
  /** Those that `.harborignore` leaves. */
  readonly kept: FileTree;
  readonly logger: TaskLogger | undefined;
}

/**
 * The phase of a task without steps, or of one step: what the step says, else what the task says. As in Harbor the verifier's time-out is
 * the step's own, with its default, and hooks and artifacts of both count.
 * @throws TaskError naming the file that is missing or wrong
 */
export function readPhase(source: TaskSource, step?: StepTable): TaskPhase {
  const { toml, directory, kept } = source;
  const base = step ? `steps/${step.name}` : undefined;
  const at = (path: string): string => (base === undefined ? path : `${base}/${path}`);
  const agent = step?.agent ?? toml.agent;
  const verifier = step?.verifier ?? toml.verifier;
  for (const path of new Set(['trajectory.json', at('trajectory.json')]))
    if (source.files.has(path))
      throw new TaskError(`${join(directory, path)}: prior context is not supported; expected no trajectory.json`);
  const instruction = textOf(source.files, at('instruction.md'));
  if (instruction === undefined) throw new TaskError(`${join(directory, at('instruction.md'))}: missing; expected what the agent is to do`);

  const separate = verifierEnvironment(source, step);
  const ownTests = base === undefined ? [] : subtree(kept, `${base}/tests`);
  const tests = separate?.bundled ? (new Map() as FileTree) : sorted(new Map([...subtree(kept, 'tests'), ...ownTests]));
  if (!separate?.bundled && !tests.has('test.sh')) {
    const ignored = ['tests/test.sh', at('tests/test.sh')].find((path) => source.files.has(path));
    throw new TaskError(
      ignored === undefined
        ? `${join(directory, at('tests/test.sh'))}: missing; expected the verifier's script`
        : `${join(directory, ignored)}: excluded by .harborignore; expected the verifier's script to be kept`,
    );
  }
  const ownSolution = base === undefined ? (new Map() as FileTree) : subtree(kept, `${base}/solution`);
  const solution = ownSolution.size > 0 ? ownSolution : subtree(kept, 'solution');

  const agentUser = agent.user ?? toml.agent.user;
  const verifierUser = verifier.user ?? toml.verifier.user;
  const agentNetwork = networkPolicy(agent) ?? networkPolicy(toml.agent);
  const verifierNetwork = networkPolicy(verifier) ?? networkPolicy(toml.verifier);
  const collect = [...toml.verifier.collect, ...(step?.verifier.collect ?? [])].map(hook);
  const artifacts = [...toml.artifacts, ...(step?.artifacts ?? [])].map(artifact);
  const healthcheck = step ? step.healthcheck : toml.environment.healthcheck;
  return {
    instruction: stripCanary(instruction),
    agentTimeoutSec: agent.timeout_sec ?? toml.agent.timeout_sec ?? Infinity,
    verifierTimeoutSec: verifier.timeout_sec,
    verifierEnv: { ...toml.verifier.env, ...verifier.env },
    solutionEnv: toml.solution.env,
    ...(agentUser === undefined ? {} : { agentUser }),
    ...(verifierUser === undefined ? {} : { verifierUser }),
    ...(agentNetwork ? { agentNetwork } : {}),
    ...(verifierNetwork ? { verifierNetwork } : {}),
    tests,
    ...(solution.size > 0 ? { solution } : {}),
    ...declaredMode(modeOf(verifier) ?? modeOf(toml.verifier)),
    ...(separate?.own ? { verifierEnvironment: separate.own.spec, verifierWorkdir: separate.own.workdir } : {}),
    ...(collect.length > 0 ? { collect } : {}),
    ...(artifacts.length > 0 ? { artifacts } : {}),
    ...(healthcheck ? { healthcheck: healthcheckOf(healthcheck) } : {}),
  };
}

/** @throws TaskError */
export function readSteps(source: TaskSource): TaskStep[] {
  return (source.toml.steps ?? []).map((step) => ({
    name: step.name,
    ...readPhase(source, step),
    workdirFiles: subtree(source.files, `steps/${step.name}/workdir`),
    ...(step.min_reward === undefined ? {} : { minReward: step.min_reward }),
  }));
}

function declaredMode(mode: 'shared' | 'separate' | undefined): Pick<TaskPhase, 'verifierMode'> {
  return mode === undefined ? {} : { verifierMode: mode };
}

function modeOf({ environment_mode: mode, environment }: VerifierTable): 'shared' | 'separate' | undefined {
  return mode ?? (environment ? 'separate' : undefined);
}

interface SeparateVerifier {
  /** Absent where it is the task's own environment again. */
  readonly own?: { readonly spec: EnvironmentSpec; readonly workdir: string };
  /** The image brings the tests, nothing is uploaded. */
  readonly bundled: boolean;
}

/**
 * Where a separate verifier runs, in Harbor's order: an image that the step's or the task's `[verifier.environment]` names, or the
 * Dockerfile in their tests/, brings the tests with it; else it is the task's environment with the table's settings.
 */
function verifierEnvironment(source: TaskSource, step: StepTable | undefined): SeparateVerifier | undefined {
  const { toml, directory, files, tomlFile, logger } = source;
  if (((step && modeOf(step.verifier)) ?? modeOf(toml.verifier)) !== 'separate') return undefined;
  const table = step?.verifier.environment ?? toml.verifier.environment;
  const candidates = [
    ...(step ? [{ own: step.verifier.environment, path: `steps/${step.name}/tests` }] : []),
    { own: toml.verifier.environment, path: 'tests' },
  ];
  const own = (path: string, dockerImage: string | undefined, bundled: boolean): SeparateVerifier => ({
    own: environmentSpec({
      table: table ?? toml.environment,
      files: bundled && dockerImage !== undefined ? (new Map() as FileTree) : subtree(files, path),
      directory: join(directory, path),
      dockerImage,
      tomlFile,
      logger,
    }),
    bundled,
  });
  for (const { own: declared, path } of candidates) {
    if (declared?.docker_image) return own(path, declared.docker_image, true);
    if (files.has(`${path}/Dockerfile`) || files.has(`${path}/docker-compose.yaml`)) return own(path, undefined, true);
  }
  return table ? own('environment', toml.environment.docker_image, false) : { bundled: false };
}

function hook({ command, timeout_sec: timeoutSec, user }: VerifierTable['collect'][number]): CollectHook {
  return { command, timeoutSec, ...(user === undefined ? {} : { user }) };
}

function artifact({ source, destination, exclude }: ArtifactTable): ArtifactSpec {
  return { source, ...(destination ? { destination } : {}), exclude };
}

export function healthcheckOf(table: HealthcheckTable): Healthcheck {
  return {
    command: table.command,
    intervalSec: table.interval_sec,
    timeoutSec: table.timeout_sec,
    startPeriodSec: table.start_period_sec,
    startIntervalSec: table.start_interval_sec,
    retries: table.retries,
  };
}
