/**
 * Loads tasks from directories in Harbor's task format: task.toml, instruction.md, environment/, tests/, solution/, steps/.
 * Unknown keys are reported through the logger and ignored, as Harbor does; wrong values and what cannot be run here are
 * a TaskError that names file, key, value and what was expected.
 */
import { readdirSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { TaskError } from '../errors.ts';
import { environmentSpec } from './environment-spec.ts';
import { withoutIgnored } from './ignore-rules.ts';
import { healthcheckOf, readPhase, readSteps, type TaskSource } from './phases.ts';
import { checksum, readTree, subtree, textOf } from './task-files.ts';
import { readTaskToml, type TaskLogger } from './task-toml.ts';
import type { Task, TaskPhase, TaskStep, Tier } from '../types.ts';

export type { TaskLogger } from './task-toml.ts';

const tiers: readonly string[] = ['easy', 'medium', 'hard', 'extreme'] satisfies Tier[];

/**
 * Loads one task directory. Reads synchronously: a task is a handful of small files, and hundreds of them load several
 * times faster that way than through the thread pool.
 * @throws TaskError
 */
export function loadTask(directory: string, logger?: TaskLogger): Promise<Task> {
  // A promise, so that callers need not change when tasks come from elsewhere than the disk.
  return new Promise((resolve) => resolve(load(directory, logger)));
}

/** Loads every task directory (one that holds a task.toml) at any depth below `directory`, ordered by path. */
export async function loadSuite(directory: string, logger?: TaskLogger): Promise<Task[]> {
  const tasks: Task[] = [];
  const seen = new Map<string, string>();
  for (const path of taskDirectories(directory)) {
    const task = await loadTask(path, logger);
    const other = seen.get(task.id);
    if (other !== undefined)
      throw new TaskError(`${path}: task id ${task.id} is also used by ${other}; expected unique directory names within a suite`);
    seen.set(task.id, path);
    tasks.push(task);
  }
  if (tasks.length === 0) throw new TaskError(`${directory}: no task in it; expected directories with a task.toml`);
  return tasks;
}

/** Loads each directory once. Tasks do not change while a worker lives, and every episode and verification asks for one. */
export class TaskCache {
  readonly #tasks = new Map<string, Promise<Task>>();
  readonly #logger: TaskLogger | undefined;

  constructor(logger?: TaskLogger) {
    this.#logger = logger;
  }

  load(directory: string): Promise<Task> {
    const cached = this.#tasks.get(directory);
    if (cached) return cached;
    const loading = loadTask(directory, this.#logger);
    this.#tasks.set(directory, loading);
    // A failed load is not kept: the person may repair the task while the worker runs.
    loading.catch(() => this.#tasks.delete(directory));
    return loading;
  }
}

/**
 * One step as a task of its own: the step's instruction, agent, verifier, tests and solution, in the task's environment. Its health
 * check is the step's alone; the task's own is for the environment's start.
 */
export function stepTask(task: Task, step: TaskStep): Task {
  const { id, name, dir, family, tier, keepProcesses, workdir, environment, checksum } = task;
  const kept = keepProcesses ? { keepProcesses } : {};
  return { id, ...(name === undefined ? {} : { name }), dir, family, tier, ...kept, workdir, environment, checksum, ...phaseOf(step) };
}

function phaseOf({ name: _name, workdirFiles: _files, minReward: _minimum, ...phase }: TaskStep): TaskPhase {
  return phase;
}

/** Directories with a task.toml at or below `directory`, ordered by path. @throws TaskError */
export function taskDirectories(directory: string): string[] {
  let entries;
  try {
    entries = readdirSync(directory, { withFileTypes: true });
  } catch (error) {
    throw new TaskError(`${directory}: cannot be read as a suite: ${(error as Error).message}`);
  }
  if (entries.some((entry) => entry.name === 'task.toml')) return [directory];
  const names = entries.filter((entry) => entry.isDirectory() && !entry.name.startsWith('.')).map((entry) => entry.name);
  return names.sort().flatMap((name) => taskDirectories(join(directory, name)));
}

function load(directory: string, logger: TaskLogger | undefined): Task {
  const files = readTree(directory);
  const tomlFile = join(directory, 'task.toml');
  const text = textOf(files, 'task.toml');
  if (text === undefined) throw new TaskError(`${tomlFile}: missing; expected in every task directory`);
  const toml = readTaskToml(text, tomlFile, logger);
  const source: TaskSource = { directory, tomlFile, toml, files, kept: withoutIgnored(files), logger };
  const { spec, workdir } = environmentSpec({
    table: toml.environment,
    files: subtree(files, 'environment'),
    directory: join(directory, 'environment'),
    dockerImage: toml.environment.docker_image,
    tomlFile,
    logger,
  });
  const steps = readSteps(source);
  const id = basename(resolve(directory));
  const task = {
    id,
    ...(toml.task ? { name: toml.task.name } : {}),
    dir: directory,
    ...classify(toml.metadata, id, tomlFile, logger),
    workdir,
    environment: spec,
    checksum: checksum(files),
  };
  const [first] = steps;
  if (!first) return { ...task, ...readPhase(source) };
  const { healthcheck: _ofStep, ...phase } = phaseOf(first);
  const { healthcheck } = toml.environment;
  return {
    ...task,
    ...phase,
    ...(healthcheck ? { healthcheck: healthcheckOf(healthcheck) } : {}),
    steps,
    rewardStrategy: toml.multi_step_reward_strategy ?? 'mean',
  };
}

/** `[metadata]` is free in Harbor: what is not of this project's making is another thing of the same name. */
function classify(
  { family, tier, keep_processes: keep }: Record<string, unknown>,
  id: string,
  tomlFile: string,
  logger: TaskLogger | undefined,
): Pick<Task, 'family' | 'tier' | 'keepProcesses'> {
  const known = typeof tier === 'string' && tiers.includes(tier);
  if (tier !== undefined && !known)
    logger?.warn(`${tomlFile}: metadata.tier = ${JSON.stringify(tier)} is ignored; expected ${tiers.join(', ')}`);
  return {
    family: typeof family === 'string' && family !== '' ? family : id,
    tier: known ? (tier as Tier) : 'medium',
    ...(keep === true ? { keepProcesses: keep } : {}),
  };
}
