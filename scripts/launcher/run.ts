/** Starting, finding and following a training run. */
import { copyFile, mkdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { defaultPayloadConverter, WorkflowExecutionAlreadyStartedError, type Client, type WorkflowHandle } from '@temporalio/client';
import type { temporal } from '@temporalio/proto';
import { UserError } from '../../environment/errors.ts';
import { canonicalJson } from '../../records/canonical-json.ts';
import { runResultSchema } from '../../records/result.ts';
import { TASK_QUEUE, type RunProgress, type TrainingRunInput, type TrainingRunResult } from '../../workflows/contract.ts';
import { resolveConfig } from '../../workflows/profiles.ts';
import type { LiveActivity, LiveTable } from '../live-table.ts';
import type { LaunchOptions } from './options.ts';
import { workflowOutcome } from './outcome.ts';
import { readState, updateState } from './state.ts';

const WORKFLOW_TYPE = 'trainingRun';
/** More than that are looked up in the UI. */
const MOST_OPEN_RUNS = 20;

export interface StartedRun {
  readonly handle: WorkflowHandle;
  readonly continued: boolean;
}

/** Starts a run; `note` stands beside it in the list of workflows. Throws UserError when the configuration is wrong, before anything runs. */
export async function startRun(client: Client, data: string, input: TrainingRunInput, note?: string): Promise<StartedRun> {
  const config = checkedConfig(input);
  const time = new Date().toISOString().slice(0, 19).replace(/[-:]/g, '').replace('T', '-');
  const workflowId = `run-${config.profile}-seed${config.seed}-${time}`;
  try {
    const handle = await client.workflow.start(WORKFLOW_TYPE, {
      workflowId,
      taskQueue: TASK_QUEUE,
      args: [input],
      memo: { input: canonicalJson(input) },
      staticSummary: [config.profile, `seed ${config.seed}`, config.sandbox, ...(note === undefined ? [] : [note])].join(' · '),
    });
    await updateState(data, (state) => ({ ...state, workflowId }));
    return { handle, continued: false };
  } catch (error) {
    if (error instanceof WorkflowExecutionAlreadyStartedError)
      throw new UserError(`a run named ${workflowId} started within this second; try again`);
    throw error;
  }
}

/**
 * Goes on with the open run of this data folder, else starts one. Throws UserError when a run with other options is open: its
 * result would not be the one that was asked for.
 */
export async function continueOrStart(client: Client, data: string, options: LaunchOptions): Promise<StartedRun> {
  checkedConfig(options.input);
  const open = options.fresh ? undefined : await openRun(client, data);
  if (!open) return startRun(client, data, options.input);
  const asked = canonicalJson(options.input);
  if (asked !== '{}' && asked !== open.input) {
    throw new UserError(
      `run ${open.workflowId} (input ${open.input ?? 'unknown'}) is still open in this data folder, and other options are asked for: ${asked}. ` +
        'Without options the open run goes on; with --new another one starts beside it; in the Temporal UI it can be cancelled.',
    );
  }
  return { handle: client.workflow.getHandle(open.workflowId), continued: true };
}

/** The complete configuration. Throws UserError with a line for each field that is wrong. */
export function checkedConfig(input: unknown): ReturnType<typeof resolveConfig> {
  try {
    return resolveConfig(input);
  } catch (error) {
    throw new UserError(error instanceof Error ? error.message : String(error));
  }
}

/** The run that this data folder started last, if it is open. */
async function openRun(client: Client, data: string): Promise<{ workflowId: string; input: string | undefined } | undefined> {
  const { workflowId } = await readState(data);
  if (workflowId === undefined) return undefined;
  try {
    const description = await client.workflow.getHandle(workflowId).describe();
    const input = description.memo?.['input'];
    return description.status.name === 'RUNNING' ? { workflowId, input: typeof input === 'string' ? input : undefined } : undefined;
  } catch (error) {
    if (error instanceof Error && error.name === 'WorkflowNotFoundError') return undefined;
    throw error;
  }
}

/** Ids of the runs that are open on the server, newest first, e.g. those started from the UI before a restart. At most 20. */
export async function openRuns(client: Client): Promise<string[]> {
  const query = `WorkflowType = '${WORKFLOW_TYPE}' AND TaskQueue = '${TASK_QUEUE}' AND ExecutionStatus = 'Running'`;
  const ids: string[] = [];
  for await (const { workflowId } of client.workflow.list({ query, pageSize: MOST_OPEN_RUNS })) {
    ids.push(workflowId);
    if (ids.length === MOST_OPEN_RUNS) break;
  }
  return ids;
}

export type RunOutcome = { readonly ok: true; readonly result: TrainingRunResult } | { readonly ok: false; readonly message: string };

/** Shows the run in `table` until it ends. With `signal` aborted: returns undefined, the run goes on. */
export async function followRun(
  client: Client,
  handle: WorkflowHandle,
  table: LiveTable,
  signal: AbortSignal,
): Promise<RunOutcome | undefined> {
  const ended = { yes: false };
  const outcome = outcomeOf(handle).finally(() => (ended.yes = true));
  let stages = 0;
  let lastStageEndedAt: number | undefined;
  while (!ended.yes && !signal.aborted) {
    // Queries fail while no worker is up; the run itself does not, and the next second may answer.
    const progress = await handle.query<RunProgress>('progress').catch(() => undefined);
    if (ended.yes || signal.aborted) break;
    if (progress) {
      if (progress.stages.length > stages) lastStageEndedAt = stages === 0 && progress.stages.length > 1 ? undefined : Date.now();
      stages = progress.stages.length;
      const activities = await pendingActivities(client, handle.workflowId).catch(() => []);
      table.update({ progress, activities, now: Date.now(), ...(lastStageEndedAt === undefined ? {} : { lastStageEndedAt }) });
    }
    await Promise.race([sleep(1000, undefined, { signal }).catch(() => undefined), outcome.catch(() => undefined)]);
  }
  return ended.yes ? outcome : undefined;
}

async function outcomeOf(handle: WorkflowHandle): Promise<RunOutcome> {
  const outcome = await workflowOutcome<TrainingRunResult>(handle);
  return outcome.ok ? outcome : { ok: false, message: [...new Set(outcome.causes)].join(': ') };
}

/** Pending activities of the run and of its open children, two levels deep (stage → episode batch). */
async function pendingActivities(client: Client, workflowId: string, depth = 2): Promise<LiveActivity[]> {
  const { pendingActivities: pending, pendingChildren } = await client.workflowService.describeWorkflowExecution({
    namespace: client.options.namespace,
    execution: { workflowId },
  });
  const own = (pending ?? []).map(liveActivity);
  if (depth === 0) return own;
  const below = await Promise.all(
    (pendingChildren ?? []).slice(0, 8).map((child) => pendingActivities(client, child.workflowId ?? '', depth - 1).catch(() => [])),
  );
  return [...own, ...below.flat()];
}

function liveActivity(info: temporal.api.workflow.v1.IPendingActivityInfo): LiveActivity {
  const payload = info.heartbeatDetails?.payloads?.[0];
  const details: unknown = payload ? defaultPayloadConverter.fromPayload(payload) : undefined;
  const step = numberIn(details, 'step');
  const totalSteps = numberIn(details, 'totalSteps');
  const loss = numberIn(details, 'loss');
  const failure = info.lastFailure?.message;
  return {
    type: info.activityType?.name ?? 'activity',
    attempt: info.attempt ?? 1,
    ...(step === undefined ? {} : { step }),
    ...(totalSteps === undefined ? {} : { totalSteps }),
    ...(loss === undefined ? {} : { loss }),
    ...(failure ? { lastFailure: failure } : {}),
  };
}

function numberIn(value: unknown, key: string): number | undefined {
  const found: unknown = typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[key] : undefined;
  return typeof found === 'number' && Number.isFinite(found) ? found : undefined;
}

/** Copies the run's result.json, validated, to where the person asked for it. */
export async function writeResultFile(data: string, result: TrainingRunResult, file: string): Promise<void> {
  const source = path.join(data, result.report, 'result.json');
  runResultSchema.parse(JSON.parse(await readFile(source, 'utf8')));
  await mkdir(path.dirname(path.resolve(file)), { recursive: true });
  await copyFile(source, file);
}
