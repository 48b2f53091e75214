/** Today's workflow code run again against recorded histories: every command must come as it was recorded. */
import { DefaultLogger, Runtime, Worker } from '@temporalio/worker';
import { loadWorkflowBundle } from '../../workers/bundle.ts';
import type { Findings } from './findings.ts';
import type { SourcedHistory } from './source.ts';

export async function checkReplay(
  findings: Findings,
  histories: readonly SourcedHistory[],
  stageOf: (workflowId: string) => string | undefined,
): Promise<void> {
  // A workflow that no worker has taken up yet has nothing to replay.
  const begun = histories.filter(({ events }) => events.some(({ eventType }) => eventType === 'EVENT_TYPE_WORKFLOW_TASK_COMPLETED'));
  if (begun.length === 0) return;
  quietRuntime();
  const { code, stamp } = await loadWorkflowBundle();
  for (const history of begun) {
    findings.count('replay');
    const failure = await replayed(code, history);
    if (failure === undefined) continue;
    findings.problem(
      'replay',
      history.place,
      `workflow code that goes the recorded way (this is source ${stamp.source}, SDK ${stamp.sdk})`,
      `it cannot be replayed by today's code: ${failure}`,
      stageOf(history.workflowId),
    );
  }
}

/** One at a time: a history that the SDK cannot even read must not hide the others. */
async function replayed(code: string, { workflowId, json }: SourcedHistory): Promise<string | undefined> {
  try {
    for await (const { error } of Worker.runReplayHistories({ workflowBundle: { code } }, [
      { workflowId, history: JSON.parse(json) as unknown },
    ]))
      if (error) return error.message.split('\n')[0] ?? error.message;
    return undefined;
  } catch (error) {
    return error instanceof Error ? (error.message.split('\n')[0] ?? error.message) : String(error);
  }
}

let quiet = false;
/** The SDK's own log would stand between the lines of the audit. */
function quietRuntime(): void {
  if (quiet) return;
  quiet = true;
  try {
    Runtime.install({
      logger: new DefaultLogger('ERROR'),
      telemetryOptions: { logging: { filter: { core: 'ERROR', other: 'ERROR' } } },
      shutdownSignals: [],
    });
  } catch {
    // The process has one already, e.g. that of a test.
  }
}
