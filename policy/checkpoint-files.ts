/** Directories that are either complete or not there: what checkpoints are made of. */
import { closeSync, existsSync, fsyncSync, mkdirSync, openSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { storageError } from '../environment/errors.ts';

/**
 * Fills a temporary directory beside `target`, flushes every file to disk, and renames it to `target`. After a crash there is either
 * the whole directory or none under that name. Throws if `target` exists: a checkpoint is never overwritten.
 */
export function writeDirectoryAtomically(target: string, fill: (temporary: string) => void): void {
  if (existsSync(target)) throw new Error(`${target}: exists, expected a new directory`);
  const temporary = `${target}.partial-${process.pid}`;
  rmSync(temporary, { recursive: true, force: true });
  mkdirSync(temporary, { recursive: true });
  try {
    fill(temporary);
    for (const name of readdirSync(temporary)) flush(join(temporary, name));
    flush(temporary);
    renameSync(temporary, target);
    flush(dirname(target));
  } catch (error) {
    rmSync(temporary, { recursive: true, force: true });
    throw storageError(error, target) ?? error;
  }
}

function flush(path: string): void {
  const file = openSync(path, 'r');
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}
