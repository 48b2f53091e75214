/** What the reaper is told of a workflow, by a real server. */
import assert from 'node:assert/strict';
import { after, it } from 'node:test';
import { TemporalServer } from '../tests/temporal.ts';
import { TASK_QUEUE } from '../workflows/contract.ts';
import { openWorkflows } from './open-workflows.ts';

const server = await TemporalServer.start();
after(() => server.stop());

it('a workflow is open, closed, or not this server’s', async () => {
  const isOpen = openWorkflows(server.connection, 'default');
  // No worker takes it: it stays open until it is terminated.
  const { workflowId, firstExecutionRunId: runId } = await server.client.workflow.start('trainingRun', {
    taskQueue: TASK_QUEUE,
    workflowId: 'open',
  });
  assert.equal(await isOpen({ workflowId, runId }), true);
  await server.client.workflow.getHandle(workflowId, runId).terminate();
  assert.equal(await isOpen({ workflowId, runId }), false);
  assert.equal(await isOpen({ workflowId: 'of-another-server', runId }), undefined);
});
