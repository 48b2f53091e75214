/**
 * Writes all suites as Harbor task directories to suites/built (git-ignored). Deterministic: the same sources give the
 * same bytes, and digests.json (committed) holds their checksums, so that a change of a generator is seen.
 *
 *   node --import tsx suites/build.ts             build what is not up to date
 *   node --import tsx suites/build.ts --update    and rewrite digests.json
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { allTasks } from './splits.ts';
import type { SplitTask } from './splits.ts';
import { checksum, renderTask } from './render.ts';

const here = dirname(fileURLToPath(import.meta.url));
export const BUILT = join(here, 'built');
export const DIGESTS = join(here, 'digests.json');

export interface RenderedTask extends SplitTask {
  readonly files: ReadonlyMap<string, string>;
  readonly checksum: string;
}

let rendered: readonly RenderedTask[] | undefined;
/** All tasks with their files; in memory, computed once. */
export function renderedTasks(): readonly RenderedTask[] {
  rendered ??= allTasks().tasks.map((task) => {
    const files = renderTask(task);
    return { ...task, files, checksum: checksum(files) };
  });
  return rendered;
}

/** `<suite>/<id>` → checksum. */
export function digests(): Record<string, string> {
  return Object.fromEntries(renderedTasks().map((task) => [`${task.suite}/${task.id}`, task.checksum]));
}

/**
 * Builds suites/built unless its index names exactly these checksums. Written beside it and renamed, so that a reader
 * never sees half of it, and two builders at once do no harm.
 * @returns the number of tasks written; 0 if everything was up to date.
 */
export function buildSuites(directory = BUILT): number {
  const index = `${JSON.stringify({ schemaVersion: 1, tasks: digests() }, undefined, 1)}\n`;
  const indexFile = join(directory, 'index.json');
  const upToDate = (): boolean => existsSync(indexFile) && readFileSync(indexFile, 'utf8') === index;
  if (upToDate()) return 0;
  const tag = createHash('sha256').update(index).digest('hex').slice(0, 8);
  const fresh = `${directory}.${process.pid}-${tag}`;
  for (const task of renderedTasks()) {
    for (const [path, text] of task.files) {
      const file = join(fresh, task.suite, task.id, path);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, text, { mode: path.endsWith('.sh') && !path.startsWith('environment/') ? 0o755 : 0o644 });
    }
  }
  writeFileSync(join(fresh, 'index.json'), index);
  const old = `${fresh}-old`;
  try {
    if (existsSync(directory)) renameSync(directory, old);
    renameSync(fresh, directory);
  } catch (error) {
    // Another process built the same between the two renames: its result is as good as ours.
    if (!upToDate()) throw error;
  } finally {
    rmSync(fresh, { recursive: true, force: true });
    rmSync(old, { recursive: true, force: true });
  }
  return renderedTasks().length;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const started = performance.now();
  const written = buildSuites();
  if (process.argv.includes('--update')) writeFileSync(DIGESTS, `${JSON.stringify(digests(), undefined, 1)}\n`);
  console.log(
    written === 0 ? 'suites are up to date' : `${written} tasks written to ${BUILT} in ${Math.round(performance.now() - started)} ms`,
  );
}
