/**
 * gitignore rules as Harbor applies them: `.harborignore` files in tests/ and solution/, which keep files out of the sandbox, and
 * `.gitignore` of a task directory, which keeps files out of its digest.
 */
import ignore from 'ignore';
import { textOf } from './task-files.ts';
import type { FileTree } from '../types.ts';

const FILE = '.harborignore';
const scope = /^(steps\/[^/]+\/)?(tests|solution)(\/|$)/;

/** Whether the last rule that matches `path` (a directory's ends in `/`) excludes it; undefined where none matches. */
export type Rules = (path: string) => boolean | undefined;

/** Each line for itself, as the last one that matches decides; git's own rule about excluded parents is the caller's. */
export function parseRules(text: string): Rules {
  const lines = text.split(/\r?\n/).filter((line) => line.trim() !== '' && !line.startsWith('#'));
  const rules = lines.map((line) => ({ excludes: !line.startsWith('!'), pattern: ignore.default().add(line.replace(/^!/, '')) })).reverse();
  return (path) => rules.find(({ pattern }) => pattern.ignores(path))?.excludes;
}

/** The files without those that a `.harborignore` excludes, and without these files themselves. */
export function withoutIgnored(files: FileTree): FileTree {
  const rules = new Map<string, Rules>();
  for (const path of files.keys()) {
    const directory = path.slice(0, -FILE.length - 1);
    if (path.endsWith(`/${FILE}`) && scope.test(directory)) rules.set(directory, parseRules(textOf(files, path) ?? ''));
  }
  const excluded = (path: string): boolean => {
    if (path.endsWith(`/${FILE}`) || path === FILE) return true;
    const parts = path.split('/');
    // From the top down: what lies in an excluded directory cannot be taken in again.
    return parts.some((_, depth) => {
      const candidate = parts.slice(0, depth + 1).join('/') + (depth + 1 < parts.length ? '/' : '');
      let verdict = false;
      for (let above = 1; above <= depth; above++) {
        const directory = parts.slice(0, above).join('/');
        verdict = rules.get(directory)?.(candidate.slice(directory.length + 1)) ?? verdict;
      }
      return verdict;
    });
  };
  return rules.size === 0 && ![...files.keys()].some((path) => path.endsWith(FILE))
    ? files
    : new Map([...files].filter(([path]) => !excluded(path)));
}
