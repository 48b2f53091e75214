/** The audit of a run: every check in the order of the chain, and what a reader wants to see of the run. */
import type { StageKind } from '../../workflows/contract.ts';
import type { Calibration } from '../calibration.ts';
import type { StageRecord } from '../lineage.ts';
import { auditRun } from '../reward-audit.ts';
import type { RunAudit } from '../reward-audit.ts';
import { checkArtifacts } from './check-artifacts.ts';
import { checkEpisodes } from './check-episodes.ts';
import { checkEvents } from './check-events.ts';
import { checkHistories } from './check-histories.ts';
import { examineLedger } from './check-ledger.ts';
import { checkLineage } from './check-lineage.ts';
import { checkDecision, checkEvaluation, checkRewards } from './check-scores.ts';
import { AuditContext } from './context.ts';
import { droppedEpisodes, findEpisodes } from './dropped.ts';
import type { DroppedEpisode, WholeEpisode } from './dropped.ts';
import { CHECKS } from './findings.ts';
import type { Absence, CheckName, Problem } from './findings.ts';
import { checkReplay } from './replay.ts';
import type { AuditSource } from './source.ts';
import { timelineOf } from './timeline.ts';
import type { Timeline } from './timeline.ts';

export const AUDIT_SCHEMA = 'terminal-rsi/audit@1';

/** An artifact by name: what it is to the stage, and its size where it could be read. */
export interface NamedArtifact {
  readonly name: string;
  readonly kind: string;
  readonly sha256: string;
  readonly bytes: number | undefined;
}
export interface AuditedStage {
  readonly stage: string;
  readonly kind: StageKind;
  /** Number of its record in the ledger. */
  readonly index: number;
  readonly key: string;
  readonly seconds: number;
  readonly code: string;
  /** What decided the trainer's bits beside its inputs; absent in records of runs without a trainer. */
  readonly numerics: StageRecord['observed']['numerics'];
  readonly consumed: readonly NamedArtifact[];
  readonly produced: readonly NamedArtifact[];
  readonly counts: StageRecord['content']['counts'];
  readonly decision: StageRecord['content']['decision'];
  readonly cost: StageRecord['observed']['cost'];
  readonly reusedFrom?: { readonly runKey: string; readonly index: number };
}
export interface Audit {
  readonly schema: typeof AUDIT_SCHEMA;
  readonly runKey: string;
  readonly workflowId: string;
  readonly from: string;
  readonly only?: string;
  /** Whether nothing is broken. */
  readonly sound: boolean;
  readonly problems: readonly Problem[];
  readonly absent: readonly Absence[];
  readonly notes: readonly string[];
  readonly checks: readonly { readonly name: CheckName; readonly what: string; readonly checked: number; readonly problems: number }[];
  readonly lastRecord?: { readonly index: number; readonly hash: string };
  readonly fork?: {
    readonly from: string;
    readonly run: string;
    readonly changes: readonly { readonly path: string; readonly before?: unknown; readonly after?: unknown }[];
  };
  readonly restarts: readonly { readonly from: string; readonly by: string; readonly at: string; readonly kept: readonly string[] }[];
  readonly stages: readonly AuditedStage[];
  readonly timeline: Timeline | undefined;
  readonly dropped: readonly DroppedEpisode[];
  readonly rewards: RunAudit | undefined;
}

export interface AuditOptions {
  /** Limits timeline and checks to this stage. */
  readonly stage?: string;
  readonly replay: boolean;
  /** Hash of a record that was noted elsewhere: the ledger must hold it. */
  readonly anchor?: string;
  /** Called with the name of each check before it is made. */
  readonly progress?: ((what: string) => void) | undefined;
}

