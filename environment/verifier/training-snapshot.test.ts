/** What training carries to its verification of a task that declares artifacts. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { EmbeddedProvider } from '../embedded/provider.ts';
import { runOracle } from '../harness/harness.ts';
import { fixture } from '../testing.ts';
import type { Task } from '../types.ts';
import { verify } from './verifier.ts';

const simple = await fixture('sort-names');
const script = (text: string): { data: Uint8Array; mode: number } => ({ data: Buffer.from(`#!/bin/bash\n${text}\n`), mode: 0o755 });
const task: Task = {
  ...simple,
  solution: new Map([['solve.sh', script('mkdir -p /srv/out && echo made > /srv/out/report && echo scratch > /srv/out/scratch')]]),
  tests: new Map([
    [
      'test.sh',
      script(
        'grep -q made /srv/out/report && [ -f /srv/collected ] && [ ! -e /srv/out/scratch ]\necho $((! $?)) > /logs/verifier/reward.txt',
      ),
    ],
  ]),
  artifacts: [
    { source: '/srv/out', exclude: ['scratch'] },
    { source: '/srv/collected', exclude: [] },
  ],
  collect: [{ command: 'cp /srv/out/report /srv/collected', timeoutSec: 5 }],
};
const provider = new EmbeddedProvider();
const labels = { runKey: 'r', episodeId: 'e', purpose: 'verify' } as const;

it('declared artifacts and what collect hooks make reach a verifier in another sandbox', async () => {
  const { snapshot } = await runOracle({ task, provider, episodeId: 'e', suite: 's', runKey: 'r' });
  assert.deepEqual(Object.keys(snapshot.artifacts ?? {}).sort(), ['srv/collected', 'srv/out/report']);
  const stored = JSON.parse(JSON.stringify(snapshot)) as typeof snapshot;
  assert.equal((await verify({ task, snapshot: stored, provider, labels })).outcome, 'passed');
  const { artifacts: _, ...without } = snapshot;
  assert.equal((await verify({ task, snapshot: without, provider, labels })).outcome, 'failed');
});

it('a task that declares none has the snapshot that it always had', async () => {
  const { snapshot } = await runOracle({ task: simple, provider, episodeId: 'e', suite: 's', runKey: 'r' });
  assert.deepEqual(Object.keys(snapshot), ['episodeId', 'files', 'emptyDirectories']);
});
