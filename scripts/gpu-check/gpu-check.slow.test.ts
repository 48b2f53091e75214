import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

const command = join(import.meta.dirname, '../gpu-check.ts');
function gpuCheck(args: readonly string[], env: Record<string, string>): ReturnType<typeof spawnSync> {
  return spawnSync(process.execPath, ['--import', 'tsx', command, ...args], { env: { ...process.env, ...env }, encoding: 'utf8' });
}

test('on a machine without a GPU everything runs on the CPU, which is said, and the exit code tells', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'gpu-check-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'result.json');
  const done = gpuCheck(['--sizes', 'none', '--result-file', file], { TERMINAL_RSI_TENSORFLOW: 'cpu' });
  assert.equal(done.status, 2, String(done.stderr));
  assert.match(String(done.stdout), /This ran on the CPU/);
  assert.match(String(done.stdout), /says nothing about a GPU/);
  const result = JSON.parse(readFileSync(file, 'utf8')) as {
    passed: boolean;
    device: { kind: string };
    comparisons: unknown[];
    placement: object;
  };
  assert.equal(result.passed, true);
  assert.equal(result.device.kind, 'CPU');
  assert.equal(result.comparisons.length, 11);
  // Functions of training and of sampling ran, and TensorFlow told where.
  assert.ok('AssignAddVariableOp' in result.placement && 'ResourceScatterUpdate' in result.placement);
});

test('a GPU that was asked for and is not there fails with the reason', () => {
  const done = gpuCheck(['--sizes', 'none'], { TERMINAL_RSI_TENSORFLOW: 'gpu', CUDA_VISIBLE_DEVICES: '-1' });
  assert.equal(done.status, 1);
  assert.match(String(done.stderr), /TensorFlow sees no GPU: .*export TERMINAL_RSI_TENSORFLOW=cpu/);
});
