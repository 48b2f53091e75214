/**
 * Replay: workflow code is run again against recorded histories, and every command must come as recorded. Each history has
 * gone through JSON text, as an exported one does.
 */
import type { Client } from '@temporalio/client';
import { DefaultLogger, Runtime, Worker } from '@temporalio/worker';
import { childrenOf, continuedAs, fetchHistory } from '../records/history.ts';
import type { WorkflowHistory } from '../records/history.ts';
import { loadWorkflowBundle } from '../workers/bundle.ts';

let quiet = false;
/** The SDK's own log would fill the output of tests. Call it before anything else of the worker's side of the SDK. */
export function quietRuntime(): void {
  if (quiet) return;
  quiet = true;
  Runtime.install({
    logger: new DefaultLogger('ERROR'),
    telemetryOptions: { logging: { filter: { core: 'ERROR', other: 'ERROR' } } },
    shutdownSignals: [],
  });
}

let bundle: ReturnType<typeof loadWorkflowBundle> | undefined;
/** The bundle of today's workflows, from the workers' cache; read once per process. */
export function workflowBundle(): ReturnType<typeof loadWorkflowBundle> {
  return (bundle ??= loadWorkflowBundle());
}

/**
 * The histories of all executions on the server, or of those of one workflow id and the ids below it, oldest first. The server's
 * list lags behind: an execution that is not in it yet is found from the one that started it or continued as it.
 */
export async function fetchHistories(client: Client, of?: string): Promise<WorkflowHistory[]> {
  const found = new Map<string, WorkflowHistory>();
  const fetch = async (id: { workflowId: string; runId: string }): Promise<void> => {
    if (found.has(id.runId)) return;
    const history = await fetchHistory(client, { workflowId: id.workflowId, runId: id.runId });
    found.set(id.runId, history);
    for (const child of childrenOf(history)) await fetch(child);
    const runId = continuedAs(history);
    if (runId !== undefined) await fetch({ workflowId: id.workflowId, runId });
  };
  for await (const listed of client.workflow.list()) {
    if (of === undefined || listed.workflowId === of || listed.workflowId.startsWith(`${of}/`)) await fetch(listed);
  }
  const startOf = ({ events }: WorkflowHistory): string => events[0]?.eventTime ?? '';
  return [...found.values()].sort((a, b) => Date.parse(startOf(a)) - Date.parse(startOf(b)));
}

/**
 * Replays histories against `workflowBundle`, by default that of today's workflows.
 * @returns how many were replayed: a workflow that no worker has taken up yet has nothing to replay.
 * @throws Error naming the first execution that does not replay; the cause tells why.
 */
export async function replayHistories(
  histories: readonly Pick<WorkflowHistory, 'workflowId' | 'runId' | 'json'>[],
  options: { readonly workflowBundle?: { readonly code: string } } = {},
): Promise<number> {
  const begun = histories.filter(({ json }) => json.includes('EVENT_TYPE_WORKFLOW_TASK_COMPLETED'));
  if (begun.length === 0) return 0;
  quietRuntime();
  const { code } = options.workflowBundle ?? (await workflowBundle());
  const parsed = begun.map(({ workflowId, json }) => ({ workflowId, history: JSON.parse(json) as unknown }));
  let replayed = 0;
  for await (const { workflowId, runId, error } of Worker.runReplayHistories({ workflowBundle: { code } }, parsed)) {
    if (error) throw new Error(`the history of ${workflowId} (run ${runId}) does not replay: ${error.message}`, { cause: error });
    replayed++;
  }
  return replayed;
}
