/**
 * The digest by which Harbor's packages name a version of a task: SHA-256 over `path NUL sha256(bytes) LF` of the published files,
 * in the order of their paths' UTF-8 bytes.
 */
import { createHash } from 'node:crypto';
import { lstatSync } from 'node:fs';
import { join } from 'node:path';
import { parseRules, withoutIgnored } from './ignore-rules.ts';
import { readTree, textOf } from './task-files.ts';

const single = new Set(['task.toml', 'instruction.md', 'README.md', 'trajectory.json']);
const published = /^(environment|tests|solution|steps)\//;
/** Where the task has no .gitignore. */
const defaultIgnores = '__pycache__/\n*.pyc\n.DS_Store\n*.swp\n*.swo\n*~\n';

/** @returns `sha256:<hex>` @throws TaskError where the directory cannot be read */
export function taskDigest(directory: string): string {
  const files = readTree(directory);
  const ignored = parseRules(textOf(files, '.gitignore') ?? defaultIgnores);
  const kept = [...withoutIgnored(files)]
    .filter(([path]) => (single.has(path) || published.test(path)) && ignored(path) !== true && !throughLink(directory, path))
    .sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  const outer = createHash('sha256');
  for (const [path, { data }] of kept) outer.update(`${path}\0${createHash('sha256').update(data).digest('hex')}\n`);
  return `sha256:${outer.digest('hex')}`;
}

/** Files behind a linked directory are no part of a package; a linked file is. */
function throughLink(directory: string, path: string): boolean {
  const parts = path.split('/').slice(0, -1);
  return parts.some((_, depth) => depth > 0 && lstatSync(join(directory, ...parts.slice(0, depth + 1))).isSymbolicLink());
}
