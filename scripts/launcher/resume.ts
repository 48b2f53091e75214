/**
 * Going on with a run by intent: from the point where it failed, from the beginning of a stage, or as a fork with other settings.
 * What a run has finished is told by its ledger; where its execution goes on is a reset, as the Temporal UI offers it.
 *
 * Invariants:
 *  I1 Nothing of the run is at work while its ledger and folders change: an open execution is ended first.
 *  I2 The restart is recorded before the reset: whatever is lost in between, the stage is void and not found finished again.
 *  I3 Each step may be repeated: the same command once more ends in the same state.
 */
import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client, WorkflowExecutionDescription, WorkflowHandle } from '@temporalio/client';
import type { temporal } from '@temporalio/proto';
import { UserError } from '../../environment/errors.ts';
import { ArtifactError } from '../../records/artifacts.ts';
import type { ArtifactStore } from '../../records/artifacts.ts';
import { fetchHistory } from '../../records/history.ts';
import { effectiveStages, Ledger } from '../../records/ledger.ts';
import type { LedgerRecord } from '../../records/ledger.ts';
import { configChanges, findRun, precedes, recordedResult, stageFolders } from '../../records/lineage.ts';
import type { RunConfig } from '../../workflows/config.ts';
import type { StageName, TrainingRunInput } from '../../workflows/contract.ts';
import { mergeInput, plannedStages } from '../../workflows/profiles.ts';
import { failurePoint, stagePoint } from './reset-points.ts';
import { checkedConfig, startRun } from './run.ts';
import type { StartedRun } from './run.ts';
import { updateState } from './state.ts';

/** Training writes its checkpoint when it is cancelled; a worker notices at its next heartbeat. */
const CANCEL_PATIENCE_MS = 60_000;

export interface KnownRun {
  readonly runKey: string;
  readonly workflowId: string;
  readonly config: RunConfig;
  readonly records: readonly LedgerRecord[];
}

/** The run of that key or workflow id, from its ledger. Throws UserError naming the runs there are. */
export async function lookUpRun(data: string, name: string): Promise<KnownRun> {
  const runKey = await findRun(data, name);
  const records = await new Ledger(data, runKey).read();
  const opened = records.find((record) => record.kind === 'opened');
  if (!opened) throw new UserError(`run ${runKey} has no ledger: it never began, or an older version ran it`);
  return { runKey, workflowId: opened.observed.workflowId, config: opened.content.config, records };
}

/** Goes on with a run: follows an open or finished one, and resets any other, also one that waits in vain, to the point where it stopped. */
export async function goOn(client: Client, data: string, run: KnownRun, tell: (message: string) => void): Promise<StartedRun> {
  const handle = client.workflow.getHandle(run.workflowId);
  const now = await newestExecution(client, run);
  const inVain = now.status.name === 'RUNNING' && (await waitsInVain(client, run, now.runId));
  if (inVain || (now.status.name !== 'RUNNING' && now.status.name !== 'COMPLETED')) {
    const { events } = await fetchHistory(client, { workflowId: run.workflowId, runId: now.runId });
    const point = failurePoint(events);
    if (point === undefined)
      throw new UserError(`run ${run.workflowId} ended at its input, before anything ran: start a run with a correct one`);
    const why = inVain ? 'waits for a workflow that was ended' : `ended as ${now.status.name.toLowerCase().replace('_', ' ')}`;
    tell(`The run ${why}; it goes on before ${point.what}.`);
    await reset(client, run, now.runId, point.eventId, `resumed before ${point.what}`);
  }
  await updateState(data, (state) => ({ ...state, workflowId: run.workflowId }));
  return { handle, continued: true };
}

export interface RestartOptions {
  readonly from: StageName;
  readonly by: string;
}

/**
 * Runs a stage and all after it again. Throws UserError, with nothing changed, where the stage is none of the run, was taken over from
 * another run, or has not begun, and where the server does not know the run's execution any more.
 */
export async function restartFrom(
  client: Client,
  data: string,
  run: KnownRun,
  { from, by }: RestartOptions,
  tell: (message: string) => void,
): Promise<StartedRun> {
  const { runKey, workflowId, config } = run;
  const planned = checkedStage(config, from);
  if (config.fork && precedes(from, config.fork.from)) {
    throw new UserError(
      `--from ${from}: the run took that stage over from run ${config.fork.run}; go back there, or to ${config.fork.from} here`,
    );
  }
  const handle = client.workflow.getHandle(workflowId);
  const now = await newestExecution(client, run);
  const history = await fetchHistory(client, { workflowId, runId: now.runId });
  const eventId = stagePoint(history.events, from);
  const finished = effectiveStages(run.records).map(({ content }) => content.stage);
  if (eventId === undefined) {
    const last = run.records.at(-1);
    // An earlier call of this command was lost after the reset, or its reset has not come that far.
    if (last?.kind === 'restarted' && last.content.from === from && now.status.name === 'RUNNING') return { handle, continued: true };
    throw new UserError(
      `--from ${from}: run ${workflowId} has not come to that stage (finished: ${finished.join(', ') || 'none'}); without --from it goes on where it is`,
    );
  }
  if (now.status.name === 'RUNNING') {
    tell('Ending what is at work; training writes its checkpoint first …');
    await end(client, handle, now.runId);
  }
  const kept = planned.filter((stage) => precedes(stage, from));
  await new Ledger(data, runKey).append({
    kind: 'restarted',
    content: { from, kept },
    observed: { recordedAt: new Date().toISOString(), by },
  });
  for (const stage of planned.slice(kept.length))
    for (const folder of stageFolders(data, runKey, stage)) await rm(folder, { recursive: true, force: true });
  await reset(client, run, now.runId, eventId, `restarted from ${from} by ${by}`);
  await updateState(data, (state) => ({ ...state, workflowId }));
  tell(`Restarted from ${from}${kept.length === 0 ? '' : `; kept: ${kept.join(', ')}`}.`);
  return { handle, continued: true };
}

