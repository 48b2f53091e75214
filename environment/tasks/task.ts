/**
 * Loads tasks from directories in Harbor's task format: task.toml, instruction.md, environment/, tests/, solution/.
 * Unknown keys are reported through the logger and ignored, as Harbor does; wrong values and features that neither
 * sandbox has are a TaskError that names file, key, value and what was expected.
 */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { parse } from 'smol-toml';
import { parseDockerfile } from './dockerfile.ts';
import { TaskError } from '../errors.ts';
import { readTaskToml } from './task-toml.ts';
import type { FileTree, Task } from '../types.ts';

export interface TaskLogger {
  warn(message: string): void;
}

/** The environment of a task without a WORKDIR. */
const defaultWorkdir = '/app';

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

function load(directory: string, logger: TaskLogger | undefined): Task {
  const files = readTree(directory);
  const text = (path: string): string => {
    const file = files.get(path);
    if (!file) throw new TaskError(`${join(directory, path)}: missing; expected in every task directory`);
    return Buffer.from(file.data).toString('utf8');
  };
  const tomlPath = join(directory, 'task.toml');
  let parsed: Record<string, unknown>;
  try {
    parsed = parse(text('task.toml'));
  } catch (error) {
    if (error instanceof TaskError) throw error;
    throw new TaskError(`${tomlPath}: not valid TOML: ${(error as Error).message.split('\n')[0]}`);
  }
  const id = basename(directory);
  const toml = readTaskToml(parsed, id, tomlPath, logger);
  const context = subtree(files, 'environment/');
  for (const name of ['docker-compose.yaml', 'docker-compose.yml']) {
    if (context.has(name))
      throw new TaskError(`${join(directory, 'environment', name)}: compose environments are not supported; expected a Dockerfile`);
  }
  const dockerfile = toml.dockerImage
    ? { image: toml.dockerImage, env: {}, workdir: undefined, files: new Map() as FileTree, run: [] }
    : parseDockerfile(text('environment/Dockerfile'), context, join(directory, 'environment/Dockerfile'));
  const tests = subtree(files, 'tests/');
  if (!tests.has('test.sh')) throw new TaskError(`${join(directory, 'tests/test.sh')}: missing; expected the verifier's script`);
  const solution = subtree(files, 'solution/');
  const workdir = toml.workdir ?? dockerfile.workdir ?? defaultWorkdir;
  if (!workdir.startsWith('/') || workdir === '/')
    throw new TaskError(`${tomlPath}: workdir ${workdir}; expected an absolute path other than /`);
  return {
    id,
    dir: directory,
    instruction: stripCanary(text('instruction.md')),
    family: toml.family,
    tier: toml.tier,
    workdir,
    agentTimeoutSec: toml.agentTimeoutSec,
    verifierTimeoutSec: toml.verifierTimeoutSec,
    verifierEnv: toml.verifierEnv,
    solutionEnv: toml.solutionEnv,
    environment: {
      image: dockerfile.image,
      env: { ...dockerfile.env, ...toml.env },
      files: dockerfile.files,
      run: dockerfile.run,
      simple: true,
      buildTimeoutSec: 600,
      network: { mode: 'none' },
      memoryMb: toml.memoryMb,
      pidsLimit: 256,
      needs: toml.needs,
    },
    tests,
    ...(solution.size > 0 ? { solution } : {}),
    checksum: checksum(files),
  };
}

/** All regular files below `root`, sorted by path. Only the executable bit of the mode is kept: git keeps no more. */
function readTree(root: string): FileTree {
  const files: FileTree = new Map();
  const walk = (prefix: string): void => {
    for (const entry of readdirSync(join(root, prefix), { withFileTypes: true })) {
      const path = prefix === '' ? entry.name : `${prefix}/${entry.name}`;
      const full = join(root, path);
      if (entry.isDirectory()) walk(path);
      else if (entry.isFile()) files.set(path, { data: readFileSync(full), mode: statSync(full).mode & 0o100 ? 0o755 : 0o644 });
      else throw new TaskError(`${full}: neither a file nor a directory; expected no links in a task directory`);
    }
  };
  try {
    walk('');
  } catch (error) {
    if (error instanceof TaskError) throw error;
    throw new TaskError(`${root}: cannot be read as a task directory: ${(error as Error).message}`);
  }
  return new Map([...files].sort(([a], [b]) => (a < b ? -1 : 1)));
}

function subtree(files: FileTree, prefix: string): FileTree {
  const result: FileTree = new Map();
  for (const [path, entry] of files) if (path.startsWith(prefix)) result.set(path.slice(prefix.length), entry);
  return result;
}

function checksum(files: FileTree): string {
  const hash = createHash('sha256');
  for (const [path, entry] of files) hash.update(path).update('\0').update(entry.data);
  return hash.digest('hex');
}

/** Harbor: leading canary lines (`<!-- …canary… -->`, `# …canary…`) and the blank lines after them are not shown to the agent. */
function stripCanary(text: string): string {
  const lines = text.split('\n');
  let start = 0;
  while (start < lines.length && /^\s*(<!--.*canary.*-->|#.*canary.*)\s*$/i.test(lines[start] ?? '')) start++;
  if (start === 0) return text;
  while (start < lines.length && (lines[start] ?? '').trim() === '') start++;
  return lines.slice(start).join('\n');
}

function taskDirectories(directory: string): string[] {
  let entries;
  try {
    entries = readdirSync(directory, { withFileTypes: true });
  } catch (error) {
    throw new TaskError(`${directory}: cannot be read as a suite: ${(error as Error).message}`);
  }
  if (entries.some((entry) => entry.name === 'task.toml')) return [directory];
  const names = entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  return names.sort().flatMap((name) => taskDirectories(join(directory, name)));
}
