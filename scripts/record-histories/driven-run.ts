/** One run of a scenario on a server: activities that can be held, and what a person can do to it from outside. */
import type { WorkflowHandle } from '@temporalio/client';
import { fetchHistory } from '../../records/history.ts';
import { recordedActivities } from '../../tests/recorded-activities.ts';
import type { Behaviour, Call } from '../../tests/recorded-activities.ts';
import type { TemporalServer } from '../../tests/temporal.ts';
import { withWorkers } from '../../tests/temporal.ts';
import { TASK_QUEUE } from '../../workflows/contract.ts';
import type { StageResult } from '../../workflows/contract.ts';
import type { trainingRun } from '../../workflows/training-run.ts';
import type { Scenario } from './scenarios.ts';

/** The first call of an activity in a stage, e.g. `verify in RSR-1`. */
export type Stop = `${Call['name']} in ${string}`;
export interface DrivenRun {
  readonly handle: WorkflowHandle<typeof trainingRun>;
  /** Resolves when the call has come. */
  readonly held: (stop: Stop) => Promise<void>;
  /** Lets it go on. */
  readonly release: (stop: Stop) => void;
  /** Lets the run start again from the stage, as the UI's Reset does. */
  readonly resetTo: (stage: string) => Promise<void>;
}

class Hold {
  readonly reached: Promise<void>;
  readonly released: Promise<void>;
  reach: () => void = () => undefined;
  release: () => void = () => undefined;
  constructor() {
    this.reached = new Promise((resolve) => (this.reach = resolve));
    this.released = new Promise((resolve) => (this.release = resolve));
  }
}

/**
 * Runs the scenario to its end. `finished` has the stages that are found finished; those that it records are added.
 * @returns how it ended: `completed`, `cancelled`, or `failed`.
 */
export async function driveRun(
  server: TemporalServer,
  scenario: Scenario,
  finished: Record<string, StageResult>,
): Promise<Scenario['ends']> {
  const { client } = server;
  const holds = new Map(scenario.holds?.map((stop) => [stop, new Hold()]));
  const hold = (stop: Stop): Hold => {
    const found = holds.get(stop);
    if (!found) throw new Error(`scenario ${scenario.name}: ${stop} is not among its holds`);
    return found;
  };
  const behaviour: Behaviour = {
    ...scenario.behaviour,
    finished,
    async before(call) {
      await scenario.behaviour?.before?.(call);
      const stage = stageOf(call);
      if (call.name === 'recordStage' && stage !== undefined) {
        finished[stage] = { ...(call.input['result'] as StageResult), record: { index: 1, hash: `record of ${stage}` } };
      }
      const stop: Stop = `${call.name} in ${stage ?? 'Base'}`;
      const found = holds.get(stop);
      found?.reach();
      await found?.released;
    },
  };
  return await withWorkers(server, recordedActivities(behaviour), async () => {
    await client.workflow.start(scenario.workflow ?? 'trainingRun', {
      taskQueue: TASK_QUEUE,
      workflowId: scenario.name,
      args: [scenario.input],
      workflowExecutionTimeout: '10m',
    });
    // By its id alone: after a reset the latest execution is meant.
    const handle = client.workflow.getHandle<typeof trainingRun>(scenario.name);
    await scenario.drive?.({
      handle,
      held: (stop) => hold(stop).reached,
      release: (stop) => hold(stop).release(),
      resetTo: (stage) => resetTo(server, handle, stage),
    });
    try {
      await handle.result();
      return 'completed';
    } catch {
      const { status } = await handle.describe();
      return status.name === 'CANCELLED' ? 'cancelled' : 'failed';
    }
  });
}

/** Activities of the whole run name their stage beside the key, or belong to Base. */
function stageOf({ input }: Call): string | undefined {
  return input.key?.stage ?? (input['stage'] as string | undefined);
}

/** The reset point is the workflow task that looked for the finished stage. */
async function resetTo({ client }: TemporalServer, handle: DrivenRun['handle'], stage: string): Promise<void> {
  const { runId } = await handle.describe();
  const { events } = await fetchHistory(client, { workflowId: handle.workflowId, runId });
  const opening = events.find(({ activityTaskScheduledEventAttributes: scheduled, userMetadata }) => {
    const summary = Buffer.from(userMetadata?.summary?.data ?? '', 'base64').toString();
    return scheduled?.activityType.name === 'openStage' && summary.includes(stage);
  });
  const finishEvent = opening?.activityTaskScheduledEventAttributes?.['workflowTaskCompletedEventId'];
  if (typeof finishEvent !== 'string') throw new Error(`the history of ${handle.workflowId} has no opening of ${stage}`);
  await client.workflowService.resetWorkflowExecution({
    namespace: client.options.namespace,
    workflowExecution: { workflowId: handle.workflowId, runId },
    workflowTaskFinishEventId: Number(finishEvent) as never, // Long in the type; the encoder takes a number
    requestId: `${runId}/${stage}`,
    reason: `recording: again from ${stage}`,
  });
}
