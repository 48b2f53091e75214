/** `registry.json`: a list of datasets by name and version. */
import { readFileSync } from 'node:fs';
import { basename, dirname, join, posix, resolve } from 'node:path';
import { z } from 'zod';
import { TaskError, UserError } from '../errors.ts';
import { nameOf, type DatasetItem, type DatasetListing } from './dataset-items.ts';
import { checkOut } from './git-tasks.ts';

const registry = z.array(
  z.object({
    name: z.string(),
    version: z.string(),
    tasks: z.array(
      z.object({ name: z.string(), git_url: z.string().nullish(), git_commit_id: z.string().nullish(), path: z.string().min(1) }),
    ),
  }),
);
type Registered = z.infer<typeof registry>[number];
type RegisteredTask = Registered['tasks'][number];

/**
 * @param selection `name` or `name@version`; not needed where the file holds one dataset
 * @param cache folder for clones
 * @throws UserError where the selection names none of the datasets, TaskError where the file is wrong
 */
export function readRegistry(file: string, selection: string | undefined, cache: string): DatasetListing {
  let json: unknown;
  try {
    json = JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw new TaskError(`${file}: not valid JSON: ${(error as Error).message}`);
  }
  const parsed = registry.safeParse(json);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new TaskError(`${file}: ${issue?.path.join('.')}: ${issue?.message}`);
  }
  const { name, version, tasks } = choose(parsed.data, file, selection);
  const repositories = new Map<string, { readonly paths: string[]; checkout?: Promise<string> }>();
  const items = tasks.map((task): DatasetItem => {
    if (!task.git_url) return localTask(task, file);
    const { git_url: url, git_commit_id: commit } = task;
    const path = pathInRepository(task, file);
    const key = `${url}\0${commit ?? ''}`;
    const repository = repositories.get(key) ?? { paths: [] };
    repositories.set(key, repository);
    repository.paths.push(path);
    // Whichever task is asked for first brings all of its repository's.
    const locate = async (): Promise<string> =>
      join(await (repository.checkout ??= checkOut({ url, commit: commit ?? undefined, paths: repository.paths, cache })), path);
    return { id: posix.basename(path), name: task.name, locate };
  });
  return { name, version, items };
}

function localTask(task: RegisteredTask, file: string): DatasetItem {
  const directory = resolve(dirname(file), task.path);
  return { id: basename(directory), name: nameOf(directory) ?? task.name, locate: () => Promise.resolve(directory) };
}

function pathInRepository({ name, path }: RegisteredTask, file: string): string {
  const normal = posix.normalize(path).replace(/\/$/, '');
  if (posix.isAbsolute(normal) || normal === '..' || normal.startsWith('../'))
    throw new TaskError(`${file}: task ${name}: path ${path}; expected a path within its repository`);
  return normal;
}

/** Of several versions `head`, else the highest, as Harbor chooses. */
function choose(datasets: readonly Registered[], file: string, selection: string | undefined): Registered {
  const all = datasets.map(({ name, version }) => `${name}@${version}`).join(', ');
  const [first] = datasets;
  if (!selection) {
    if (first && datasets.every(({ name }) => name === first.name)) return newest(datasets) ?? first;
    throw new UserError(`${file}: which dataset? Expected ${file}#NAME@VERSION with one of ${all}`);
  }
  const [name, version] = selection.split('@', 2);
  const named = datasets.filter((dataset) => dataset.name === name && (version === undefined || dataset.version === version));
  const found = newest(named);
  if (!found) throw new UserError(`${file}: has no dataset ${selection}; expected one of ${all}`);
  return found;
}

function newest(datasets: readonly Registered[]): Registered | undefined {
  const byVersion = [...datasets].sort((a, b) => b.version.localeCompare(a.version, 'en', { numeric: true }));
  return datasets.find(({ version }) => version === 'head') ?? byVersion[0];
}
