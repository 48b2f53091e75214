/**
 * The activities around a stage: `openStage` looks for it among the finished ones, `recordStage` writes its record into the ledger
 * together with the histories of its workflows, `closeRun` writes the last record.
 */
import { rm } from 'node:fs/promises';
import { activityInfo, getClient, log } from '@temporalio/activity';
import { WorkflowNotFoundError } from '@temporalio/common';
import { InfrastructureError, UserError } from '../environment/errors.ts';
import { ArtifactError } from '../records/artifacts.ts';
import type { ArtifactStore } from '../records/artifacts.ts';
import { canonicalHash } from '../records/canonical-json.ts';
import { effectiveStages, Ledger } from '../records/ledger.ts';
import type { LedgerRecord } from '../records/ledger.ts';
import type { StageRecordBody, StoredHistory } from '../records/ledger-schema.ts';
import { findElsewhere, findRun, finishedStages, listRuns, precedes, recordedResult, stageFolders } from '../records/lineage.ts';
import type { StageRecord } from '../records/lineage.ts';
import { fetchTree } from '../records/history.ts';
import type { WorkflowHistory } from '../records/history.ts';
import { inputHashes, stageKey } from '../records/stage-key.ts';
import { stageTotals } from '../records/stage-totals.ts';
import type { CloseRunInput, OpenStageInput, OpenStageResult, RecordRef, RecordStageInput, StageResult } from '../workflows/contract.ts';
import { plannedStages } from '../workflows/profiles.ts';
import { codeVersion, sourceHash } from './code-version.ts';
import type { RolloutDependencies } from './dependencies.ts';

type Dependencies = Pick<RolloutDependencies, 'store' | 'data' | 'numerics'>;

/**
 * Throws UserError when the run was opened with another configuration, or when a fork's stage is not finished in its run; ArtifactError
 * where an artifact of such a stage is missing or changed.
 */
export async function openStage({ store, data }: Dependencies, input: OpenStageInput): Promise<OpenStageResult> {
  const { runKey, stage, kind, round, config, inputs } = input;
  await endLeftChildren(config.rounds);
  const key = stageKey(stage, kind, round, config, inputs, await sourceHash());
  const opening = { stageKey: key, codeVersion: await codeVersion() };
  const ledger = new Ledger(data, runKey);
  const records = await ledger.read();
  refuseOtherConfiguration(records, input);
  const done = effectiveStages(records);
  refuseVoidInputs(done, input);
  const own = done.find(({ content }) => content.stage === stage);

  const parent = config.fork ? await findRun(data, config.fork.run) : undefined;
  if (config.fork && parent !== undefined && precedes(stage, config.fork.from)) {
    // What this run has taken over stays, even where its parent went back to an earlier stage meanwhile.
    const taken = own ?? (await finishedStages(data, parent)).find(({ content }) => content.stage === stage);
    if (!taken) throw new UserError(`fork.from: ${config.fork.from} needs ${stage}, which is not finished in run ${config.fork.run}`);
    return { ...opening, finished: await takenOver(store, ledger, taken) };
  }
  if (config.reuse === 'never') return opening;
  if (own?.content.stageKey === key) {
    const finished = await intact(store, own);
    return finished ? { ...opening, finished } : opening;
  }
  // Whoever went back to this stage wants it run, not found elsewhere.
  if (records.some((record) => record.kind === 'restarted' && !record.content.kept.includes(stage))) return opening;
  const others = config.reuse === 'any' ? (await listRuns(data)).filter((other) => other !== runKey) : parent === undefined ? [] : [parent];
  const found = await findElsewhere(data, others, key);
  return found && (await intact(store, found)) ? { ...opening, finished: await takenOver(store, ledger, found) } : opening;
}

/** The finished stage, or nothing, with a warning, where one of its artifacts is missing or damaged: then it runs again. */
async function intact(store: ArtifactStore, record: StageRecord): Promise<StageResult | undefined> {
  try {
    return { ...(await recordedResult(store, record)), record: { ...referTo(record), reusedFrom: sourceOf(record) } };
  } catch (error) {
    if (!(error instanceof ArtifactError)) throw error;
    log.warn('a finished stage is run again, because what it made is not whole', { stage: record.content.stage, problem: error.message });
    return undefined;
  }
}

