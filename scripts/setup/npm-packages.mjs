/**
 * The npm packages. What is installed is compared with package-lock.json through the lock copy that npm itself leaves in node_modules, so
 * no stamp of ours can be wrong after a person ran npm by hand.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { execute, repoRoot } from './command.mjs';

/**
 * @param {{ packages: Record<string, { version?: string, optional?: boolean, os?: string[], cpu?: string[] }> }} wanted package-lock.json
 * @param {{ packages: Record<string, { version?: string }> }} installed node_modules/.package-lock.json
 * @returns {string[]} paths of packages that are missing or have another version; optional ones may be missing
 */
export function differences(wanted, installed) {
  return Object.entries(wanted.packages)
    .filter(([path, entry]) => {
      if (path === '') return false;
      const found = installed.packages[path];
      return found ? found.version !== entry.version : !entry.optional;
    })
    .map(([path]) => path);
}

export function npmPackagesReady(root = repoRoot) {
  const lock = join(root, 'node_modules', '.package-lock.json');
  if (!existsSync(lock)) return false;
  const read = (file) => JSON.parse(readFileSync(file, 'utf8'));
  return differences(read(join(root, 'package-lock.json')), read(lock)).length === 0;
}

/** `npm ci` without install scripts: the only native addon needed is built by our own step. */
export async function installNpmPackages(say) {
  say('npm ci');
  await execute('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], {
    fix: 'check that the npm registry is reachable (npm ping), then run: npm run setup',
  });
}
