/**
 * `npm run resume` for real, each time with server, workers and trainer of its own: a smoke run, its RPR-1 run again, and, after the
 * server has lost all histories, a fork of it with another setting.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, it } from 'node:test';
import { promisify } from 'node:util';
import { effectiveStages, Ledger } from '../records/ledger.ts';
import { repoRoot } from '../records/paths.ts';
import { runResultSchema } from '../records/result.ts';
import type { RunResult } from '../records/result.ts';

let data: string;
before(async () => {
  data = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-resume-'));
});
after(async () => {
  await rm(data, { recursive: true, force: true });
});

/** Runs a command of scripts/ to its end; gives what it printed and the run's result. */
async function command(script: string, ...args: string[]): Promise<{ printed: string; result: RunResult }> {
  const file = path.join(data, 'result.json');
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--import', 'tsx', path.join(repoRoot, 'scripts', script), ...args, '--result-file', file],
    { cwd: repoRoot, env: { ...process.env, TERMINAL_RSI_DATA: data }, maxBuffer: 64 * 1024 * 1024 },
  );
  return { printed: stdout, result: runResultSchema.parse(JSON.parse(await readFile(file, 'utf8'))) };
}
const policies = ({ stages }: RunResult): string[] => stages.map(({ policySha256 }) => policySha256);

it('a stage is run again with equal outcome, and a fork goes on without the server’s memory', { timeout: 900_000 }, async () => {
  const policy = process.env['TERMINAL_RSI_TEST_POLICY'];
  const first = await command('start-run.ts', '--profile', 'smoke', ...(policy === undefined ? [] : ['--set', `basePolicy=${policy}`]));
  const { runId, workflowId } = first.result;
  for (const kind of ['journal', 'checkpoints'])
    for (const { name } of first.result.stages) assert.ok(!existsSync(path.join(data, 'runs', runId, kind, name)), `${kind} of ${name}`);

  const again = await command('resume.ts', workflowId, '--from', 'rpr-1', '--by', 'Ada');
  assert.match(again.printed, /Restarted from RPR-1; kept: Base, RSR-1/);
  assert.equal(again.result.runId, runId);
  assert.deepEqual(policies(again.result), policies(first.result));
  const records = await new Ledger(data, runId).read();
  assert.deepEqual(
    records.map(({ kind }) => kind),
    ['opened', 'stage', 'stage', 'stage', 'closed', 'restarted', 'stage', 'closed'],
  );
  const [before, after] = [records[3], records[6]];
  assert.ok(before?.kind === 'stage' && after?.kind === 'stage');
  assert.deepEqual(after.content, before.content);
  assert.ok(after.observed.cost.gpuSeconds > 0, 'RPR-1 was not trained again');

  await rm(path.join(data, 'temporal'), { recursive: true });
  await assert.rejects(command('resume.ts', workflowId, '--from', 'rpr-1'), (error: Error & { stderr?: string }) =>
    /does not know run .*--fork/.test(error.stderr ?? ''),
  );
  const fork = await command('resume.ts', workflowId, '--from', 'rpr-1', '--fork', '--set', 'rpr.epochs=2');
  assert.match(fork.printed, /rpr\.epochs: 1 → 2/);
  assert.match(fork.printed, /RSR-1 ‡/);
  assert.deepEqual(policies(fork.result).slice(0, 2), policies(first.result).slice(0, 2));
  assert.notEqual(policies(fork.result)[2], policies(first.result)[2]);
  const shared = effectiveStages(await new Ledger(data, fork.result.runId).read()).map(({ observed }) => observed.reusedFrom?.runKey);
  assert.deepEqual(shared, [runId, runId, undefined]);
});
