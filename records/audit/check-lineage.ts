/**
 * The chain of the stages: what each began with is what those before it made, its key is the one that its inputs give, and what
 * the run closed with is what its stages say. Stages that were taken over from another run are followed to that run's ledger.
 */
import { canonicalHash } from '../canonical-json.ts';
import type { LedgerRecord } from '../ledger.ts';
import { configChanges } from '../lineage.ts';
import type { StageRecord } from '../lineage.ts';
import { keyOf } from '../stage-key.ts';
import type { AuditContext } from './context.ts';
import { readable } from './data-source.ts';

export async function checkLineage(context: AuditContext): Promise<void> {
  const { findings, opened, chain } = context;
  if (!opened) {
    findings.problem('lineage', 'ledger', 'the record that opens the run', 'none that can be read');
    return;
  }
  const at = context.place(opened);
  findings.equal('lineage', `${at}, content.configHash`, canonicalHash(opened.content.config), opened.content.configHash);
  findings.equal('lineage', `${at}, content.seed`, opened.content.config.seed, opened.content.seed);
  await checkFork(context, opened);

  let policy = opened.content.basePolicy;
  let reference: string | undefined;
  let critic: string | undefined;
  for (const record of chain) {
    const { content } = record;
    const { stage, inputs, outputs, stageKind } = content;
    if (context.covers(stage)) {
      const place = (field: string): string => `${context.place(record)}, content.${field}`;
      const equal = (field: string, expected: unknown, found: unknown): void =>
        void findings.equal('lineage', place(field), expected, found, stage);
      const base = stageKind === 'base';
      // A stage that was taken over began with what its own run began with; only what hands over inside the chain must fit here.
      if (!record.observed.reusedFrom || !base) equal('inputs.policy', policy, inputs.policy);
      equal('inputs.reference', base ? undefined : reference, inputs.reference);
      equal('inputs.critic', stageKind === 'rpr' ? critic : undefined, inputs.critic);
      if (base) equal('outputs.policy', inputs.policy, outputs.policy.sha256);
      if (base) equal('decision.adopted', true, content.decision.adopted);
      await checkOwn(context, record, opened, equal);
      await checkResult(context, record);
    }
    if (content.decision.adopted) [policy, reference] = [outputs.policy.sha256, outputs.evaluation.sha256];
    critic = outputs.critic?.sha256 ?? critic;
  }
  checkClosing(context, policy);
}

type Equal = (field: string, expected: unknown, found: unknown) => void;

/** What must agree with the opening of the run, and the key. */
async function checkOwn(
  context: AuditContext,
  record: StageRecord,
  opened: LedgerRecord & { kind: 'opened' },
  equal: Equal,
): Promise<void> {
  const { findings } = context;
  const { content, observed } = record;
  let { config } = opened.content;
  if (observed.reusedFrom) {
    const theirs = await reusedRecords(context, record);
    const origin = theirs?.find((other) => other.kind === 'opened');
    if (!origin) return;
    config = origin.content.config;
    const changes = configChanges(config, opened.content.config).map(({ path }) => path);
    if (changes.length > 0)
      findings.note(
        `${content.stage} was taken over from run ${observed.reusedFrom.runKey}, which has other settings: ${changes.join(', ')}.`,
      );
  } else {
    equal('configHash', opened.content.configHash, content.configHash);
    equal('seed', opened.content.seed, content.seed);
    equal('inputs.tasksHash', opened.content.tasksHash, content.inputs.tasksHash);
    equal(
      'inputs.calibration',
      context.chain.find((other) => !other.observed.reusedFrom)?.content.inputs.calibration,
      content.inputs.calibration,
    );
    if (content.code !== opened.content.code)
      findings.note(`${content.stage} ran with code ${content.code}; the run was opened with ${opened.content.code}.`);
  }
  if (canonicalHash(config) !== content.configHash) return;
  const { stage, stageKind: kind, round, inputs, code } = content;
  const key = keyOf({ stage, kind, round, config, inputs, code });
  // What belongs into a key may differ between versions; that of another one is compared with the histories alone.
  if (key === content.stageKey || code === context.code) equal('stageKey', key, content.stageKey);
  else findings.note(`The key of ${stage} was made by other code (${code}; this is ${context.code}) and cannot be computed again here.`);
}

/** The ledger that a stage was taken over from, after comparing the two records. */
async function reusedRecords(context: AuditContext, record: StageRecord): Promise<LedgerRecord[] | undefined> {
  const from = record.observed.reusedFrom;
  if (!from) return undefined;
  const place = `${context.place(record)}, observed.reusedFrom`;
  const texts = await context.source.otherLedger(from.runKey);
  if (!texts) {
    context.findings.missing('lineage', place, `the ledger of run ${from.runKey} is not here`);
    return undefined;
  }
  const records = readable(texts);
  const other = records.find(({ index }) => index === from.index);
  context.findings.equal('lineage', `${place}: record ${from.index} of run ${from.runKey}`, from.hash, other?.hash, record.content.stage);
  if (other) context.findings.equal('lineage', `${context.place(record)}, content`, other.content, record.content, record.content.stage);
  return records;
}

async function checkFork(context: AuditContext, opened: LedgerRecord & { kind: 'opened' }): Promise<void> {
  const { findings, source } = context;
  const { fork } = opened.content;
  const from = opened.observed.forkedFrom;
  if (!fork && !from) return;
  const place = `${context.place(opened)}, observed.forkedFrom`;
  const texts = from && (await source.otherLedger(from.runKey));
  if (!from || !texts) {
    findings.missing('lineage', place, `the ledger of run ${from?.runKey ?? 'it was forked from'} is not here`);
    return;
  }
  const records = readable(texts);
  findings.equal(
    'lineage',
    `${place}: record ${from.index} of run ${from.runKey}`,
    from.hash,
    records.find(({ index }) => index === from.index)?.hash,
  );
  const before = records.find((record) => record.kind === 'opened');
  if (before && fork)
    findings.equal(
      'lineage',
      `${context.place(opened)}, content.fork.changes`,
      configChanges(before.content.config, opened.content.config),
      fork.changes,
    );
}

/** The record's own fields against the result that it names. */
async function checkResult(context: AuditContext, record: StageRecord): Promise<void> {
  const result = await context.result(record);
  if (!result) return;
  const { content } = record;
  const { evaluation, decidedBy, batches } = result;
  const said = {
    stage: result.name,
    stageKind: result.kind,
    outputs: {
      policy: result.policy,
      critic: result.critic,
      evaluation: evaluation.table,
      chunks: batches.flatMap(({ chunks }) => chunks),
      evaluationChunks: evaluation.chunks,
      runbooks: result.runbooks,
      examples: result.examples,
      batches: batches.flatMap(({ rewarded }) => rewarded ?? []),
    },
    decision: { adopted: result.adopted, reason: result.decision, startedBy: decidedBy.start, adoptedBy: decidedBy.adoption },
  };
  const { stage, stageKind, outputs, decision } = content;
  context.findings.equal(
    'lineage',
    `${context.place(record)}, content against its result ${content.result.sha256.slice(0, 12)}`,
    said,
    { stage, stageKind, outputs, decision },
    stage,
  );
}

function checkClosing(context: AuditContext, policy: string): void {
  const { findings, closed, chain, only } = context;
  if (!closed || only !== undefined) return;
  const at = context.place(closed);
  findings.equal('lineage', `${at}, content.finalPolicy`, policy, closed.content.finalPolicy);
  findings.equal(
    'lineage',
    `${at}, content.stages`,
    chain.map(({ content }) => canonicalHash(content)),
    closed.content.stages,
  );
}
