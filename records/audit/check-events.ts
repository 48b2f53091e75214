/**
 * What the activities of a run were given and returned, as its histories tell, against ledger and artifacts: an event that was
 * changed, or a record that was, no longer fits the other.
 */
import { canonicalHash } from '../canonical-json.ts';
import type {
  CalibrateResult,
  CloseRunInput,
  OpenStageInput,
  OpenStageResult,
  PrepareRunInput,
  PrepareRunResult,
  RecordRef,
  RecordStageInput,
  ReportResult,
  StageName,
  TrainingRunResult,
} from '../../workflows/contract.ts';
import { childTraces, originalRunId, payloadValue, resultOf } from '../history.ts';
import type { StageRecord } from '../lineage.ts';
import { inputHashes, tasksHashOf } from '../stage-key.ts';
import type { AuditContext, Call } from './context.ts';
import type { SourcedHistory } from './source.ts';
import { checkStageEvents } from './check-stage-events.ts';

export async function checkEvents(context: AuditContext): Promise<void> {
  const { findings } = context;
  for (const root of context.roots) {
    findings.equal('events', `${root.place}, event 1, originalExecutionRunId`, context.source.runKey, originalRunId(root));
    for (const history of context.below(root)) {
      if (context.covers(context.stageOf(history.workflowId)) || context.only === undefined)
        await context.attempt('events', history.place, async () => checkChildren(context, history));
    }
    for (const call of context.calls(root)) await context.attempt('events', call.place, async () => checkRootCall(context, call));
  }
  const { root } = context;
  if (!root) {
    findings.missing('events', 'training run', 'no history of it is here');
    return;
  }
  await context.attempt('events', root.place, async () => {
    checkOrder(context, root);
    if (context.only === undefined) checkEnd(context, root);
  });
  for (const record of context.stages)
    if (!record.observed.reusedFrom)
      await context.attempt('events', `activities of ${record.content.stage}`, () => checkStageEvents(context, record));
}

/** A child's result as its parent was told is the one with which it ended. */
function checkChildren(context: AuditContext, history: SourcedHistory): void {
  for (const child of childTraces(history)) {
    if (child.outcome !== 'completed' || !child.result) continue;
    let own = context.history(child.runId);
    if (!own) {
      context.findings.missing('events', `${history.place}, event ${child.eventId}`, `the history of ${child.workflowId} is not here`);
      continue;
    }
    // A large batch continues as new; the last execution has the result.
    for (let next = own; next;) {
      own = next;
      const id = next.events.at(-1)?.workflowExecutionContinuedAsNewEventAttributes?.newExecutionRunId;
      const following = id === undefined ? undefined : context.history(id);
      if (!following) break;
      next = following;
    }
    const place = `${own.place}, event ${own.events.at(-1)?.eventId} (result), against ${history.place}, event ${child.closedEventId}`;
    context.findings.equal('events', place, payloadValue(child.result), resultOf(own), context.stageOf(child.workflowId));
  }
}

function checkRootCall(context: AuditContext, call: Call): void {
  const { findings, opened } = context;
  const { place, trace } = call;
  if (trace.outcome !== 'completed') return;
  const equal = (what: string, expected: unknown, found: unknown, stage?: string): void =>
    void findings.equal('events', `${place}, ${what}`, expected, found, stage);
  if (trace.type === 'prepareRun' && opened && context.only === undefined) {
    const { config, runKey } = call.input as PrepareRunInput;
    const { basePolicy, tasksHash, configHash, suites, training } = call.result as PrepareRunResult;
    equal('input.runKey', opened.runKey, runKey);
    equal('input.config', opened.content.configHash, canonicalHash(config));
    const { basePolicy: base, tasksHash: tasks, configHash: settings } = opened.content;
    equal('result', { basePolicy: base, tasksHash: tasks, configHash: settings }, { basePolicy: basePolicy.sha256, tasksHash, configHash });
    equal('result.tasksHash', tasksHashOf({ suites, training }), tasksHash);
  }
  if (trace.type === 'calibrate' && context.only === undefined) {
    const own = context.chain.find(({ observed }) => !observed.reusedFrom);
    if (own) equal('result.calibration', own.content.inputs.calibration, (call.result as CalibrateResult).calibration.sha256);
  }
  if (trace.type === 'openStage') checkOpening(context, call, equal);
  if (trace.type === 'recordStage') checkRecording(context, call, equal);
}

type Equal = (what: string, expected: unknown, found: unknown, stage?: string) => void;

function recordAt(context: AuditContext, index: number): StageRecord | undefined {
  const record = context.records.find((one) => one.index === index);
  return record?.kind === 'stage' ? record : undefined;
}

