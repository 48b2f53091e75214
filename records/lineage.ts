/** Finding runs and their finished stages in a data folder: for reuse, forks, audits. */
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { UserError } from '../environment/errors.ts';
import type { RunConfig } from '../workflows/config.ts';
import type { StageName, StageResult } from '../workflows/contract.ts';
import type { ArtifactStore } from './artifacts.ts';
import { canonicalJson } from './canonical-json.ts';
import { readChunks } from './chunks.ts';
import { effectiveStages, Ledger, LedgerError } from './ledger.ts';
import type { LedgerRecord } from './ledger.ts';

export type StageRecord = LedgerRecord & { kind: 'stage' };

/** Keys of the runs that have a folder in `data`, sorted. */
export async function listRuns(data: string): Promise<string[]> {
  const folder = path.join(data, 'runs');
  if (!existsSync(folder)) return [];
  const entries = await readdir(folder, { withFileTypes: true });
  return entries
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name)
    .sort();
}

/**
 * The key of a run that is named by its key, the beginning of its key (8 characters or more), or its workflow id; of several runs
 * with one workflow id the one that was opened last. Throws UserError naming the runs there are.
 */
export async function findRun(data: string, name: string): Promise<string> {
  const runs = await listRuns(data);
  if (runs.includes(name)) return name;
  const byPrefix = name.length >= 8 ? runs.filter((run) => run.startsWith(name)) : [];
  if (byPrefix.length === 1 && byPrefix[0] !== undefined) return byPrefix[0];
  const opened: { runKey: string; workflowId: string; recordedAt: string }[] = [];
  for (const runKey of runs) {
    // A broken ledger of another run must not keep this one from being found.
    const records = await readable(data, runKey);
    const first = records?.find((record) => record.kind === 'opened');
    if (first) opened.push({ runKey, workflowId: first.observed.workflowId, recordedAt: first.observed.recordedAt });
  }
  const found = opened.filter(({ workflowId }) => workflowId === name).sort((a, b) => (a.recordedAt < b.recordedAt ? 1 : -1))[0];
  if (found) return found.runKey;
  const known = opened.map(({ workflowId, runKey }) => `${workflowId} (${runKey})`);
  throw new UserError(`run ${JSON.stringify(name)} is not in ${data}; there ${known.length === 0 ? 'is none' : `are ${known.join(', ')}`}`);
}

/** Stages of a run that are recorded and not void, in order. Throws LedgerError when its ledger does not hold together. */
export async function finishedStages(data: string, runKey: string): Promise<StageRecord[]> {
  return effectiveStages(await new Ledger(data, runKey).read());
}

/** The first finished stage of that key among other runs, oldest run key first. Ledgers that do not hold together are passed over. */
export async function findElsewhere(data: string, runKeys: readonly string[], stageKey: string): Promise<StageRecord | undefined> {
  for (const runKey of runKeys) {
    const records = await readable(data, runKey);
    const found = effectiveStages(records ?? []).find(({ content }) => content.stageKey === stageKey);
    if (found) return found;
  }
  return undefined;
}

/**
 * The result of a recorded stage, with all artifacts that it names proven to be there: later stages, the report and audits read them.
 * Throws ArtifactError where one is missing or changed.
 */
export async function recordedResult(store: ArtifactStore, record: StageRecord): Promise<Omit<StageResult, 'record'>> {
  const result = await store.readJson<Omit<StageResult, 'record' | 'seconds'>>(record.content.result);
  const { policy, critic, evaluation, batches, runbooks, examples } = result;
  await store.directory(policy);
  if (critic) await store.directory(critic);
  const chunks = await readChunks(store, [...batches.flatMap((batch) => batch.chunks), ...evaluation.chunks]);
  const files = chunks.flatMap(({ rollout, verify }) => [rollout.episodes, rollout.tokens, rollout.snapshots, verify.verdicts]);
  for (const file of [evaluation.table, ...batches.flatMap(({ rewarded }) => rewarded ?? []), ...runbooks, ...examples, ...files])
    await store.readBytes(file);
  return { ...result, seconds: record.observed.seconds };
}

/** Whether stage `a` comes before stage `b` in a run. */
export function precedes(a: StageName, b: StageName): boolean {
  const place = (name: string): number => {
    const [, kind, round] = /^(RSR|RPR)-(\d+)$/.exec(name) ?? [];
    return kind === undefined ? 0 : 2 * Number(round) + (kind === 'RPR' ? 1 : 0);
  };
  return place(a) < place(b);
}

/** Where a stage that is at work keeps what it has finished so far: its journals and checkpoints. */
export function stageFolders(data: string, runKey: string, stage: StageName): string[] {
  return ['journal', 'checkpoints'].map((kind) => path.join(data, 'runs', runKey, kind, stage));
}

/** Settings of two runs that differ, by path, e.g. `rsr.epochs`. The fields that only say how to run are left out. */
export function configChanges(before: RunConfig, after: RunConfig): { path: string; before: unknown; after: unknown }[] {
  const { reuse: _r, fork: _f, requireApproval: _a, ...old } = before;
  const { reuse: _r2, fork: _f2, requireApproval: _a2, ...now } = after;
  return differences(old, now, []);
}

/** Where a run comes from and who went back in it, for its report: name → text. Empty for a run without a ledger. */
export async function lineageFacts(data: string, runKey: string): Promise<Record<string, string>> {
  const facts: Record<string, string> = {};
  const restarts: string[] = [];
  for (const record of (await readable(data, runKey)) ?? []) {
    if (record.kind === 'restarted') restarts.push(`from ${record.content.from} by ${record.observed.by}, ${record.observed.recordedAt}`);
    if (record.kind !== 'opened' || !record.content.fork) continue;
    const { from, changes } = record.content.fork;
    const changed = changes.map(({ path: field, before, after }) => `${field}: ${JSON.stringify(before)} → ${JSON.stringify(after)}`);
    facts['forked from'] = [`run ${record.observed.forkedFrom?.runKey ?? ''}, own from ${from}`, ...changed].join('; ');
  }
  if (restarts.length > 0) facts['restarted'] = restarts.join('; ');
  return facts;
}

function differences(a: unknown, b: unknown, at: readonly string[]): { path: string; before: unknown; after: unknown }[] {
  if (isObject(a) && isObject(b)) {
    const keys = [...new Set([...Object.keys(a), ...Object.keys(b)])];
    return keys.flatMap((key) => differences(a[key], b[key], [...at, key]));
  }
  return canonicalJson(a ?? null) === canonicalJson(b ?? null) ? [] : [{ path: at.join('.'), before: a ?? null, after: b ?? null }];
}
function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

async function readable(data: string, runKey: string): Promise<LedgerRecord[] | undefined> {
  try {
    return await new Ledger(data, runKey).read();
  } catch (error) {
    if (error instanceof LedgerError) return undefined;
    throw error;
  }
}