/** Throws nothing about the run itself: whatever is wrong with it is in the result. */
export async function auditSource(
  source: AuditSource,
  options: AuditOptions,
): Promise<{ readonly audit: Audit; readonly context: AuditContext }> {
  const { stage, replay, anchor, progress = () => undefined } = options;
  const examined = examineLedger(source.ledger, source.runKey);
  const context = await AuditContext.of(source, stage, examined.records);
  const { findings } = context;
  for (const note of source.notes) findings.note(note);
  findings.count('archive', source.members);
  for (const { place, expected, found } of source.problems) findings.problem('archive', place, expected, found);
  findings.count('ledger', source.ledger.length);
  for (const { place, expected, found, stage: of } of examined.problems) findings.problem('ledger', place, expected, found, of);
  if (anchor !== undefined)
    findings.equal(
      'ledger',
      'ledger, record with the hash noted elsewhere',
      anchor,
      context.records.find(({ hash }) => hash === anchor)?.hash,
    );

  progress(CHECKS.artifacts);
  const sizes = await checkArtifacts(context);
  progress(CHECKS.lineage);
  await context.attempt('lineage', 'ledger', () => checkLineage(context));
  for (const record of context.stages) {
    progress(`${record.content.stage}: episodes, evaluation, decision, rewards`);
    const place = context.place(record);
    await context.attempt('counts', place, () => checkEpisodes(context, record));
    await context.attempt('evaluation', place, () => checkEvaluation(context, record));
    await context.attempt('decisions', place, () => checkDecision(context, record));
    await context.attempt('rewards', place, () => checkRewards(context, record));
  }
  progress(CHECKS.histories);
  await checkHistories(context);
  progress(CHECKS.events);
  await checkEvents(context);
  if (replay) {
    progress(CHECKS.replay);
    const covered = source.histories.filter(({ workflowId }) => stage === undefined || context.stageOf(workflowId) === stage);
    await checkReplay(findings, covered, (id) => context.stageOf(id));
  }
  const dropped: DroppedEpisode[] = [];
  for (const record of context.stages)
    dropped.push(...((await context.attempt('counts', `drops of ${record.content.stage}`, () => droppedEpisodes(context, record))) ?? []));
  const rewards = await rewardFigures(context);
  const timeline = await context.attempt('histories', 'timeline', async () => timelineOf(context));
  const order = Object.keys(CHECKS) as CheckName[];
  const problems = findings.problems.toSorted((a, b) => order.indexOf(a.check) - order.indexOf(b.check));
  const last = context.records.at(-1);
  const { opened } = context;
  const audit: Audit = {
    ...{ schema: AUDIT_SCHEMA, runKey: source.runKey, workflowId: context.workflowId, from: source.from },
    ...(stage === undefined ? {} : { only: stage }),
    ...{ sound: problems.length === 0, problems, absent: findings.absent, notes: findings.notes },
    checks: order.flatMap((name) => {
      const broken = problems.filter(({ check }) => check === name).length;
      const checked = findings.checked.get(name) ?? 0;
      return checked === 0 && broken === 0 ? [] : [{ name, what: CHECKS[name], checked, problems: broken }];
    }),
    ...(last ? { lastRecord: { index: last.index, hash: last.hash } } : {}),
    ...(opened?.content.fork ? { fork: { ...opened.content.fork, run: opened.observed.forkedFrom?.runKey ?? '' } } : {}),
    restarts: context.records.flatMap((record) =>
      record.kind === 'restarted'
        ? [{ from: record.content.from, by: record.observed.by, at: record.observed.recordedAt, kept: record.content.kept }]
        : [],
    ),
    stages: context.stages.map((record) => auditedStage(record, sizes)),
    timeline,
    ...{ dropped, rewards },
  };
  return { audit, context };
}

function auditedStage(record: StageRecord, sizes: ReadonlyMap<string, { readonly bytes: number }>): AuditedStage {
  const { content, observed } = record;
  const { inputs, outputs } = content;
  const named = (name: string, kind: string, sha256: string | undefined): NamedArtifact[] =>
    sha256 === undefined ? [] : [{ name, kind, sha256, bytes: sizes.get(sha256)?.bytes }];
  const all = (name: string, refs: readonly { kind: string; sha256: string }[]): NamedArtifact[] =>
    refs.flatMap(({ kind, sha256 }) => named(name, kind, sha256));
  return {
    ...{
      stage: content.stage,
      kind: content.stageKind,
      index: record.index,
      key: content.stageKey,
      seconds: observed.seconds,
      code: content.code,
      numerics: observed.numerics,
    },
    consumed: [
      ...named('policy', 'policy', inputs.policy),
      ...named('critic', 'critic', inputs.critic),
      ...named('calibration', 'calibration', inputs.calibration),
      ...named('reference table', 'evaluation', inputs.reference),
    ],
    produced: [
      ...all('policy', [outputs.policy]),
      ...all('critic', outputs.critic ? [outputs.critic] : []),
      ...all('evaluation table', [outputs.evaluation]),
      ...all('training episodes', outputs.chunks),
      ...all('evaluation episodes', outputs.evaluationChunks),
      ...all('runbooks', outputs.runbooks),
      ...all('examples', outputs.examples),
      ...all('rewarded batch', outputs.batches),
      ...all('result', [content.result]),
    ],
    ...{ counts: content.counts, decision: content.decision, cost: observed.cost },
    ...(observed.reusedFrom ? { reusedFrom: { runKey: observed.reusedFrom.runKey, index: observed.reusedFrom.index } } : {}),
  };
}

async function rewardFigures(context: AuditContext): Promise<RunAudit | undefined> {
  const { chain, opened } = context;
  const calibration =
    chain.find(({ observed }) => !observed.reusedFrom)?.content.inputs.calibration ?? chain[0]?.content.inputs.calibration;
  if (!opened || calibration === undefined) return undefined;
  return await context.attempt('rewards', 'reward audit of the run', async () => {
    // The run's scale is that of its first batch, whatever stage the audit is limited to.
    const results = [];
    for (const record of chain) results.push(await context.result(record));
    const stages = results.filter((result) => result !== undefined);
    const figures = await auditRun(
      context.reader,
      stages,
      await context.reader.readJson<Calibration>({ sha256: calibration, kind: 'calibration' }),
      opened.content.config.reward,
    );
    return figures && { ...figures, stages: figures.stages.filter((one) => context.covers(one.stage)) };
  });
}

export async function episodesOf(context: AuditContext, ids: Iterable<string>): Promise<Map<string, WholeEpisode>> {
  return await findEpisodes(context, new Set(ids));
}
