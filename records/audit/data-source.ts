/** A run of a data folder, with its histories from the Temporal server and, where that has lost them, from the ledger. */
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import type { Client } from '@temporalio/client';
import { UserError } from '../../environment/errors.ts';
import { childrenOf, continuedAs, fetchHistory, originalRunId, parseHistory } from '../history.ts';
import type { WorkflowHistory } from '../history.ts';
import { ledgerDirectory, LedgerError, parseRecord } from '../ledger.ts';
import type { LedgerRecord, LedgerText } from '../ledger.ts';
import type { StoredHistory } from '../ledger-schema.ts';
import { findRun, listRuns } from '../lineage.ts';
import type { AuditSource, Copy, SourcedHistory } from './source.ts';

/** `client`: the server to ask for histories; a text says why there is none. Throws UserError for a run that is not there. */
export async function openDataFolder(data: string, run: string, client: Client | string): Promise<AuditSource> {
  const runKey = await keyOfRun(data, run);
  const ledger = await ledgerTexts(data, runKey);
  const records = readable(ledger);
  const folder = path.join(data, 'artifacts');
  const blobPath = (sha256: string): string => path.join(folder, 'sha256', sha256.slice(0, 2), sha256);
  const notes: string[] = [];
  const own = records.find((record) => record.kind === 'opened')?.observed.workflowId;
  const histories = new Map<string, SourcedHistory>();
  if (typeof client === 'string') notes.push(`No history comes from a Temporal server: ${client}. Those stored in the ledger are used.`);
  else for (const history of await fromServer(client, runKey, records, notes)) histories.set(history.runId, history);
  for (const stored of storedHistories(records)) {
    if (histories.has(stored.runId)) continue;
    const { sha256 } = stored.artifact;
    const place = `${stored.workflowId} (run ${stored.runId}, as stored in the ledger)`;
    const history = parsed(stored, await optional(readFile(blobPath(sha256), 'utf8')), place);
    if (!history) continue;
    histories.set(stored.runId, history);
    // Those of a stage that was taken over are of another run, and were not asked for.
    if (typeof client !== 'string' && own !== undefined && `${stored.workflowId}/`.startsWith(`${own}/`))
      notes.push(`${stored.workflowId} is not on the server any more: its history is the one stored in the ledger.`);
  }
  const report = path.join(data, 'runs', runKey, 'report');
  return {
    runKey,
    ...{ from: `run ${runKey} of ${data}`, ledger, notes, problems: [], members: 0 },
    histories: [...histories.values()],
    async blob(sha256) {
      return { place: blobPath(sha256), bytes: await optional(readFile(blobPath(sha256))) };
    },
    tree: (sha256) => filesBelow(path.join(folder, 'trees', sha256)),
    async report() {
      const file = path.join(report, 'result.json');
      const text = await optional(readFile(file, 'utf8'));
      return { policy: await filesBelow(path.join(report, 'policy')), ...(text === undefined ? {} : { result: { place: file, text } }) };
    },
    async otherLedger(key) {
      const texts = await ledgerTexts(data, key);
      return texts.length === 0 ? undefined : texts;
    },
    close: async () => undefined,
  };
}

/** As findRun, but a run whose ledger does not hold together is found too: an audit is for just that. */
async function keyOfRun(data: string, run: string): Promise<string> {
  try {
    return await findRun(data, run);
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    for (const runKey of (await listRuns(data)).toReversed()) {
      const opened = readable(await ledgerTexts(data, runKey)).find((record) => record.kind === 'opened');
      if (opened?.observed.workflowId === run) return runKey;
    }
    throw error;
  }
}

/** The files of a run's ledger in the order of their names; empty where it has none. */
export async function ledgerTexts(data: string, runKey: string): Promise<LedgerText[]> {
  const directory = ledgerDirectory(data, runKey);
  const names = ((await optional(readdir(directory))) ?? []).filter((name) => /^\d{6}\.json$/.test(name)).sort();
  return await Promise.all(
    names.map(async (name) => ({ place: path.join(directory, name), text: await readFile(path.join(directory, name), 'utf8') })),
  );
}

