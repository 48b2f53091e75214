/**
 * What an episode of training leaves for its verification in another sandbox and at another time: the workdir's files (snapshot.ts) and,
 * for a task that declares artifacts, those too, after its collect hooks. Tasks that declare neither have the snapshot alone.
 */
import type { FileTree, Sandbox, Task, WorkspaceSnapshot } from '../types.ts';
import { runCollectHooks, takeArtifacts } from './artifacts.ts';
import { takeSnapshot } from './snapshot.ts';

/** Snapshots of training travel through the artifact store. */
const MAX_ARTIFACT_BYTES = 4 * 1024 * 1024;

/** @param dead the agent killed the sandbox: its files are there, and nothing runs in it any more */
export async function takeTrainingSnapshot(
  sandbox: Sandbox,
  task: Task,
  episodeId: string,
  dead: boolean,
  signal?: AbortSignal,
): Promise<WorkspaceSnapshot> {
  if (!dead) await runCollectHooks(sandbox, task, signal);
  const snapshot = await takeSnapshot(sandbox, task, episodeId, signal);
  if (!task.artifacts || task.artifacts.length === 0) return snapshot;
  const artifacts = await takeArtifacts(sandbox, task, { maxBytes: MAX_ARTIFACT_BYTES, ...(signal ? { signal } : {}) });
  if (artifacts.size === 0) return snapshot;
  const encoded = [...artifacts].map(([path, { data, mode }]) => [path, { data: Buffer.from(data).toString('base64'), mode }] as const);
  return { ...snapshot, artifacts: Object.fromEntries(encoded) };
}

/** The artifacts in a snapshot; undefined where it has none. */
export function snapshotArtifacts({ artifacts }: WorkspaceSnapshot): FileTree | undefined {
  if (!artifacts) return undefined;
  return new Map(Object.entries(artifacts).map(([path, { data, mode }]) => [path, { data: Buffer.from(data, 'base64'), mode }]));
}