/**
 * A reset leaves the open children of the execution that it replaced running, and nobody waits for them. When a stage opens, none of the
 * run's own children is at work: what is open then and began before is left over, and would train on for nothing.
 */
async function endLeftChildren(rounds: number): Promise<void> {
  const { workflowExecution, scheduledTimestampMs } = activityInfo();
  if (!workflowExecution) return;
  const client = getClient();
  for (const stage of plannedStages(rounds)) {
    for (const workflowId of [stage, `${stage}/evaluation`].map((name) => `${workflowExecution.workflowId}/${name.toLowerCase()}`)) {
      const found = await unlessGone(client.workflow.getHandle(workflowId).describe());
      // Children that began after this activity was scheduled are those of a later attempt's workflow.
      if (found?.status.name !== 'RUNNING' || found.startTime.getTime() >= scheduledTimestampMs) continue;
      log.warn('ending a workflow that a reset left behind', { workflowId, runId: found.runId });
      await unlessGone(client.workflow.getHandle(workflowId, found.runId).terminate('its training run was reset'));
    }
  }
}

/** undefined where there is no such workflow, or none that is open. Throws InfrastructureError for any other answer of the server. */
async function unlessGone<T>(asked: Promise<T>): Promise<T | undefined> {
  try {
    return await asked;
  } catch (cause) {
    if (cause instanceof WorkflowNotFoundError) return undefined;
    throw new InfrastructureError(
      `cannot look for workflows that a reset left: ${cause instanceof Error ? cause.message : String(cause)}`,
      {
        cause,
      },
    );
  }
}

/** Throws InfrastructureError when the server does not give the histories. */
export async function recordStage({ store, data, numerics }: Dependencies, input: RecordStageInput): Promise<RecordRef> {
  const { runKey, stage, workflowId, opened, config, inputs, round } = input;
  const children = [`${workflowId}/${stage.toLowerCase()}`, `${workflowId}/${stage.toLowerCase()}/evaluation`];
  const histories = await historiesOf((id) => children.includes(id));
  const { seconds, ...result } = input.result;
  const { counts, rewrite, evaluation, decidedBy } = result;
  const droppedNoVerdict = result.batches.reduce((sum, batch) => sum + (batch.droppedNoVerdict ?? 0), 0);
  const body: StageRecordBody = {
    kind: 'stage',
    content: {
      ...{ stage, stageKind: result.kind, round, stageKey: opened.stageKey, configHash: canonicalHash(config), seed: config.seed },
      code: await sourceHash(),
      inputs: inputHashes(inputs),
      result: await store.putJson('stage', result),
      outputs: {
        policy: result.policy,
        ...(result.critic ? { critic: result.critic } : {}),
        evaluation: evaluation.table,
        chunks: result.batches.flatMap(({ chunks }) => chunks),
        evaluationChunks: [...evaluation.chunks],
        runbooks: [...result.runbooks],
        examples: [...result.examples],
        batches: result.batches.flatMap(({ rewarded }) => rewarded ?? []),
      },
      counts: {
        training: counts,
        evaluation: { episodes: evaluation.episodes, tokens: evaluation.tokens, noVerdict: evaluation.noVerdict },
        dropped: { ...rewrite?.dropped, ...(droppedNoVerdict > 0 ? { 'no-verdict': droppedNoVerdict } : {}) },
        kept: rewrite?.kept ?? 0,
      },
      decision: { adopted: result.adopted, reason: result.decision, startedBy: decidedBy.start, adoptedBy: decidedBy.adoption },
    },
    observed: {
      recordedAt: new Date().toISOString(),
      codeVersion: await codeVersion(),
      startedAt: new Date(input.startedAt).toISOString(),
      seconds,
      ...(numerics ? { numerics: await numerics() } : {}),
      ...stageTotals(histories.slice(1), result),
      histories: await stored(store, histories),
    },
  };
  const record = await new Ledger(data, runKey).append(body);
  // What the stage had finished while it ran is in its artifacts now. A lost stage runs again as a whole.
  for (const folder of stageFolders(data, runKey, stage)) await rm(folder, { recursive: true, force: true });
  return referTo(record);
}

