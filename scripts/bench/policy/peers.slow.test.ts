import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { compare } from './compare.ts';
import { checkTraining } from './check.ts';
import { Peer } from './peers.ts';
import { repoRoot } from '../../../records/paths.ts';
import type { Spec } from './workloads.ts';

const folder = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-bench-'));
after(() => rm(folder, { recursive: true, force: true }));
const file = path.join(folder, 'training.json');
const spec: Spec = {
  ...{ workload: 'training', model: path.join(repoRoot, 'models/tiny-base'), threads: 2, rows: 2, length: 16 },
  tokens: Array.from({ length: 32 }, (_, i) => 10 + i),
  adam: { learningRate: 1e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0.01, maxGradientNorm: 1 },
  ...{ checkedSteps: 2, steps: 3, seed: 1 },
};
await writeFile(file, JSON.stringify(spec));

test('our engine is measured as graphs and eagerly, in processes of their own; a Python engine without its package is left out by name', async () => {
  const { rows, largestDifference, skipped } = await compare({
    ...{ engines: ['graph', 'eager', 'torch'], rounds: 2, workload: 'training' },
    start: (engine) => new Peer(engine, file, { threads: 2, python: path.join(folder, 'no-python') }),
    check: checkTraining,
    progress: () => undefined,
  });
  assert.deepEqual(
    rows.map(({ engine }) => engine),
    ['graph', 'eager'],
  );
  for (const row of rows) {
    assert.deepEqual(
      row.rounds.map((seconds) => seconds.length),
      [3, 3],
    );
    assert.ok(row.seconds.least > 0);
  }
  assert.ok(largestDifference < 1e-4);
  assert.equal(skipped.length, 1);
  assert.match(skipped[0] as string, /^PyTorch ended without an answer: .*no-python/);
});
