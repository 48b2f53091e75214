/** What a dataset lists, before its globs choose and anything is loaded. */
import { readFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { parseToml } from './task-toml.ts';

export interface DatasetItem {
  readonly id: string;
  readonly name: string;
  /** Where it lies; cloned on demand. Throws TaskError where it is nowhere. */
  readonly locate: () => Promise<string>;
  /** `sha256:<hex>` that its files must have. */
  readonly digest?: string;
}
export interface DatasetListing {
  readonly name: string;
  readonly version?: string;
  readonly items: readonly DatasetItem[];
}

/** A task in a directory on this machine. */
export function localItem(directory: string): DatasetItem {
  const id = basename(resolve(directory));
  return { id, name: nameOf(directory) ?? id, locate: () => Promise.resolve(directory) };
}

/** `[task].name` without looking at anything else of the task, which may be broken. */
export function nameOf(directory: string): string | undefined {
  try {
    const file = join(directory, 'task.toml');
    const { task } = parseToml(readFileSync(file, 'utf8'), file);
    const name = typeof task === 'object' ? (task as { name?: unknown }).name : undefined;
    return typeof name === 'string' ? name : undefined;
  } catch {
    return undefined; // loading it says what is wrong
  }
}
