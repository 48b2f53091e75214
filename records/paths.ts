/**
 * Where things lie on this machine. Everything a run writes is below one data folder, so that a run can be kept, moved or
 * deleted as a whole.
 */
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** Root of the repository, found from this file and not from the working directory. */
export const repoRoot: string = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');

/** The data folder, absolute: environment variable `TERMINAL_RSI_DATA` (relative to the working directory), else `data/` in the repository. */
export function dataDirectory(): string {
  const configured = process.env['TERMINAL_RSI_DATA'];
  return configured ? path.resolve(configured) : path.join(repoRoot, 'data');
}
