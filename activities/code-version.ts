/** Which code ran: a hash of the sources, with the commit where there is one. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { repoRoot } from '../records/paths.ts';

const FOLDERS = ['activities', 'environment', 'method', 'policy', 'records', 'suites', 'workers', 'workflows'];

/** Read once, when the process starts: a worker runs the code that it loaded, whatever is edited afterwards. */
const running = hashSources(FOLDERS);
running.catch(() => undefined);

/** First 12 hex digits of a SHA-256 over the folders' TypeScript sources (path, NUL, bytes), tests left out; by default of the code that runs. */
export async function sourceHash(folders?: readonly string[]): Promise<string> {
  return folders === undefined ? await running : await hashSources(folders);
}

async function hashSources(folders: readonly string[]): Promise<string> {
  const hash = createHash('sha256');
  for (const folder of folders) {
    for (const file of await sources(folder)) hash.update(`${file}\0`).update(await readFile(path.join(repoRoot, file)));
  }
  return hash.digest('hex').slice(0, 12);
}

/** TypeScript sources below a folder of the repository, sorted. Generated folders (suites/built) are not entered: they may change meanwhile. */
async function sources(folder: string): Promise<string[]> {
  const found: string[] = [];
  for (const entry of await readdir(path.join(repoRoot, folder), { withFileTypes: true })) {
    const file = `${folder}/${entry.name}`;
    if (entry.isDirectory() && !entry.name.startsWith('built')) found.push(...(await sources(file)));
    else if (entry.isFile() && file.endsWith('.ts') && !file.endsWith('.test.ts')) found.push(file);
  }
  return found.sort();
}

/** e.g. `source:1f0c… commit:9f56039`; a copy without git has no commit. */
export async function codeVersion(): Promise<string> {
  const source = `source:${await sourceHash()}`;
  try {
    const { stdout } = await promisify(execFile)('git', ['rev-parse', '--short=12', 'HEAD'], { cwd: repoRoot });
    return `${source} commit:${stdout.trim()}`;
  } catch {
    return source;
  }
}
