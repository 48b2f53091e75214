import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { UserError } from '../environment/errors.ts';
import { profiles } from '../workflows/profiles.ts';
import { opened, restarted, stage } from './ledger-fixture.ts';
import { Ledger } from './ledger.ts';
import { configChanges, findElsewhere, findRun, finishedStages, lineageFacts, precedes } from './lineage.ts';

let data: string;
beforeEach(async () => {
  data = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-lineage-'));
});
afterEach(async () => {
  await rm(data, { recursive: true });
});
async function run(runKey: string, workflowId: string, day: number, stages: readonly string[] = []): Promise<Ledger> {
  const ledger = new Ledger(data, runKey);
  await ledger.append(opened(workflowId, `2026-01-0${day}T00:00:00.000Z`));
  for (const name of stages) await ledger.append(stage(name));
  return ledger;
}

describe('a run is found', () => {
  beforeEach(async () => {
    await run('0a1b2c3d-1111', 'first', 1);
    await run('0a1b2c3d-2222', 'second', 2);
    await run('ffffffff-3333', 'second', 3);
  });
  it('by its key, the beginning of its key, and its workflow id', async () => {
    assert.equal(await findRun(data, '0a1b2c3d-1111'), '0a1b2c3d-1111');
    assert.equal(await findRun(data, 'ffffffff'), 'ffffffff-3333');
    assert.equal(await findRun(data, 'first'), '0a1b2c3d-1111');
  });
  it('as the one that was opened last, of several with one workflow id', async () => {
    assert.equal(await findRun(data, 'second'), 'ffffffff-3333');
  });
  it('although the ledger of another run is broken', async () => {
    await writeFile(path.join(data, 'runs', 'ffffffff-3333', 'ledger', '000000.json'), '{');
    assert.equal(await findRun(data, 'second'), '0a1b2c3d-2222');
  });
  it('not by a beginning that two keys share, and the error names the runs there are', async () => {
    await assert.rejects(
      findRun(data, '0a1b2c3d'),
      (error: unknown) => error instanceof UserError && /"0a1b2c3d" is not in .*first \(0a1b2c3d-1111\), second/.test(error.message),
    );
    await assert.rejects(findRun(path.join(data, 'empty'), 'first'), /there is none/);
  });
});

it('an equal stage is found in another run, unless a restart made it void or its ledger is broken', async () => {
  const { stageKey } = stage('RSR-1').content;
  const ledger = await run('a', 'a', 1, ['Base', 'RSR-1']);
  await run('b', 'b', 2, ['RSR-1']);
  assert.equal((await findElsewhere(data, ['a', 'b'], stageKey))?.runKey, 'a');
  await ledger.append(restarted('RSR-1', ['Base']));
  assert.equal((await findElsewhere(data, ['a', 'b'], stageKey))?.runKey, 'b');
  assert.deepEqual(
    (await finishedStages(data, 'a')).map(({ content }) => content.stage),
    ['Base'],
  );
  await writeFile(path.join(ledger.directory, '000000.json'), '{');
  assert.equal((await findElsewhere(data, ['a', 'b'], stageKey))?.runKey, 'b');
  assert.equal(await findElsewhere(data, ['a', 'b'], 'other'), undefined);
});

it('the report is told of forks with what they change, and of restarts', async () => {
  const ledger = new Ledger(data, 'fork');
  const body = opened('fork');
  const changes = [{ path: 'rpr.epochs', before: 1, after: 2 }];
  const forkedFrom = { runKey: 'parent', index: 4, hash: body.content.tasksHash };
  await ledger.append({
    ...body,
    content: { ...body.content, fork: { from: 'RPR-1', changes } },
    observed: { ...body.observed, forkedFrom },
  });
  await ledger.append(restarted('RPR-1', ['Base', 'RSR-1']));
  assert.deepEqual(await lineageFacts(data, 'fork'), {
    'forked from': 'run parent, own from RPR-1; rpr.epochs: 1 → 2',
    restarted: 'from RPR-1 by Ada, 2026-01-01T00:00:00.000Z',
  });
  assert.deepEqual(await lineageFacts(data, 'nothing'), {});
});

it('stages come in the order Base, RSR-1, RPR-1, RSR-2 …', () => {
  const order = ['Base', 'RSR-1', 'RPR-1', 'RSR-2', 'RPR-2'];
  for (const [i, a] of order.entries()) for (const [j, b] of order.entries()) assert.equal(precedes(a, b), i < j, `${a} ${b}`);
});

it('changes of a configuration are named by path, without what only says how to run', () => {
  const before = profiles.smoke;
  const after = {
    ...before,
    reuse: 'any',
    requireApproval: true,
    fork: { run: 'a', from: 'RPR-1' },
    rpr: { ...before.rpr, epochs: 3, reward: ['spr'] },
  } as const;
  assert.deepEqual(configChanges(before, { ...after, rpr: { ...after.rpr, reward: ['spr'] } }), [
    { path: 'rpr.reward', before: ['fdr', 'spr'], after: ['spr'] },
    { path: 'rpr.epochs', before: 1, after: 3 },
  ]);
});
