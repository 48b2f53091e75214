/**
 * The artifacts that a task declares: collected from the agent's sandbox in Harbor's layout, and put back at their places in a
 * separate verifier's. What is missing or does not fit is left out, as in Harbor; nothing here fails an episode.
 *
 * Layout: an entry with a destination lies there; the others mirror their source (`/var/log/x` → `var/log/x`). /logs/artifacts is
 * collected always, as `logs/artifacts`. Where two entries overlap the first one keeps its place. Symbolic links are not kept.
 */
import { posix } from 'node:path';
import type { ArtifactSpec, FileTree, Sandbox, Task } from '../types.ts';

export interface ArtifactOptions {
  /** Bytes of all artifacts together (default 32 MiB); files beyond it are left out and reported. */
  readonly maxBytes?: number;
  /** Called with the path in the sandbox of every file that was left out. */
  readonly onSkipped?: (path: string) => void;
  readonly signal?: AbortSignal;
}

const convention: ArtifactSpec = { source: '/logs/artifacts', exclude: [] };
const defaultMaxBytes = 32 * 1024 * 1024;

/** The entries that are collected, in order. */
export function artifactEntries(task: Task): readonly ArtifactSpec[] {
  const declared = task.artifacts ?? [];
  return declared.some(({ source }) => source.replace(/\/+$/, '') === convention.source) ? declared : [convention, ...declared];
}

/** Runs the task's collect hooks, in order. As in Harbor one that fails is passed over. @throws InfrastructureError when the sandbox does */
export async function runCollectHooks(sandbox: Sandbox, task: Task, signal?: AbortSignal): Promise<void> {
  for (const { command, timeoutSec, user } of task.collect ?? [])
    await sandbox.exec(command, { timeoutSec, ...(user === undefined ? {} : { user }), ...(signal ? { signal } : {}) });
}

/**
 * @returns the content of the episode's artifacts folder, without its manifest
 * @throws InfrastructureError when the sandbox fails
 */
export async function takeArtifacts(sandbox: Sandbox, task: Task, options: ArtifactOptions = {}): Promise<FileTree> {
  const { maxBytes = defaultMaxBytes, onSkipped = () => undefined } = options;
  const artifacts: FileTree = new Map();
  const claimed: string[] = [];
  let left = maxBytes;
  for (const entry of artifactEntries(task)) {
    const place = hostPath(entry);
    if (claimed.some((other) => overlap(place, other))) continue;
    claimed.push(place);
    const source = posix.resolve(task.workdir, entry.source);
    const excluded = matcher(entry.exclude);
    const skip = (path: string): void => {
      if (!excluded(path)) onSkipped(posix.join(source, path));
    };
    options.signal?.throwIfAborted();
    for (const [path, file] of await sandbox.download(source, { maxFileBytes: left, onSkipped: skip })) {
      if (path !== '' && excluded(path)) continue;
      left -= file.data.length;
      if (left >= 0) artifacts.set(posix.join(place, path), file);
      else {
        left += file.data.length;
        skip(path);
      }
    }
  }
  return artifacts;
}

/** Puts collected artifacts where they came from. */
export async function placeArtifacts(sandbox: Sandbox, task: Task, artifacts: FileTree): Promise<void> {
  for (const entry of artifactEntries(task)) {
    const place = hostPath(entry);
    const files: FileTree = new Map();
    const source = posix.resolve(task.workdir, entry.source);
    for (const [path, file] of artifacts) {
      if (path === place) files.set(source.slice(1), file);
      else if (path.startsWith(`${place}/`)) files.set(posix.join(source, path.slice(place.length)).slice(1), file);
    }
    // No bits that change who runs a file.
    await sandbox.upload(new Map([...files].map(([path, { data, mode }]) => [path, { data, mode: mode & 0o777 }])), '/');
  }
}

function hostPath({ source, destination }: ArtifactSpec): string {
  const parts = (destination ?? source).split('/').filter((part) => !['', '.', '..'].includes(part));
  return parts.join('/');
}

function overlap(a: string, b: string): boolean {
  return a === b || a.startsWith(`${b}/`) || b.startsWith(`${a}/`);
}

/** As `tar --exclude`: a pattern matches a path, or a part of it after a slash; `*` matches slashes too; what is below a match is excluded. */
function matcher(patterns: readonly string[]): (path: string) => boolean {
  const expressions = patterns.map((pattern) => {
    const glob = pattern.replace(/^\.\//, '').replace(/\/+$/, '');
    const source = glob.replace(/\[!?[^\]]+\]|[\s\S]/g, (part) => {
      if (part === '*') return '.*';
      if (part === '?') return '.';
      if (part.startsWith('[') && part.length > 1) return part.replace('[!', '[^').replaceAll('\\', '\\\\');
      return part.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
    });
    return new RegExp(`(^|/)${source}(/|$)`, 's');
  });
  return (path) => expressions.some((expression) => expression.test(path));
}
