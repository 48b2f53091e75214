/** Artifacts: what is collected, where it lies, and that it is back at its place in a separate verifier’s sandbox. */
import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import { backends, fixture, testRunKey } from '../testing.ts';
import type { FileTree, Task } from '../types.ts';
import { runCollectHooks, takeArtifacts } from './artifacts.ts';
import { verifySeparate } from './separate.ts';

const sortNames = await fixture('sort-names');
const texts = (files: FileTree): Record<string, string> =>
  Object.fromEntries([...files].map(([path, { data }]) => [path, Buffer.from(data).toString()]));

for (const backend of await backends()) {
  describe(`artifacts with ${backend.name}`, { skip: backend.skip }, () => {
    const provider = backend.provider();
    after(() => provider.close());
    const task: Task = {
      ...sortNames,
      collect: [
        { command: 'false', timeoutSec: 5 },
        { command: 'echo dumped > /var/state.txt', timeoutSec: 5 },
      ],
      artifacts: [
        { source: '/var/state.txt', exclude: [] },
        { source: '/data', exclude: ['cache', '*.tmp'] },
        { source: '/data/deep', destination: 'data/deep', exclude: [] },
        { source: 'out', destination: 'results', exclude: [] },
        { source: '/missing', exclude: [] },
      ],
    };
    const prepare = [
      'mkdir -p /var /data/deep/cache /logs/artifacts out',
      'echo a > /data/a.txt; echo b > /data/b.tmp; echo c > /data/deep/c.txt; echo d > /data/deep/cache/d; ln -s /etc/passwd /data/link',
      'echo said > /logs/artifacts/said; echo r > out/r',
    ].join('; ');

    it('are laid out as Harbor lays them out, and lie at their places for a separate verifier', async () => {
      const labels = { runKey: testRunKey, episodeId: 'artifacts', purpose: 'rollout' } as const;
      const sandbox = await provider.start(task, labels);
      let artifacts: FileTree;
      try {
        assert.equal((await sandbox.exec(prepare, { timeoutSec: 10 })).stderr, '');
        await runCollectHooks(sandbox, task);
        artifacts = await takeArtifacts(sandbox, task);
      } finally {
        await sandbox.close();
      }
      assert.deepEqual(texts(artifacts), {
        'logs/artifacts/said': 'said\n',
        'var/state.txt': 'dumped\n',
        'data/a.txt': 'a\n',
        'data/deep/c.txt': 'c\n',
        'results/r': 'r\n',
      });
      const test =
        '#!/bin/bash\ncat /var/state.txt /data/deep/c.txt /app/out/r /logs/artifacts/said > /logs/verifier/seen\n[ ! -e /data/deep/cache ] && echo 1 > /logs/verifier/reward.txt\n';
      const { verdict, files } = await verifySeparate({
        task: { ...task, tests: new Map([['test.sh', { data: Buffer.from(test), mode: 0o644 }]]) },
        snapshot: { episodeId: 'artifacts', files: {} },
        artifacts,
        provider,
        labels: { ...labels, purpose: 'verify' },
      });
      assert.equal(verdict.outcome, 'passed');
      assert.equal(texts(files)['seen'], 'dumped\nc\nr\nsaid\n');
    });

    it('beyond the limit are left out and named', async () => {
      const sandbox = await provider.start(task, { runKey: testRunKey, episodeId: 'large', purpose: 'rollout' });
      try {
        await sandbox.exec('mkdir -p /data; printf %1000s x > /data/large; echo a > /data/small', { timeoutSec: 10 });
        const skipped: string[] = [];
        const artifacts = await takeArtifacts(sandbox, task, { maxBytes: 100, onSkipped: (path) => skipped.push(path) });
        assert.deepEqual([[...artifacts.keys()], skipped], [['data/small'], ['/data/large']]);
      } finally {
        await sandbox.close();
      }
    });
  });
}
