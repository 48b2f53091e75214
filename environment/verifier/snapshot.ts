/**
 * What an episode leaves behind for the verifier: the regular files of the workdir, and which directories are empty.
 * Links, owners and times are not kept. Everything else of the sandbox (processes, planted files in /tests or
 * /logs) dies with it, which is why forging a reward there has no effect.
 *
 * Size limit: snapshots travel through the artifact store, so they hold 1 MiB beyond what the task itself put into the workdir, where
 * that is known, else 16 MiB, or what the caller allows. When an agent leaves more, its largest files are dropped (ties: last path first) and named in `dropped`.
 * The verifier then does not find them: the episode is judged, and it is the agent's fault.
 */
import { SandboxDiedError } from '../errors.ts';
import type { FileTree, Sandbox, Task, WorkspaceSnapshot } from '../types.ts';

const defaultExtraBytes = 1024 * 1024;
/** Of environments that only a build or an image knows: what they put into the workdir counts too. */
const builtExtraBytes = 16 * 1024 * 1024;
/** For trials, whose snapshots stay in memory; one download holds at most twice as much. */
export const trialExtraBytes = 32 * 1024 * 1024;
/** Time to list the directories. */
const listTimeoutSec = 30;

/** @param extraBytes how much the workdir may hold beyond the task's own files */
export async function takeSnapshot(
  sandbox: Sandbox,
  task: Task,
  episodeId: string,
  signal?: AbortSignal,
  extraBytes: number = task.environment.simple ? defaultExtraBytes : builtExtraBytes,
): Promise<WorkspaceSnapshot> {
  const prefix = `${task.workdir.slice(1)}/`;
  let limit = extraBytes;
  for (const [path, entry] of task.environment.files) if (path.startsWith(prefix)) limit += entry.data.length;
  const dropped: string[] = [];
  const files = await sandbox.download(task.workdir, { maxFileBytes: limit, onSkipped: (path) => dropped.push(path) });
  const { kept, left } = fit(files, limit);
  dropped.push(...left);
  const emptyDirectories = await listEmptyDirectories(sandbox, files, dropped, signal);
  return {
    episodeId,
    files: Object.fromEntries(
      [...kept].map(([path, entry]) => [path, { data: Buffer.from(entry.data).toString('base64'), mode: entry.mode }]),
    ),
    ...(emptyDirectories.length > 0 ? { emptyDirectories } : {}),
    ...(dropped.length > 0 ? { dropped: dropped.sort() } : {}),
  };
}

/** The snapshot's files as a tree relative to the workdir. */
export function snapshotTree(snapshot: WorkspaceSnapshot): FileTree {
  return new Map(Object.entries(snapshot.files).map(([path, file]) => [path, { data: Buffer.from(file.data, 'base64'), mode: file.mode }]));
}

function fit(files: FileTree, limit: number): { kept: FileTree; left: string[] } {
  const bySize = [...files].sort(([a, x], [b, y]) => x.data.length - y.data.length || (a < b ? -1 : 1));
  let total = 0;
  const kept = new Set<string>();
  for (const [path, entry] of bySize) {
    total += entry.data.length;
    if (total > limit) break;
    kept.add(path);
  }
  const paths = [...files.keys()];
  return { kept: new Map([...files].filter(([path]) => kept.has(path))), left: paths.filter((path) => !kept.has(path)) };
}

async function listEmptyDirectories(
  sandbox: Sandbox,
  files: FileTree,
  dropped: readonly string[],
  signal?: AbortSignal,
): Promise<string[]> {
  const result = await sandbox.exec('find . -type d', { timeoutSec: listTimeoutSec, ...(signal ? { signal } : {}) }).catch((error) => {
    // Of a sandbox that its agent killed the files are left, and nothing that could list directories.
    if (error instanceof SandboxDiedError) return { stdout: '' };
    throw error;
  });
  const directories = result.stdout
    .split('\n')
    .filter((line) => line.startsWith('./'))
    .map((line) => line.slice(2));
  const holdsSomething = new Set<string>();
  for (const path of [...files.keys(), ...dropped, ...directories]) {
    const slash = path.lastIndexOf('/');
    if (slash > 0) holdsSomething.add(path.slice(0, slash));
  }
  return directories.filter((directory) => !holdsSomething.has(directory)).sort();
}
