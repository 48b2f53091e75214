/** The counting reporter of `npm test`, on a real run of node:test over small files. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const reporter = fileURLToPath(new URL('./count-reporter.mjs', import.meta.url));

/** Runs one test file with the reporter and returns its lines. */
function counted(t, source) {
  const folder = mkdtempSync(join(tmpdir(), 'terminal-rsi-count-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'sample.test.mjs');
  const out = join(folder, 'counts.jsonl');
  writeFileSync(file, `import { describe, test, before } from 'node:test';\n${source}`);
  // Without this the inner runner would report to ours.
  const env = { ...process.env };
  delete env.NODE_TEST_CONTEXT;
  const done = spawnSync(process.execPath, ['--test', `--test-reporter=${reporter}`, `--test-reporter-destination=${out}`, file], { env });
  const lines = readFileSync(out, 'utf8').split('\n').filter(Boolean);
  return { exitCode: done.status, tests: lines.map((line) => JSON.parse(line)) };
}

test('passed, failed and skipped tests are counted, groups are not', (t) => {
  const { exitCode, tests } = counted(
    t,
    `describe('group', () => {
       test('good', () => {});
       test('bad', () => { throw new Error('bad'); });
       test('left out', { skip: 'no Docker engine' }, () => {});
       test('left out inside', (t) => t.skip('needs root'));
     });`,
  );
  assert.notEqual(exitCode, 0);
  assert.deepEqual(
    tests.map(({ state, name, reason }) => [state, name, reason]),
    [
      ['passed', 'good', undefined],
      ['failed', 'bad', undefined],
      ['skipped', 'left out', 'no Docker engine'],
      ['skipped', 'left out inside', 'needs root'],
    ],
  );
});

test('a group whose hook breaks, and a file that cannot be loaded, count as failed', (t) => {
  const hook = counted(t, `describe('group', () => { before(() => { throw new Error('hook'); }); test('never', () => {}); });`);
  assert.ok(hook.tests.some((entry) => entry.state === 'failed'));
  const broken = counted(t, `import './not-there.mjs';`);
  assert.deepEqual(
    broken.tests.map((entry) => entry.state),
    ['failed'],
  );
});
