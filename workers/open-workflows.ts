/** Whether a workflow is still open, for the reaper of containers (environment/docker/reaper.ts). */
import { WorkflowClient } from '@temporalio/client';
import { WorkflowNotFoundError } from '@temporalio/common';
import type { NativeConnection } from '@temporalio/worker';
import type { WorkflowRef } from '../environment/docker/reaper.ts';

/** Of one namespace. undefined: this server does not know the workflow, which may be another server's. Throws when it does not answer. */
export function openWorkflows(connection: NativeConnection, namespace: string): (workflow: WorkflowRef) => Promise<boolean | undefined> {
  const client = new WorkflowClient({ connection, namespace });
  return async ({ workflowId, runId }) => {
    try {
      const { status } = await client.getHandle(workflowId, runId).describe();
      if (status.name === 'UNSPECIFIED' || status.name === 'UNKNOWN') return undefined;
      return status.name === 'RUNNING' || status.name === 'PAUSED';
    } catch (error) {
      if (error instanceof WorkflowNotFoundError) return undefined;
      throw error;
    }
  };
}
