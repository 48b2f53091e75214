import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ArtifactStore } from '../../records/artifacts.ts';
import type { ArtifactKind, ArtifactRef } from '../../records/types.ts';
import type { TrainingRunResult } from '../../workflows/contract.ts';
import { differences, type RunOutcome } from './compare.ts';
import type { ActivityOutcome } from './outcome.ts';

let home: string;
before(async () => {
  home = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-compare-'));
});
after(() => rm(home, { recursive: true }));

const activity = (name: string, ref: ArtifactRef, result: string): ActivityOutcome => {
  const [stage = '', purpose = '', type = ''] = name.split('/');
  return { name, stage, purpose, type, artifacts: [{ field: 'it', ref }], result, attempts: 1, endedAt: 1 };
};

/** A run of two activities, its report and a stored history, in a folder of its own. */
async function run(name: string, { episodes = 'same', verdicts = 'same', ledger = 'a', extra = '' } = {}): Promise<RunOutcome> {
  const data = path.join(home, name);
  const store = new ArtifactStore(path.join(data, 'artifacts'));
  const put = (kind: ArtifactKind, value: unknown): Promise<ArtifactRef> => store.putJson(kind, value);
  const first = await put('episodes', { episodes });
  const second = await put('verdicts', { verdicts });
  const report = await put('result', { schema: 'terminal-rsi/run-result@1', config: {}, wallSeconds: name });
  // As Temporal exports it: indented, not canonical.
  await store.putBytes('history', Buffer.from(JSON.stringify({ events: [{ at: name }] }, null, 2)));
  if (extra !== '') await put('episodes', { extra });
  return {
    ...{ data, seconds: 1, ledger: [{ name: 'RSR-1', sha256: ledger }] },
    result: { finalPolicy: second, stages: [{ name: 'RSR-1' }] } as unknown as TrainingRunResult,
    activities: [
      activity('RSR-1/rollout/rollout', first, episodes),
      activity('RSR-1/rollout/verify', second, verdicts),
      {
        name: 'run/report',
        stage: 'run',
        purpose: '',
        type: 'report',
        artifacts: [{ field: 'result', ref: report }],
        attempts: 1,
        endedAt: 2,
      },
    ],
  };
}

describe('two runs', () => {
  it('are identical where only times, reports and histories differ', async () => {
    assert.deepEqual(differences(await run('a'), await run('b')), []);
  });

  it('differ first where the undisturbed run first made what differs, with stage and kind', async () => {
    const found = differences(await run('c'), await run('d', { episodes: 'other', verdicts: 'other' }));
    assert.deepEqual([found[0]?.stage, found[0]?.name, found[0]?.kind], ['RSR-1', 'RSR-1/rollout/rollout it', 'episodes']);
    assert.ok(found.some(({ name }) => name === 'RSR-1/rollout/verify it'));
  });

  it('differ where a ledger record has another content', async () => {
    const found = differences(await run('e'), await run('f', { ledger: 'b' }));
    assert.deepEqual(
      found.map(({ name, kind }) => [name, kind]),
      [['ledger RSR-1', 'ledger']],
    );
  });

  it('differ where a lost attempt stored something that the other run never made', async () => {
    const found = differences(await run('g'), await run('h', { extra: 'of a lost attempt' }));
    assert.deepEqual(
      found.map(({ kind, undisturbed }) => [kind, undisturbed]),
      [['blob', 'missing']],
    );
  });

  it('differ where one lacks an activity', async () => {
    const whole = await run('i');
    const less: RunOutcome = { ...whole, activities: whole.activities.slice(1) };
    assert.deepEqual(
      differences(whole, less).map(({ name, disturbed }) => [name, disturbed]),
      [
        ['RSR-1/rollout/rollout it', 'missing'],
        ['RSR-1/rollout/rollout', 'missing'],
      ],
    );
  });
});
