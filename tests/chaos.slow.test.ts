/**
 * The chaos command, short: one run undisturbed and one in which each process is killed once and a checkpoint is torn. The nightly
 * checks do it with 20 disturbances and three seeds (docs/durability.md).
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, it } from 'node:test';
import type { Audit } from '../records/audit/audit.ts';
import { repoRoot } from '../records/paths.ts';
import { chaosResultSchema } from '../scripts/chaos/result.ts';
import { findProcesses } from '../scripts/launcher/state.ts';

let folder: string;
before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-chaos-test-'));
});
after(() => rm(folder, { recursive: true, force: true }));

/** Runs the command with temporary files of its own. */
function chaos(...args: string[]) {
  const child = spawn(process.execPath, ['--import', 'tsx', path.join(repoRoot, 'scripts', 'chaos.ts'), ...args], {
    cwd: repoRoot,
    env: { ...process.env, TMPDIR: folder },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text: string) => (output += text));
  const status = once(child, 'close').then(([code]) => code as number | null);
  return { child, status, output: () => output };
}

async function assertNothingLeft(): Promise<void> {
  assert.deepEqual(
    (await readdir(folder)).filter((name) => name.startsWith('terminal-rsi-chaos-')),
    [],
  );
  assert.deepEqual(findProcesses(folder), []);
}

it('a run whose processes are all killed, and whose checkpoint is torn, ends with the bytes of an undisturbed one', async () => {
  const file = path.join(folder, 'chaos.json');
  const { status, output } = chaos('--kills', '6', '--seed', '1', '--result-file', file, '--keep');
  assert.equal(await status, 0, output());
  const result = chaosResultSchema.parse(JSON.parse(await readFile(file, 'utf8')));
  assert.equal(result.identical, true);
  assert.deepEqual(
    new Set(result.kills.map(({ process }) => process)),
    new Set(['rollout worker', 'trainer', 'GPU worker', 'Temporal server', 'launcher', 'torn checkpoint']),
  );
  assert.deepEqual(Object.keys(result.hashes.stages), ['Base', 'RSR-1', 'RPR-1']);
  const [home = ''] = await readdir(folder).then((names) => names.filter((name) => name.startsWith('terminal-rsi-chaos-')));
  await assertAudited(path.join(folder, home, 'disturbed'));
  await rm(path.join(folder, home), { recursive: true });
  await assertNothingLeft();
});

/** Every hash of the disturbed run holds, its histories replay, and what was killed is seen as workers and attempts. */
async function assertAudited(data: string): Promise<void> {
  const [runKey = ''] = await readdir(path.join(data, 'runs'));
  const file = path.join(folder, 'audit.json');
  const audit = spawn(process.execPath, ['--import', 'tsx', path.join(repoRoot, 'scripts', 'audit.ts'), runKey, '--result-file', file], {
    cwd: repoRoot,
    env: { ...process.env, TERMINAL_RSI_DATA: data },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let text = '';
  audit.stdout.setEncoding('utf8').on('data', (part: string) => (text += part));
  const [status] = (await once(audit, 'close')) as [number | null];
  assert.equal(status, 0, text);
  const { checks, timeline } = JSON.parse(await readFile(file, 'utf8')) as Audit;
  assert.ok((checks.find(({ name }) => name === 'replay')?.checked ?? 0) >= 8, text);
  // The launcher's end takes both workers with it, so that each was at least three processes.
  assert.ok((timeline?.workers.length ?? 0) >= 4, text);
  const activities = timeline?.stages.flatMap((stage) => stage.activities) ?? [];
  assert.ok(
    activities.some(({ attempts, lastFailure }) => attempts > 1 && /WorkerLost/.test(lastFailure ?? '')),
    text,
  );
}

it('Ctrl-C ends everything that was started', async () => {
  const { child, status, output } = chaos('--kills', '1');
  while (findProcesses(folder).length === 0) await new Promise((resolve) => setTimeout(resolve, 100));
  child.kill('SIGINT');
  assert.equal(await status, 130, output());
  await assertNothingLeft();
});
