/** The tasks of a dataset, as a job, the gate and a training run list them: each that loads, and why the others do not. */
import path from 'node:path';
import { TaskError } from '../environment/errors.ts';
import { taskDirectories } from '../environment/tasks/task.ts';
import type { Task } from '../environment/types.ts';
import type { LoadedTasks } from './dependencies.ts';

export interface Globs {
  readonly include: readonly string[];
  readonly exclude: readonly string[];
}

/** @throws TaskError where there is no dataset at `place` */
export async function loadDataset(
  place: string,
  { include, exclude }: Globs,
  load: (directory: string) => Promise<Task>,
): Promise<LoadedTasks> {
  const tasks: Task[] = [];
  const failed: { task: string; reason: string }[] = [];
  const matches = (globs: readonly string[], name: string): boolean => globs.some((glob) => path.matchesGlob(name, glob));
  for (const directory of taskDirectories(place)) {
    const id = path.basename(directory);
    if ((include.length > 0 && !matches(include, id)) || matches(exclude, id)) continue;
    try {
      tasks.push(await load(directory));
    } catch (error) {
      if (!(error instanceof TaskError)) throw error;
      failed.push({ task: id, reason: error.message });
    }
  }
  return { name: path.basename(place), tasks, failed };
}
