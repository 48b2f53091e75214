/** Writes a run's archive (records/audit/archive.ts tells what is in it). What is damaged is exported as it is: the audit tells. */
import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { mkdir, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { pack } from 'tar-stream';
import { ARCHIVE_SCHEMA, isIncluded } from './archive.ts';
import type { Manifest } from './archive.ts';
import { readable } from './data-source.ts';
import { namedInHistory, namedInRecord, walkArtifacts } from './graph.ts';
import type { Named } from './graph.ts';
import { ArtifactReader } from './source.ts';
import type { AuditSource } from './source.ts';

interface Member {
  readonly name: string;
  /** Text at hand; else the artifact's bytes are read again when they are written. */
  readonly text?: string;
  readonly artifact?: string;
  readonly sha256: string;
  readonly bytes: number;
}
export interface Exported {
  readonly file: string;
  readonly manifest: Manifest;
  /** Size of the archive. */
  readonly bytes: number;
}

/** The archive appears under its name when it is whole; an export that is broken off, or fails, leaves no file. */
export async function writeArchive(
  source: AuditSource,
  options: {
    readonly file: string;
    readonly artifacts: Manifest['artifacts'];
    readonly versions: Readonly<Record<string, string>>;
    readonly signal?: AbortSignal;
  },
): Promise<Exported> {
  const { file, artifacts: mode, versions, signal } = options;
  const records = readable(source.ledger);
  const members: Member[] = source.ledger.map(({ place, text }) => textMember(`ledger/${path.basename(place)}`, text));
  for (const runKey of otherRuns(source)) {
    for (const { place, text } of (await source.otherLedger(runKey)) ?? [])
      members.push(textMember(`ledgers/${runKey}/${path.basename(place)}`, text));
  }
  const histories = source.histories.map((history) => ({ ...history, member: `histories/${history.runId}.json` }));
  for (const { member, json } of histories) members.push(textMember(member, json));
  const { result } = await source.report();
  if (result) members.push(textMember('result.json', result.text));

  const missing: Manifest['missing'] = [];
  const unreadable: Named[] = [];
  const named: Named[] = [
    ...records.flatMap((record) => namedInRecord(record, '')),
    ...source.histories.flatMap((history) => namedInHistory(history, undefined)),
  ];
  await walkArtifacts(new ArtifactReader(source), named, (one, read) => {
    signal?.throwIfAborted();
    if (!isIncluded(mode, one.kind)) return;
    if (!(read instanceof Error)) members.push(artifactMember(one.sha256, read));
    else unreadable.push(one);
  });
  for (const { sha256, kind } of unreadable) {
    const blob = await source.blob(sha256, kind);
    // A changed artifact goes in as it is: whoever audits the archive is to find what is wrong here.
    if ('bytes' in blob && blob.bytes) members.push(artifactMember(sha256, blob.bytes));
    else missing.push({ sha256, kind, why: 'it was missing' });
  }
  members.sort((a, b) => (a.name < b.name ? -1 : 1));

  const opened = records.find((record) => record.kind === 'opened');
  const manifest: Manifest = {
    schema: ARCHIVE_SCHEMA,
    runKey: source.runKey,
    workflowId: opened?.observed.workflowId ?? '',
    artifacts: mode,
    open: !records.some((record) => record.kind === 'closed'),
    versions: { ...versions },
    histories: histories.map(({ workflowId, runId, type, events, complete, member }) => ({
      workflowId,
      runId,
      type,
      events: events.length,
      complete,
      member,
    })),
    members: members.map(({ name, sha256, bytes }) => ({ name, sha256, bytes })),
    missing,
    notes: [...source.notes],
  };
  await write(source, file, [textMember('manifest.json', `${JSON.stringify(manifest, null, 2)}\n`), ...members], signal);
  return { file, manifest, bytes: (await stat(file)).size };
}

/** Runs whose ledgers prove where stages of this one are from. */
function otherRuns({ ledger, runKey }: AuditSource): string[] {
  const keys = readable(ledger).flatMap((record) => {
    if (record.kind === 'opened') return record.observed.forkedFrom?.runKey ?? [];
    return record.kind === 'stage' ? (record.observed.reusedFrom?.runKey ?? []) : [];
  });
  return [...new Set(keys)].filter((key) => key !== runKey).sort();
}

/** In the order given, without times and owners: equal contents give equal archives. */
async function write(source: AuditSource, file: string, members: readonly Member[], signal: AbortSignal | undefined): Promise<void> {
  await mkdir(path.dirname(path.resolve(file)), { recursive: true });
  const temporary = `${file}.${process.pid}.tmp`;
  const archive = pack();
  const fill = async (): Promise<void> => {
    for (const { name, text, artifact, sha256, bytes } of members) {
      signal?.throwIfAborted();
      const content = text === undefined ? await artifactBytes(source, artifact ?? '') : Buffer.from(text);
      if (hashOf(content) !== sha256) throw new Error(`${name} was changed while the archive was being written; export again`);
      const entry = { name, size: bytes, mtime: new Date(0), mode: 0o644 };
      await new Promise<void>((resolve, reject) => archive.entry(entry, content, (error) => (error ? reject(error) : resolve())));
    }
    archive.finalize();
  };
  try {
    const filling = fill().catch((error: unknown) => archive.destroy(error as Error));
    await pipeline(archive, createGzip(), createWriteStream(temporary), ...(signal ? [{ signal }] : []));
    await filling;
    await rename(temporary, file);
  } finally {
    await rm(temporary, { force: true });
  }
}

async function artifactBytes(source: AuditSource, sha256: string): Promise<Buffer> {
  const blob = await source.blob(sha256, undefined);
  if (!('bytes' in blob) || !blob.bytes)
    throw new Error(`artifact ${sha256} was removed while the archive was being written; export again`);
  return blob.bytes;
}

function textMember(name: string, text: string): Member {
  return { name, text, sha256: hashOf(Buffer.from(text)), bytes: Buffer.byteLength(text) };
}
function artifactMember(sha256: string, bytes: Buffer): Member {
  return { name: `artifacts/${sha256}`, artifact: sha256, sha256: hashOf(bytes), bytes: bytes.byteLength };
}
function hashOf(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}
