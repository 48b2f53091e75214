/** Which tasks of another dataset a run trains on: those that the dataset's gate file accepts, as they were checked. */
import assert from 'node:assert/strict';
import { appendFile, cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { UserError } from '../environment/errors.ts';
import { openDataset } from '../environment/tasks/datasets.ts';
import { rejected } from '../environment/trial/check.ts';
import { ArtifactStore } from '../records/artifacts.ts';
import { gateFileOf, writeGate } from '../records/gate.ts';
import type { GateTask } from '../records/gate.ts';
import { repoRoot } from '../records/paths.ts';
import type { PrepareRunResult } from '../workflows/contract.ts';
import { resolveConfig } from '../workflows/profiles.ts';
import type { RolloutDependencies } from './dependencies.ts';
import { prepareRun } from './prepare-run.ts';

const home = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-prepare-'));
after(() => rm(home, { recursive: true }));

const unused = (): never => assert.fail('preparing asks for none');
const deps: RolloutDependencies = {
  ...{ store: new ArtifactStore(path.join(home, 'artifacts')), data: home, provider: unused, policy: unused, task: unused },
  sampler: { sample: unused, endSession: unused },
  dataset: (place, selection) => openDataset(place, selection),
};
let runs = 0;
const prepare = (input: Record<string, unknown>): Promise<PrepareRunResult> =>
  prepareRun(deps, { runKey: `run-${++runs}`, workflowId: `run-${runs}`, config: resolveConfig({ profile: 'smoke', ...input }) });
const refused = async (input: Record<string, unknown>, message: RegExp): Promise<void> => {
  await assert.rejects(
    prepare(input),
    (error) => (error instanceof UserError && message.test(error.message)) || assert.fail(String(error)),
  );
};

/** A copy of the tasks in a folder of its own, with a gate file where `change` gives entries. */
async function dataset(name: string, change?: (entry: GateTask) => GateTask, sandbox: 'embedded' | 'docker' = 'embedded'): Promise<string> {
  const folder = path.join(home, name);
  await cp(path.join(repoRoot, 'tests/fixtures/rewrite-tasks'), folder, { recursive: true });
  if (!change) return folder;
  const { tasks } = await openDataset(folder);
  const entries = tasks.flatMap(({ task }) => (task ? [change({ ...rejected(task, []), accepted: true, trainable: true })] : []));
  const tool = { version: '0', code: '0' };
  await writeGate(gateFileOf(folder), { schema: 'terminal-rsi/gate@1', tool, dataset: name, sandbox, repeats: 2, tasks: entries });
  return folder;
}

describe('training on another dataset', () => {
  it('takes the tasks that its gate accepts, wherever they lie', async () => {
    const some = (entry: GateTask): GateTask =>
      entry.id === 'release' ? { ...entry, accepted: false, trainable: false, reasons: ['flaky'] } : entry;
    const [here, there] = [await dataset('here/mine', some), await dataset('there/mine', some)];
    const [one, other, builtIn] = [await prepare({ dataset: here }), await prepare({ dataset: there }), await prepare({})];
    assert.deepEqual(one.training.map(({ suite, id, dir }) => [suite, id, dir]).sort(), [
      ['mine', 'pointer-chain', path.join(here, 'pointer-chain')],
      ['mine', 'workflow-rebuild', path.join(here, 'workflow-rebuild')],
    ]);
    assert.equal(one.tasksHash, other.tasksHash);
    assert.notEqual(one.tasksHash, builtIn.tasksHash, 'no stage of other tasks is reused');
    assert.deepEqual(one.suites, builtIn.suites);
    assert.ok(builtIn.training.every(({ dir }) => dir === undefined));
  });

  it('does not pass for a built-in suite of the same name', async () => {
    const { training } = await prepare({ dataset: await dataset('core', (entry) => entry) });
    assert.deepEqual([...new Set(training.map(({ suite }) => suite))], ['core-dataset']);
  });

  it('is refused without a gate file, with one of another sandbox, and where nothing in it can be used', async () => {
    await refused({ dataset: await dataset('ungated') }, /ungated\/gate\.json: no gate file .*npm run tasks -- check/);
    await refused(
      { dataset: await dataset('docker', (entry) => entry, 'docker') },
      /sandbox: got embedded, expected docker, in which .*gate\.json was made/,
    );
    const none = await dataset('none', (entry) => ({ ...entry, trainable: false, reasons: ['hackable: forged-reward'] }));
    await refused({ dataset: none }, /none of the 3 tasks of .*none can be trained on.*\n.*: hackable: forged-reward/);
    await refused({ dataset: path.join(home, 'nowhere') }, /nowhere/);
  });

  it('leaves out what has changed since it was checked', async () => {
    const folder = await dataset('changed', (entry) => entry);
    await appendFile(path.join(folder, 'release', 'instruction.md'), 'One more thing.\n');
    const { training } = await prepare({ dataset: folder });
    assert.deepEqual(training.map(({ id }) => id).sort(), ['pointer-chain', 'workflow-rebuild']);
  });
});
