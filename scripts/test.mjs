/**
 * `npm test [-- FILTER]`: sets up, makes sure of a Docker engine where that is possible, and runs every test file of the project.
 *
 * Tests are `*.test.ts` (and `*.test.mjs` for the code that runs before tsx exists) beside the code. FILTER runs only the files whose path
 * contains it. Ends with every skipped test and its reason, and the plain line "N passed, N failed, N skipped".
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join, relative } from 'node:path';
import { cacheDirectory, repoRoot } from './setup/command.mjs';
import { startDockerIfNeeded } from './setup/docker.mjs';
import { orExplain, setUp } from './setup.mjs';

const folders = [
  'workflows',
  'activities',
  'workers',
  'method',
  'policy',
  'environment',
  'records',
  'scripts',
  'suites',
  'models',
  'tests',
];

/** A file that hangs fails after this long, instead of holding everything up. */
const fileLimitMs = 600_000;

/** @param {string} filter part of a path, '' for all @returns {string[]} test files, relative to the repository */
export function findTestFiles(filter) {
  return folders
    .filter((folder) => existsSync(join(repoRoot, folder)))
    .flatMap((folder) => readdirSync(join(repoRoot, folder), { recursive: true }).map((name) => join(folder, name)))
    .filter((file) => /\.test\.(ts|mjs)$/.test(file) && !file.startsWith('suites/built/') && file.includes(filter))
    .sort();
}

/** Runs the files; resolves with the runner's exit code and what the reporter counted. */
async function runFiles(files) {
  const counts = join(cacheDirectory, `test-counts-${process.pid}.jsonl`);
  mkdirSync(cacheDirectory, { recursive: true });
  const reporters = [
    ['--test-reporter=spec', '--test-reporter-destination=stdout'],
    [`--test-reporter=${join(repoRoot, 'scripts', 'setup', 'count-reporter.mjs')}`, `--test-reporter-destination=${counts}`],
  ].flat();
  const child = spawn(
    process.execPath,
    ['--import', 'tsx', '--test', '--test-concurrency=2', `--test-timeout=${fileLimitMs}`, ...reporters, ...files],
    { cwd: repoRoot, stdio: 'inherit' },
  );
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal));
  const exitCode = await new Promise((resolve) => {
    child.on('close', (code) => resolve(code ?? 1));
    child.on('error', () => resolve(1));
  });
  const lines = existsSync(counts) ? readFileSync(counts, 'utf8').split('\n').filter(Boolean) : [];
  rmSync(counts, { force: true });
  return { exitCode, tests: lines.map((line) => JSON.parse(line)) };
}

const [filter = '', ...surplus] = process.argv.slice(2);
if (filter.startsWith('-') || surplus.length > 0) {
  process.stderr.write('Usage: npm test [-- FILTER]   FILTER: part of a test file\'s path, for example "method/" or "gae"\n');
  process.exit(2);
}
await orExplain(setUp);
const files = findTestFiles(filter);
if (files.length === 0) {
  process.stderr.write(`No test file's path contains "${filter}" (looked in ${folders.join(', ')}).\n`);
  process.exit(1);
}

const docker = await startDockerIfNeeded();
process.stdout.write(`Docker: ${docker.reason}\n`);
const started = Date.now();
let outcome;
try {
  outcome = await runFiles(files);
} finally {
  await docker.stop();
}

const withState = (state) => outcome.tests.filter((test) => test.state === state);
const passed = withState('passed').length;
const skipped = withState('skipped');
// The runner can fail without a failed test, for example when it is interrupted: that must not read as a success.
const failed = Math.max(withState('failed').length, outcome.exitCode === 0 ? 0 : 1);

const place = (test) => `${test.file ? `${relative(repoRoot, test.file)}: ` : ''}${test.name}`;
for (const test of withState('failed')) process.stdout.write(`failed: ${place(test)}\n`);
for (const test of skipped) process.stdout.write(`skipped: ${place(test)} (${test.reason})\n`);
process.stdout.write(`${files.length} files, ${((Date.now() - started) / 1000).toFixed(0)} s\n`);
process.stdout.write(`${passed} passed, ${failed} failed, ${skipped.length} skipped\n`);
process.exitCode = failed > 0 ? 1 : 0;
