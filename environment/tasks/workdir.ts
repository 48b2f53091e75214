/**
 * The workdir of a task whose image alone names it. Everything that is done to a sandbox goes by `Task.workdir`, so who starts one asks
 * first where it will be.
 */
import type { FileTree, SandboxProvider, Task } from '../types.ts';

/** The task as its sandbox will be. Throws as `SandboxProvider.start` does. */
export async function located(provider: SandboxProvider, task: Task, signal?: AbortSignal): Promise<Task> {
  if (task.environment.imageWorkdir !== true || !provider.locate) return task;
  return provider.locate(task, signal);
}

/** @param workdir what the image says; '' and / are no place to work in, and the task keeps its default */
export function withImageWorkdir(task: Task, workdir: string): Task {
  const { imageWorkdir: _known, ...environment } = task.environment;
  if (!/^\/./.test(workdir)) return { ...task, environment };
  const [from, to] = [`${task.workdir.slice(1)}/`, `${workdir.slice(1)}/`];
  // Files that were put into the default workdir move with it.
  const files: FileTree = new Map(
    [...environment.files].map(([path, file]) => [path.startsWith(from) ? to + path.slice(from.length) : path, file]),
  );
  return { ...task, workdir, environment: { ...environment, files } };
}
