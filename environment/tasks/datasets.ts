/**
 * Datasets in Harbor's three forms: a folder of tasks, a `registry.json` of datasets whose tasks lie beside it or in git repositories, and a
 * `dataset.toml` that names tasks by their digest. A task that cannot be loaded is listed with its error and hides no other.
 */
import { existsSync, statSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { TaskError, UserError } from '../errors.ts';
import type { Task } from '../types.ts';
import { localItem, type DatasetItem, type DatasetListing } from './dataset-items.ts';
import { readManifest } from './dataset-manifest.ts';
import { readRegistry } from './dataset-registry.ts';
import { globMatcher } from './globs.ts';
import { taskDigest } from './task-digest.ts';
import type { TaskLogger } from './task-toml.ts';
import { loadTask, taskDirectories } from './task.ts';

/** One of `task` and `error` is there. */
export interface DatasetEntry {
  /** The directory's name; unique among the entries that have a task. */
  readonly id: string;
  /** `[task].name`, where there is one, else the id. */
  readonly name: string;
  /** '' where the task is not on this machine. */
  readonly dir: string;
  readonly task?: Task;
  readonly error?: TaskError;
}
export interface Dataset {
  readonly name: string;
  readonly version?: string;
  readonly tasks: readonly DatasetEntry[];
}

export interface DatasetOptions {
  /** Globs over id and name (globs.ts); none = all. */
  readonly include?: readonly string[];
  readonly exclude?: readonly string[];
  /** Tasks at most, after the globs. */
  readonly limit?: number;
  readonly logger?: TaskLogger;
  /** Folder for what is cloned from git. Default: .cache/datasets of this repository. */
  readonly cache?: string;
}

const defaultCache = join(import.meta.dirname, '../../.cache/datasets');

/**
 * @param path a folder (of tasks, of one task, or with a dataset.toml), a dataset.toml, or a registry file with the dataset's name and
 * version behind it: `registry.json#terminal-bench@2.0`
 * @throws UserError where there is no such dataset, or the globs leave nothing; TaskError where the dataset itself is wrong;
 * InfrastructureError where a repository cannot be reached
 */
export async function openDataset(path: string, options: DatasetOptions = {}): Promise<Dataset> {
  const { name, version, items } = await list(path, options.cache ?? defaultCache);
  const tasks: DatasetEntry[] = [];
  const taken = new Map<string, string>();
  for (const item of select(items, path, options)) {
    const entry = await load(item, options.logger);
    const other = entry.task && taken.get(entry.id);
    if (entry.task) taken.set(entry.id, entry.dir);
    const { id, dir } = entry;
    tasks.push(
      other === undefined
        ? entry
        : {
            id,
            name: entry.name,
            dir,
            error: new TaskError(`${dir}: task id ${id} is also used by ${other}; expected unique directory names`),
          },
    );
  }
  return { name, ...(version === undefined ? {} : { version }), tasks };
}

async function list(place: string, cache: string): Promise<DatasetListing> {
  const [, path = place, selection] = /^(.*\.json)(?:#(.*))?$/s.exec(place) ?? [];
  if (!existsSync(path)) throw new UserError(`${path}: no such dataset; expected a folder of tasks, a dataset.toml or a registry.json`);
  if (path.endsWith('.json')) return readRegistry(path, selection, cache);
  const isFolder = statSync(path).isDirectory();
  const manifest = isFolder ? join(path, 'dataset.toml') : path;
  if (!isFolder && basename(path) !== 'dataset.toml')
    throw new UserError(`${path}: expected a folder of tasks, a dataset.toml or a registry.json`);
  if (existsSync(manifest)) return readManifest(manifest);
  const directories = taskDirectories(path);
  if (directories.length === 0) throw new UserError(`${path}: no task in it; expected directories with a task.toml`);
  return { name: basename(resolve(path)), items: directories.map(localItem) };
}

function select(
  items: readonly DatasetItem[],
  path: string,
  { include = [], exclude = [], limit }: DatasetOptions,
): readonly DatasetItem[] {
  const matching = (globs: readonly string[]): ((item: DatasetItem) => boolean) => {
    const matchers = globs.map(globMatcher);
    return ({ id, name }) => matchers.some((matches) => matches(id) || matches(name));
  };
  const included = include.length === 0 ? items : items.filter(matching(include));
  const left = included.filter((item) => !matching(exclude)(item));
  if (left.length === 0 && items.length > 0) {
    const examples = items.slice(0, 5).map(({ name }) => name);
    const globs = [...include, ...exclude.map((glob) => `not ${glob}`)];
    throw new UserError(`${path}: none of its ${items.length} tasks matches ${globs.join(', ')}; it has ${examples.join(', ')}`);
  }
  return left.slice(0, limit);
}

async function load({ id, name, locate, digest }: DatasetItem, logger: TaskLogger | undefined): Promise<DatasetEntry> {
  let dir = '';
  try {
    dir = await locate();
    const task = await loadTask(dir, logger);
    const found = digest === undefined ? undefined : taskDigest(dir);
    if (found !== digest) throw new TaskError(`${dir}: its files have the digest ${found}; expected ${digest}, as the dataset says`);
    return { id, name: task.name ?? name, dir, task };
  } catch (error) {
    if (!(error instanceof TaskError)) throw error;
    return { id, name, dir, error };
  }
}