function checkOpening(context: AuditContext, call: Call, equal: Equal): void {
  const { stage, inputs, kind, round, config } = call.input as OpenStageInput;
  const { stageKey, finished } = call.result as OpenStageResult;
  if (!context.covers(stage)) return;
  // The record that came of it: of a stage that was void later there is an older one.
  const record = finished
    ? recordAt(context, finished.record.index)
    : context.records.find(
        (one): one is StageRecord => one.kind === 'stage' && one.content.stage === stage && one.content.stageKey === stageKey,
      );
  if (finished) {
    equal('result.finished.record.hash', record?.hash, finished.record.hash, stage);
    if (record) equal('result.finished', record.content.result.sha256, hashOfResult(finished), stage);
    return;
  }
  const recorded = context.chain.find(({ content }) => content.stage === stage);
  if (!record) {
    // A stage that is still running has no record yet; one that is recorded has one with the key it was opened with.
    if (recorded && !recorded.observed.reusedFrom && call.history === context.root)
      equal('result.stageKey', recorded.content.stageKey, stageKey, stage);
    return;
  }
  const { content } = record;
  equal(
    'input',
    { ...content.inputs, kind: content.stageKind, round: content.round, configHash: content.configHash },
    { ...inputHashes(inputs), kind, round, configHash: canonicalHash(config) },
    stage,
  );
}

function checkRecording(context: AuditContext, call: Call, equal: Equal): void {
  const { stage, result, opened, inputs } = call.input as RecordStageInput;
  const { index, hash } = call.result as RecordRef;
  if (!context.covers(stage)) return;
  const record = recordAt(context, index);
  equal('result.hash', record?.hash, hash, stage);
  if (!record) return;
  equal('input.stage', record.content.stage, stage, stage);
  equal('input.result', record.content.result.sha256, hashOfResult(result), stage);
  equal('input.opened.stageKey', record.content.stageKey, opened.stageKey, stage);
  equal('input.inputs', record.content.inputs, inputHashes(inputs), stage);
}

/** The hash of the artifact that `recordStage` makes of a result. */
function hashOfResult(result: object): string {
  const { seconds: _s, record: _r, ...rest } = result as Record<string, unknown>;
  return canonicalHash(rest);
}

/** The stages stand in the ledger in the order in which the run went through them. */
function checkOrder(context: AuditContext, root: SourcedHistory): void {
  const went: StageName[] = [];
  for (const call of context.calls(root, 'openStage', 'recordStage')) {
    const { stage } = call.input as OpenStageInput;
    const done =
      call.trace.outcome === 'completed' && (call.trace.type === 'recordStage' || (call.result as OpenStageResult).finished !== undefined);
    if (done && !went.includes(stage)) went.push(stage);
  }
  const names = context.chain.map(({ content }) => content.stage);
  // A record is written before the history tells that it was: one that is open, or was stored then, may be behind by one stage.
  const told = root.complete || names.length !== went.length + 1 ? names : names.slice(0, went.length);
  context.findings.equal('events', `order of the stages in the ledger, against ${root.place}`, went, told);
}

function checkEnd(context: AuditContext, root: SourcedHistory): void {
  const { findings, closed } = context;
  for (const call of context.calls(root, 'closeRun', 'report')) {
    if (call.trace.outcome !== 'completed') continue;
    const equal = (what: string, expected: unknown, found: unknown): void =>
      void findings.equal('events', `${call.place}, ${what}`, expected, found);
    if (call.trace.type === 'report') {
      equal('result.result', closed?.observed.result.sha256, (call.result as ReportResult).result.sha256);
      continue;
    }
    const input = call.input as CloseRunInput;
    const { index, hash } = call.result as RecordRef;
    equal('result', closed && { index: closed.index, hash: closed.hash }, { index, hash });
    equal('input.finalPolicy', closed?.content.finalPolicy, input.finalPolicy.sha256);
    const { chain } = context;
    equal(
      'input.stages',
      chain.map((record) => ({ index: record.index, hash: record.hash })),
      input.stages.map((stage) => ({ index: stage.index, hash: stage.hash })),
    );
  }
  const result = resultOf(root) as TrainingRunResult | undefined;
  if (!result) {
    if (root.complete)
      findings.note(
        `The run did not complete: its last event is ${root.events.at(-1)?.eventType.replace('EVENT_TYPE_WORKFLOW_EXECUTION_', '').toLowerCase()}.`,
      );
    else if (closed) findings.note('The history of the run ends where it was stored with the last record.');
    else findings.note('The run is still open: the audit covers what is recorded so far.');
    return;
  }
  const place = `${root.place}, event ${root.events.at(-1)?.eventId} (result of the run)`;
  findings.equal('events', `${place}, ledger`, closed && { index: closed.index, hash: closed.hash }, {
    index: result.ledger.index,
    hash: result.ledger.hash,
  });
  findings.equal('events', `${place}, finalPolicy`, closed?.content.finalPolicy, result.finalPolicy.sha256);
  findings.equal(
    'events',
    `${place}, stages`,
    context.chain.map(({ content }) => content.result.sha256),
    result.stages.map(hashOfResult),
  );
}
