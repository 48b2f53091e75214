import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { effectiveStages, Ledger, LedgerError } from './ledger.ts';
import { closed, opened, restarted, stage } from './ledger-fixture.ts';

let data: string;
let ledger: Ledger;
beforeEach(async () => {
  data = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-ledger-'));
  ledger = new Ledger(data, 'run-1');
});
afterEach(async () => {
  await rm(data, { recursive: true });
});
const file = (index: number): string => path.join(ledger.directory, `${String(index).padStart(6, '0')}.json`);
const kinds = async (): Promise<string[]> =>
  (await ledger.read()).map((record) => (record.kind === 'stage' ? record.content.stage : record.kind));

describe('append', () => {
  it('chains records by hash and number', async () => {
    const first = await ledger.append(opened());
    const second = await ledger.append(stage('Base'));
    assert.deepEqual([first.index, first.previous, second.index, second.previous], [0, null, 1, first.hash]);
    assert.deepEqual(await ledger.read(), [first, second]);
  });

  it('of what an earlier attempt has written gives that record', async () => {
    await ledger.append(opened());
    const first = await ledger.append(stage('Base'));
    const again = await ledger.append({ ...stage('Base'), observed: { ...stage('Base').observed, seconds: 99 } });
    assert.deepEqual(again, first);
    assert.equal((await ledger.read()).length, 2);
  });

  it('by many writers at once loses none and forks nothing', async () => {
    await ledger.append(opened());
    const stages = Array.from({ length: 12 }, (_, index) => `RSR-${index + 1}`);
    await Promise.all(stages.flatMap((name) => [new Ledger(data, 'run-1').append(stage(name)), ledger.append(stage(name))]));
    assert.deepEqual((await kinds()).slice(1).sort(), [...stages].sort());
    assert.deepEqual(
      (await readdir(ledger.directory)).filter((name) => name.endsWith('.tmp')),
      [],
    );
  });

  it('is not disturbed by what a killed writer left', async () => {
    await ledger.append(opened());
    await writeFile(path.join(ledger.directory, '.4711-left.tmp'), '{"schema":"terminal-rsi/led');
    await ledger.append(stage('Base'));
    assert.deepEqual(await kinds(), ['opened', 'Base']);
  });

  it('records a stage again after a restart, and a restart once', async () => {
    for (const body of [opened(), stage('Base'), stage('RSR-1'), closed(), restarted('RSR-1', ['Base']), restarted('RSR-1', ['Base'])])
      await ledger.append(body);
    const again = await ledger.append(stage('RSR-1'));
    assert.deepEqual(await kinds(), ['opened', 'Base', 'RSR-1', 'closed', 'restarted', 'RSR-1']);
    assert.deepEqual(await ledger.append(stage('RSR-1')), again);
    await ledger.append(restarted('RSR-1', ['Base']));
    assert.equal((await kinds()).at(-1), 'restarted');
  });

  it('refuses to go on from a broken ledger', async () => {
    await ledger.append(opened());
    await writeFile(file(0), (await readFile(file(0), 'utf8')).replace('smoke', 'quick'));
    await assert.rejects(ledger.append(stage('Base')), LedgerError);
  });
});

describe('effective stages', () => {
  it('are those that no later restart made void, each in its last version', async () => {
    for (const body of [opened(), stage('Base'), stage('RSR-1', 1), stage('RPR-1'), restarted('RSR-1', ['Base'])])
      await ledger.append(body);
    const names = async (): Promise<string[]> =>
      effectiveStages(await ledger.read()).map(({ content, index }) => `${content.stage} ${index}`);
    assert.deepEqual(await names(), ['Base 1']);
    await ledger.append(stage('RSR-1', 2));
    await ledger.append(stage('RSR-1', 3));
    assert.deepEqual(await names(), ['Base 1', 'RSR-1 6']);
  });
});

describe('reading finds', () => {
  const broken = (place: number, problem: RegExp) => (error: unknown) =>
    error instanceof LedgerError && error.place === file(place) && problem.test(error.message);
  beforeEach(async () => {
    for (const body of [opened(), stage('Base'), stage('RSR-1'), stage('RPR-1')]) await ledger.append(body);
  });

  it('a changed byte', async () => {
    const text = await readFile(file(2), 'utf8');
    await writeFile(file(2), text.replace('"passed":3', '"passed":4'));
    await assert.rejects(ledger.read(), broken(2, /it was changed/));
  });
  it('a record that was changed together with its hash', async () => {
    const other = new Ledger(path.join(data, 'elsewhere'), 'run-1');
    for (const body of [opened(), stage('Base'), stage('RSR-1', 5)]) await other.append(body);
    await writeFile(file(2), await readFile(path.join(other.directory, '000002.json')));
    await assert.rejects(ledger.read(), broken(3, /as the record before it/));
  });
  it('a missing record', async () => {
    await rm(file(1));
    await assert.rejects(ledger.read(), broken(2, /has number 2, expected 1: records are missing or exchanged/));
  });
  it('exchanged records', async () => {
    await rename(file(1), file(9));
    await rename(file(2), file(1));
    await rename(file(9), file(2));
    await assert.rejects(ledger.read(), broken(1, /records are missing or exchanged/));
  });
  it('a torn record', async () => {
    await writeFile(file(3), (await readFile(file(3), 'utf8')).slice(0, 100));
    await assert.rejects(ledger.read(), broken(3, /is not a record of a ledger/));
  });
  it('a record of another run', async () => {
    await assert.rejects(
      (async () => {
        const other = new Ledger(data, 'run-2');
        await rename(ledger.directory, path.join(data, 'moved'));
        await other.append(opened());
        await rm(other.directory, { recursive: true });
        await rename(path.join(data, 'moved'), other.directory);
        await other.read();
      })(),
      /belongs to run run-1, expected run run-2/,
    );
  });
});

it('a run without a ledger has no records', async () => {
  assert.deepEqual(await ledger.read(), []);
});