/** The records that can be parsed, whatever their hashes say. */
export function readable(texts: readonly LedgerText[]): LedgerRecord[] {
  return texts.flatMap(({ place, text }) => {
    try {
      return [parseRecord(place, text).record];
    } catch (error) {
      if (error instanceof LedgerError) return [];
      throw error;
    }
  });
}

/** The histories that the records store, of each execution the longest. */
export function storedHistories(records: readonly LedgerRecord[]): StoredHistory[] {
  const longest = new Map<string, StoredHistory>();
  for (const record of records) {
    if (record.kind !== 'stage' && record.kind !== 'closed') continue;
    for (const stored of record.observed.histories)
      if ((longest.get(stored.runId)?.events ?? 0) < stored.events) longest.set(stored.runId, stored);
  }
  return [...longest.values()];
}

function parsed(id: { workflowId: string; runId: string }, text: string | undefined, place: string): SourcedHistory | undefined {
  if (text === undefined) return undefined;
  try {
    return { ...parseHistory({ workflowId: id.workflowId, runId: id.runId }, text), place };
  } catch {
    // The check of the artifacts tells what is wrong with it.
    return undefined;
  }
}

/** Every execution of the training run (a reset makes another one), and all below each. */
async function fromServer(client: Client, runKey: string, records: readonly LedgerRecord[], notes: string[]): Promise<SourcedHistory[]> {
  const found = new Map<string, SourcedHistory>();
  const take = async (id: { workflowId: string; runId: string }): Promise<WorkflowHistory | undefined> => {
    const known = found.get(id.runId);
    if (known) return known;
    try {
      const history = await fetchHistory(client, id);
      found.set(id.runId, { ...history, place: `${id.workflowId} (run ${id.runId})` });
      return history;
    } catch (error) {
      if (error instanceof Error && error.name === 'WorkflowNotFoundError') return undefined;
      throw error;
    }
  };
  const below = async (history: WorkflowHistory): Promise<void> => {
    for (const child of childrenOf(history)) {
      if (found.has(child.runId)) continue;
      const next = await take(child);
      if (next) await below(next);
    }
    const runId = continuedAs(history);
    const next = runId === undefined || found.has(runId) ? undefined : await take({ workflowId: history.workflowId, runId });
    if (next) await below(next);
  };
  const opened = records.find((record) => record.kind === 'opened');
  const workflowId = opened?.observed.workflowId ?? storedHistories(records).find(({ type }) => type === 'trainingRun')?.workflowId;
  if (workflowId === undefined) {
    notes.push('The ledger does not tell the workflow id of the run, so that no history could be asked for.');
    return [];
  }
  const roots = new Set([
    runKey,
    ...storedHistories(records).flatMap((stored) => (stored.workflowId === workflowId ? [stored.runId] : [])),
  ]);
  for await (const { runId } of client.workflow.list({ query: `WorkflowId = '${workflowId.replaceAll("'", "''")}'` })) roots.add(runId);
  for (const runId of roots) {
    const history = await take({ workflowId, runId });
    if (!history) continue;
    if (originalRunId(history) === runKey) await below(history);
    // Another run that a person gave the same workflow id.
    else found.delete(runId);
  }
  return [...found.values()];
}

async function filesBelow(directory: string, prefix = ''): Promise<Copy[]> {
  const copies: Copy[] = [];
  for (const entry of (await optional(readdir(path.join(directory, prefix), { withFileTypes: true }))) ?? []) {
    const file = path.posix.join(prefix, entry.name);
    const place = path.join(directory, file);
    if (entry.isDirectory()) copies.push(...(await filesBelow(directory, file)));
    else
      copies.push({
        place,
        file,
        sha256: createHash('sha256')
          .update(await readFile(place))
          .digest('hex'),
      });
  }
  return copies.sort((a, b) => (a.file < b.file ? -1 : 1));
}

async function optional<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
