/**
 * Histories that released versions recorded replay on today's workflows. A red test here means that runs which are open when
 * this code is deployed would be stuck: docs/workflow-changes.md says what to do.
 */
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';
import { describe, it } from 'node:test';
import { bundleWorkflowCode, DefaultLogger, Worker } from '@temporalio/worker';
import { repoRoot } from '../records/paths.ts';
import { readIndex, readScenario, recordedVersions } from '../tests/recorded-histories.ts';
import { quietRuntime, replayHistories, workflowBundle } from '../tests/replay.ts';

const versions = await recordedVersions();

describe('recorded histories replay', () => {
  for (const version of versions) {
    it(version, async () => {
      const { scenarios } = readIndex(version);
      const histories = (await Promise.all(scenarios.map(({ name }) => readScenario(version, name)))).flat();
      assert.equal(
        histories.length,
        scenarios.reduce((sum, { executions }) => sum + executions, 0),
      );
      assert.equal(await replayHistories(histories), histories.length);
    });
  }
});

it('a workflow that calls its activities in another order does not replay', async () => {
  quietRuntime();
  const workflowsPath = path.join(repoRoot, 'tests', 'fixtures', 'changed-workflows.ts');
  const changed = await bundleWorkflowCode({ workflowsPath, logger: new DefaultLogger('ERROR') });
  const [history] = (await readScenario(versions.at(-1) ?? '', 'whole-run')).filter(({ type }) => type === 'evaluation');
  assert.ok(history);
  await replayHistories([history]);
  await assert.rejects(replayHistories([history], { workflowBundle: changed }), /evaluation \(run .*does not replay: .*TMPRL1100/s);
});

/**
 * Several copies of protobufjs in node_modules make every replay of JSON fail with "type must be a Type"; npm makes them
 * when a dependency wants another major version. The direct dependency in package.json prevents it.
 */
describe('history JSON', () => {
  it('is read with one protobufjs for all packages of the SDK', () => {
    const require = createRequire(import.meta.url);
    const copies = ['@temporalio/proto', '@temporalio/worker', '@temporalio/common', '@temporalio/client'].map((name) =>
      require.resolve('protobufjs', { paths: [path.join(repoRoot, 'node_modules', name)] }),
    );
    assert.deepEqual([...new Set(copies)], [require.resolve('protobufjs')]);
  });

  it('replays as the text that an export is', async () => {
    const [history] = await readScenario(versions.at(-1) ?? '', 'invalid-input');
    const { code } = await workflowBundle();
    await Worker.runReplayHistory({ workflowBundle: { code } }, JSON.parse(history?.json ?? ''), history?.workflowId);
  });
});
