/** What set-up decides, and what it says when something is wrong. The steps themselves run for real in CI, on a clean checkout. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { execute, SetupError } from './command.mjs';
import { lockName, withSetupLock } from './lock.mjs';
import { atLeast, checkNode, checkPlatform, chooseVariant, parseVersion } from './machine.mjs';
import { differences } from './npm-packages.mjs';
import { temporalOnPath } from './temporal.mjs';
import { cudaRequirements } from './tensorflow.mjs';

const scratch = (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'terminal-rsi-setup-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
};
const program = (file, text) => {
  writeFileSync(file, text);
  chmodSync(file, 0o755);
};
const isSetupError = (pattern, fix) => (error) => error instanceof SetupError && pattern.test(error.message) && fix.test(error.fix);

test('Node versions outside the supported range are refused with the version, the range and a fixing command', () => {
  for (const version of ['18.20.4', '20.18.0', '23.0.0', '24.1.0', 'nonsense']) {
    assert.throws(
      () => checkNode(version),
      isSetupError(new RegExp(`${version.replaceAll('.', '\\.')}.*>=20\\.18\\.1 <23`), /nvm install 22/),
    );
  }
  for (const version of ['20.18.1', '20.19.0', '22.0.0', '22.21.3']) assert.doesNotThrow(() => checkNode(version));
});

test('versions are read from what programs print and compared number by number', () => {
  assert.deepEqual(parseVersion('temporal version 1.9.1 (Server 1.32.0, UI 2.54.1)'), [1, 9, 1]);
  assert.deepEqual(parseVersion('v22.3'), [22, 3, 0]);
  assert.equal(parseVersion('no number'), null);
  assert.equal(atLeast([1, 10, 0], [1, 9, 9]), true);
  assert.equal(atLeast([1, 5, 0], [1, 5, 0]), true);
  assert.equal(atLeast([1, 4, 9], [1, 5, 0]), false);
});

test('platforms without a library, and Linux without glibc, are named', () => {
  assert.throws(() => checkPlatform('darwin-arm64', '2.36'), isSetupError(/darwin-arm64.*linux-x64/, /docker run/));
  assert.throws(() => checkPlatform('linux-x64', null), isSetupError(/glibc/, /bookworm/));
  assert.equal(checkPlatform('linux-x64', '2.36').tensorflow.cpu, 'tensorflow-cpu');
});

test('the GPU library is chosen where a GPU is seen, and the override wins', () => {
  const platform = checkPlatform('linux-x64', '2.36');
  assert.equal(chooseVariant(undefined, true, platform), 'gpu');
  assert.equal(chooseVariant('', false, platform), 'cpu');
  assert.equal(chooseVariant('cpu', true, platform), 'cpu');
  assert.throws(() => chooseVariant('cuda', true, platform), isSetupError(/"cuda": expected cpu or gpu/, /unset/));
  assert.throws(() => chooseVariant('gpu', true, checkPlatform('linux-arm64', '2.36')), isSetupError(/not packaged/, /=cpu/));
});

test('installed packages are compared with the lock file: missing, other version, optional', () => {
  const wanted = {
    packages: {
      '': {},
      a: { version: '1.0.0' },
      b: { version: '2.0.0' },
      c: { version: '1.0.0' },
      d: { version: '1.0.0', optional: true },
    },
  };
  const installed = { packages: { a: { version: '1.0.0' }, b: { version: '2.1.0' } } };
  assert.deepEqual(differences(wanted, installed), ['b', 'c']);
});

test('the CUDA packages are those of the wheel’s and-cuda extra', () => {
  const metadata = [
    'Name: tensorflow',
    'Requires-Dist: numpy>=1.26.0',
    'Requires-Dist: nvidia-cublas-cu12<13.0,>=12.5.3.2; extra == "and-cuda"',
    'Requires-Dist: other>=1; extra == "else"',
    'Requires-Dist: nvidia-cudnn-cu12<10.0,>=9.3.0.75; extra == "and-cuda"',
  ].join('\n');
  assert.deepEqual(cudaRequirements(metadata), ['nvidia-cublas-cu12<13.0,>=12.5.3.2', 'nvidia-cudnn-cu12<10.0,>=9.3.0.75']);
});

test('a Temporal CLI on PATH is taken only when it is recent enough', (t) => {
  const folder = scratch(t);
  for (const [name, version] of [
    ['old', '1.4.1'],
    ['new', '1.5.0'],
  ]) {
    mkdirSync(join(folder, name));
    program(join(folder, name, 'temporal'), `#!/bin/sh\necho "temporal version ${version} (Server 1.29.0)"\n`);
  }
  const [old, recent] = [join(folder, 'old'), join(folder, 'new')];
  assert.equal(temporalOnPath(old), null);
  assert.equal(temporalOnPath([old, recent].join(delimiter))?.file, join(recent, 'temporal'));
  assert.equal(temporalOnPath(''), null);
});

test('without a compiler on PATH set-up stops before any download, with the command that installs one', (t) => {
  const root = scratch(t);
  const repo = fileURLToPath(new URL('../..', import.meta.url));
  // A copy of the scripts with nothing set up, on a PATH that holds python3 and no compiler.
  for (const folder of ['bin', 'scripts']) mkdirSync(join(root, folder));
  spawnSync('cp', ['-r', join(repo, 'scripts', 'setup'), join(repo, 'scripts', 'setup.mjs'), join(root, 'scripts')]);
  const python = spawnSync('python3', ['-c', 'import sys; print(sys.executable)'], { encoding: 'utf8' }).stdout.trim();
  symlinkSync(python, join(root, 'bin', 'python3'));
  const env = { ...process.env, PATH: join(root, 'bin'), CXX: '', TERMINAL_RSI_TENSORFLOW: 'cpu' };
  const done = spawnSync(process.execPath, [join(root, 'scripts', 'setup.mjs')], { encoding: 'utf8', env });
  assert.equal(done.status, 1, done.stderr);
  assert.match(done.stderr, /Set-up stopped: no C\+\+ compiler was found/);
  assert.match(done.stderr, /To mend it: apt-get install -y g\+\+/);
  assert.doesNotMatch(done.stderr, /npm packages/);

  const bare = spawnSync(process.execPath, [join(root, 'scripts', 'setup.mjs')], {
    encoding: 'utf8',
    env: { ...env, PATH: '/nonexistent' },
  });
  assert.equal(bare.status, 1);
  assert.match(bare.stderr, /Set-up stopped: python3 was not found.*\n.*apt-get install -y python3/);
});

test('a failing program is reported with its last lines, its exit code and the fix', async () => {
  await assert.rejects(
    execute(process.execPath, ['-e', 'console.error("disk is full"); process.exit(7)'], { fix: 'make room' }),
    isSetupError(/exit code 7:[\s\S]*disk is full/, /make room/),
  );
  await assert.rejects(execute('no-such-program-here', [], { fix: 'install it' }), isSetupError(/could not be started/, /install it/));
});

test('a second set-up waits for the first, and goes on when its holder is killed', async () => {
  const name = lockName(`test-${process.pid}`);
  const order = [];
  const first = withSetupLock(
    async () => {
      order.push('first in');
      await new Promise((resolve) => setTimeout(resolve, 100));
      order.push('first out');
    },
    { name },
  );
  await withSetupLock(async () => order.push('second in'), { name, onWait: () => order.push('waits') });
  await first;
  assert.deepEqual(
    order.filter((entry) => entry !== 'waits'),
    ['first in', 'first out', 'second in'],
  );
  assert.ok(order.includes('waits'));

  const lockModule = new URL('./lock.mjs', import.meta.url).href;
  const source = `import { withSetupLock } from ${JSON.stringify(lockModule)};
    await withSetupLock(() => new Promise((resolve) => { console.log('held'); setTimeout(resolve, 60_000); }), { name: ${JSON.stringify(name)} });`;
  const holder = spawn(process.execPath, ['--input-type=module', '-e', source], { stdio: ['ignore', 'pipe', 'inherit'] });
  await new Promise((resolve) => holder.stdout.once('data', resolve));
  const waited = withSetupLock(async () => 'taken', { name, onWait: () => holder.kill('SIGKILL') });
  assert.equal(await waited, 'taken');
});
