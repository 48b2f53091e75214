import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { it } from 'node:test';
import { bundleWorkflowCode, DefaultLogger } from '@temporalio/worker';
import { repoRoot } from '../records/paths.ts';
import { TASK_QUEUE } from '../workflows/contract.ts';
import { recordedActivities } from './recorded-activities.ts';
import { quietRuntime } from './replay.ts';
import { TemporalServer, withWorkers } from './temporal.ts';

it('a server whose histories do not replay does not stop without an error', async () => {
  quietRuntime();
  const workflowsPath = path.join(repoRoot, 'tests', 'fixtures', 'changed-workflows.ts');
  const changed = await bundleWorkflowCode({ workflowsPath, logger: new DefaultLogger('ERROR') });
  const server = await TemporalServer.start({ workflowBundle: changed });
  await withWorkers(server, recordedActivities(), async () => {
    await server.client.workflow.execute('trainingRun', { taskQueue: TASK_QUEUE, workflowId: 'run', args: [{ profile: 'smoke' }] });
  });
  await assert.rejects(server.stop(), /the history of run\/\S+\/evaluation \(run \S+\) does not replay/);
});

it('a test file that does not stop its server fails', () => {
  const code = `const { TemporalServer } = await import('./tests/temporal.ts'); await TemporalServer.start();`;
  const { status, stderr } = spawnSync(process.execPath, ['--import', 'tsx', '--input-type=module', '--eval', code], {
    cwd: repoRoot,
    encoding: 'utf8',
  });
  assert.equal(status, 1);
  assert.match(stderr, /a TemporalServer was not stopped/);
});
