/** The built-in task suites: generated into suites/built/ by suites/build.ts, made again when what they are made from changes. */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { cacheDirectory, execute, repoRoot } from './command.mjs';

const builder = join(repoRoot, 'suites', 'build.ts');
const built = join(repoRoot, 'suites', 'built');
const stamp = join(cacheDirectory, 'suites.sha256');

/** Hash over the generator's sources: suites/ without its output and tests, and the seeds that it draws from. */
function sourcesHash() {
  const hash = createHash('sha256');
  // The two folders of sources by name: beside them lies the output, which another process may be replacing.
  const files = ['suites', join('suites', 'families')].flatMap((folder) =>
    readdirSync(join(repoRoot, folder))
      .filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))
      .map((name) => join(repoRoot, folder, name)),
  );
  for (const file of [...files.sort(), join(repoRoot, 'method', 'seeds.ts')]) {
    if (existsSync(file)) hash.update(file.slice(repoRoot.length)).update(readFileSync(file));
  }
  return hash.digest('hex');
}

export function suitesReady() {
  if (!existsSync(builder)) return true;
  return existsSync(built) && existsSync(stamp) && readFileSync(stamp, 'utf8') === sourcesHash();
}

export async function buildSuites(say) {
  say('generating tasks');
  const hash = sourcesHash();
  await execute(process.execPath, ['--import', 'tsx', builder], { fix: 'run it alone to see more: node --import tsx suites/build.ts' });
  mkdirSync(cacheDirectory, { recursive: true });
  writeFileSync(stamp, hash);
}
