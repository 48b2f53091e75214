/** The files of a task directory, read into memory, and what is computed from them alone. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { join, sep } from 'node:path';
import { TaskError } from '../errors.ts';
import type { FileTree } from '../types.ts';

/**
 * All files below `root`, sorted by path. Only the executable bit of the mode is kept: git keeps no more. Links are followed where they
 * stay within `root`.
 * @throws TaskError
 */
export function readTree(root: string): FileTree {
  const files: FileTree = new Map();
  // `above`: the real paths from the root to the directory itself.
  const walk = (prefix: string, above: readonly string[]): void => {
    for (const entry of readdirSync(join(root, prefix), { withFileTypes: true })) {
      const path = prefix === '' ? entry.name : `${prefix}/${entry.name}`;
      const full = join(root, path);
      const real = entry.isSymbolicLink() ? linkTarget(full, above[0] ?? root) : join(above.at(-1) ?? root, entry.name);
      const kind = entry.isSymbolicLink() ? statSync(real) : entry;
      if (kind.isFile()) files.set(path, { data: readFileSync(real), mode: statSync(real).mode & 0o100 ? 0o755 : 0o644 });
      else if (!kind.isDirectory()) throw new TaskError(`${full}: neither a file nor a directory; expected no devices, sockets and pipes`);
      else if (above.includes(real)) throw new TaskError(`${full}: links to a directory that it lies in`);
      else walk(path, [...above, real]);
    }
  };
  try {
    walk('', [realpathSync(root)]);
  } catch (error) {
    if (error instanceof TaskError) throw error;
    throw new TaskError(`${root}: cannot be read as a task directory: ${(error as Error).message}`);
  }
  return sorted(files);
}

export function sorted(files: FileTree): FileTree {
  return new Map([...files].sort(([a], [b]) => (a < b ? -1 : 1)));
}

function linkTarget(link: string, root: string): string {
  let real;
  try {
    real = realpathSync(link);
  } catch {
    throw new TaskError(`${link}: a link to nothing; expected its target in the task directory`);
  }
  if (real === root || real.startsWith(root + sep)) return real;
  throw new TaskError(`${link}: links to ${real}; expected links that stay within the task directory`);
}

/** What lies below the directory, by path relative to it. */
export function subtree(files: FileTree, directory: string): FileTree {
  const result: FileTree = new Map();
  const prefix = `${directory}/`;
  for (const [path, entry] of files) if (path.startsWith(prefix)) result.set(path.slice(prefix.length), entry);
  return result;
}

/** Hex SHA-256 over sorted path, NUL, bytes: a task's checksum. */
export function checksum(files: FileTree): string {
  const hash = createHash('sha256');
  for (const [path, entry] of files) hash.update(path).update('\0').update(entry.data);
  return hash.digest('hex');
}

/** Hex SHA-256 over sorted path, NUL, mode, bytes: the key of what is built from the files. */
export function contextHash(files: FileTree): string {
  const hash = createHash('sha256');
  for (const [path, entry] of files) hash.update(`${path}\0${entry.mode.toString(8)} ${entry.data.length}\n`).update(entry.data);
  return hash.digest('hex');
}

export function textOf(files: FileTree, path: string): string | undefined {
  const file = files.get(path);
  return file && Buffer.from(file.data).toString('utf8');
}

/** Harbor: leading canary lines (`<!-- …canary… -->`, `# …canary…`) and the blank lines after them are not shown to the agent. */
export function stripCanary(text: string): string {
  const lines = text.split('\n');
  let start = 0;
  while (start < lines.length && /^(<!--.*canary.*-->|#.*canary.*)$/i.test((lines[start] ?? '').trim())) start++;
  while (start < lines.length && (lines[start] ?? '').trim() === '') start++;
  return lines.slice(start).join('\n');
}