export async function closeRun({ store, data }: Dependencies, input: CloseRunInput): Promise<RecordRef> {
  const ledger = new Ledger(data, input.runKey);
  const records = await ledger.read();
  const contents = input.stages.map(({ index }) => canonicalHash(records[index]?.content ?? null));
  const record = await ledger.append({
    kind: 'closed',
    content: { finalPolicy: input.finalPolicy.sha256, stages: contents },
    observed: {
      recordedAt: new Date().toISOString(),
      result: input.result,
      histories: await stored(store, await historiesOf(() => false)),
    },
  });
  return referTo(record);
}

function refuseOtherConfiguration(records: readonly LedgerRecord[], { config, runKey }: OpenStageInput): void {
  const opened = records.find((record) => record.kind === 'opened');
  if (!opened) return;
  // As read, with the defaults of fields that a newer version added: those are no change of the person's.
  const [then, now] = [canonicalHash(opened.content.config), canonicalHash(config)];
  if (then !== now) {
    throw new UserError(
      `run ${runKey} was opened with configuration ${then.slice(0, 12)}, and is asked to go on with ${now.slice(0, 12)}: ` +
        'a changed configuration needs a run of its own (npm run resume -- RUN --from STAGE --fork)',
    );
  }
}

/** The policy that a stage starts from is that of the last adopted stage before it, as the ledger has it: a reset may go back to one that is void. */
function refuseVoidInputs(done: readonly StageRecord[], { stage, inputs, runKey }: OpenStageInput): void {
  const before = done.findLast(({ content }) => content.decision.adopted && precedes(content.stage, stage));
  if (before === undefined || before.content.outputs.policy.sha256 === inputs.policy.sha256) return;
  throw new UserError(
    `${stage} of run ${runKey} would start from policy ${inputs.policy.sha256.slice(0, 12)}, but ${before.content.stage} was made again since and gave ` +
      `${before.content.outputs.policy.sha256.slice(0, 12)}: reset the run's newest execution, or an event before ${before.content.stage}`,
  );
}

/** A finished stage of another run becomes a record of this one, which says where it is from. */
async function takenOver(store: ArtifactStore, ledger: Ledger, source: StageRecord): Promise<StageResult> {
  const result = await recordedResult(store, source);
  const record = await ledger.append({
    kind: 'stage',
    content: source.content,
    observed: {
      ...source.observed,
      recordedAt: new Date().toISOString(),
      cost: { gpuSeconds: 0, cpuActivitySeconds: 0, episodes: 0, tokens: 0 },
      ...{ activities: {}, workers: [], reusedFrom: sourceOf(source) },
    },
  });
  return { ...result, record: referTo(record) };
}

/** Where a stage that is reused was run: in another run, or, after a reset, in an earlier execution of this one. */
function sourceOf({ runKey, index, hash, observed }: StageRecord): NonNullable<RecordRef['reusedFrom']> {
  return observed.reusedFrom ?? { runKey, index, hash };
}

function referTo(record: LedgerRecord): RecordRef {
  const { index, hash } = record;
  const reusedFrom = record.kind === 'stage' ? record.observed.reusedFrom : undefined;
  return { index, hash, ...(reusedFrom ? { reusedFrom } : {}) };
}

/** The history of the calling run up to now, and those of its children that `under` accepts with all below them. */
async function historiesOf(under: (workflowId: string) => boolean): Promise<WorkflowHistory[]> {
  const { workflowExecution } = activityInfo();
  if (!workflowExecution) throw new TypeError('a stage is recorded by a workflow; this activity has none');
  try {
    return await fetchTree(getClient(), workflowExecution, under);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new InfrastructureError(`cannot fetch the histories below ${workflowExecution.workflowId}: ${why}`, { cause });
  }
}

async function stored(store: ArtifactStore, histories: readonly WorkflowHistory[]): Promise<StoredHistory[]> {
  const list: StoredHistory[] = [];
  for (const { workflowId, runId, type, events, complete, json } of histories) {
    const artifact = await store.putBytes('history', Buffer.from(json));
    list.push({ workflowId, runId, type, events: events.length, complete, artifact });
  }
  return list;
}