export interface ForkOptions {
  readonly from: StageName;
  readonly changes: TrainingRunInput;
}

/**
 * A new run that takes over the stages before `from`. Needs the ledger and the artifacts of the other run, not its histories. Throws
 * UserError where a stage before is not finished, one of its artifacts is missing or damaged, or a changed setting is wrong.
 */
export async function forkRun(
  client: Client,
  data: string,
  store: ArtifactStore,
  run: KnownRun,
  { from, changes }: ForkOptions,
  tell: (message: string) => void,
): Promise<StartedRun> {
  const { runKey, workflowId } = run;
  const merged = mergeInput(run.config, changes) as TrainingRunInput;
  const input = { ...merged, fork: { run: runKey, from } };
  const config = checkedConfig(input);
  if (from === 'Base') throw new UserError('--fork --from base shares no stage: start a run of its own with `npm run start-run`');
  const before = checkedStage(config, from).filter((stage) => precedes(stage, from));
  const finished = effectiveStages(run.records);
  for (const stage of before) {
    const record = finished.find(({ content }) => content.stage === stage);
    if (!record) throw new UserError(`--from ${from}: ${stage} is not finished in run ${workflowId}`);
    try {
      await recordedResult(store, record);
    } catch (error) {
      if (error instanceof ArtifactError) throw new UserError(`${stage} of run ${workflowId} cannot be shared: ${error.message}`);
      throw error;
    }
  }
  const changed = configChanges(run.config, config);
  tell(`Shares ${before.join(', ')} with run ${workflowId}.`);
  for (const { path, before: old, after } of changed) tell(`  ${path}: ${JSON.stringify(old)} → ${JSON.stringify(after)}`);
  return await startRun(client, data, input, `fork of ${workflowId} from ${from}`);
}

function checkedStage(config: RunConfig, stage: StageName): StageName[] {
  const planned = plannedStages(config.rounds);
  if (!planned.includes(stage)) throw new UserError(`--from is ${stage}, expected one of ${planned.join(', ')}`);
  return planned;
}

/** Throws UserError where the server's newest execution of that workflow id is not of this run, or there is none. */
async function newestExecution(client: Client, { workflowId, runKey }: KnownRun): Promise<WorkflowExecutionDescription> {
  const instead = 'with --from STAGE --fork a new run goes on from what is finished, which needs no server';
  let now: WorkflowExecutionDescription;
  try {
    now = await client.workflow.getHandle(workflowId).describe();
  } catch (error) {
    if (!(error instanceof Error) || error.name !== 'WorkflowNotFoundError') throw error;
    throw new UserError(`the Temporal server does not know run ${workflowId}: its history is lost or expired; ${instead}`);
  }
  const { history } = await client.workflowService.getWorkflowExecutionHistory({
    namespace: client.options.namespace,
    execution: { workflowId, runId: now.runId },
    maximumPageSize: 1,
  });
  const original = history?.events?.[0]?.workflowExecutionStartedEventAttributes?.originalExecutionRunId;
  if (original === runKey) return now;
  throw new UserError(`the newest run named ${workflowId} on the Temporal server is ${original ?? 'unknown'}, not ${runKey}; ${instead}`);
}

/**
 * A reset into the middle of a stage whose workflow has been cancelled or terminated. The server tells the new execution only of what
 * ends after the reset; then it is about to fail.
 */
async function waitsInVain(client: Client, { workflowId }: KnownRun, runId: string): Promise<boolean> {
  const { pendingChildren } = await client.workflowService.describeWorkflowExecution({
    namespace: client.options.namespace,
    execution: { workflowId, runId },
  });
  for (const child of pendingChildren ?? []) {
    const { status } = await client.workflow.getHandle(child.workflowId ?? '').describe();
    if (status.name === 'TERMINATED' || status.name === 'CANCELLED') return true;
  }
  // Asked after the list above, so that a child that ended in between is in one of the two.
  const { events } = await fetchHistory(client, { workflowId, runId });
  return events.some(({ eventType }) => eventType === 'EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_TERMINATED');
}

/** Cancels an execution and waits, so that its activities have stopped writing; terminates it where no worker answers. */
async function end(client: Client, handle: WorkflowHandle, runId: string): Promise<void> {
  const { workflowId } = handle;
  const execution = client.workflow.getHandle(workflowId, runId);
  await execution.cancel();
  for (const deadline = Date.now() + CANCEL_PATIENCE_MS; Date.now() < deadline; await sleep(200))
    if ((await execution.describe()).status.name !== 'RUNNING') return;
  await execution.terminate('it did not end when it was cancelled');
}

async function reset(client: Client, { workflowId }: KnownRun, runId: string, eventId: string, reason: string): Promise<void> {
  const request = {
    namespace: client.options.namespace,
    workflowExecution: { workflowId, runId },
    // A number is what protobufjs encodes as well, and its types do not say so.
    workflowTaskFinishEventId: Number(
      eventId,
    ) as unknown as temporal.api.workflowservice.v1.ResetWorkflowExecutionRequest['workflowTaskFinishEventId'],
    requestId: randomUUID(),
    reason,
  };
  await client.workflowService.resetWorkflowExecution(request);
}
