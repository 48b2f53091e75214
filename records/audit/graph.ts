/** The artifacts of a run: those that its ledger and histories name, and those that these name in turn. */
import type { ArtifactKind, ArtifactRef } from '../types.ts';
import { activityTraces, inputOf, payloadValue, resultOf } from '../history.ts';
import type { WorkflowHistory } from '../history.ts';
import type { LedgerRecord } from '../ledger.ts';
import type { ArtifactReader } from './source.ts';
import { refsIn } from './source.ts';

/** A hash, and who says what should be behind it. */
export interface Named {
  readonly sha256: string;
  readonly kind: ArtifactKind;
  /** Absent where only the hash is told. */
  readonly bytes?: number;
  /** File, artifact or event with the path in it. */
  readonly by: string;
  readonly stage?: string;
}
export interface TreeFile {
  readonly path: string;
  readonly sha256: string;
  readonly bytes: number;
}

const DIRECTORIES: readonly ArtifactKind[] = ['policy', 'critic', 'optimizer'];
/** Kinds whose content names artifacts. */
const NAMING: readonly ArtifactKind[] = ['chunks', 'stage'];

export const isDirectory = (kind: ArtifactKind): boolean => DIRECTORIES.includes(kind);

/** `place`: how to call a record in messages. */
export function namedInRecord(record: LedgerRecord, place: string): Named[] {
  const named: Named[] = refsIn(record).map(({ path, ref }) => ({ ...pick(ref), by: `${place}, ${path}` }));
  const add = (kind: ArtifactKind, field: string, sha256: string | undefined): void => {
    if (sha256 !== undefined) named.push({ sha256, kind, by: `${place}, content.${field}` });
  };
  if (record.kind === 'opened') add('policy', 'basePolicy', record.content.basePolicy);
  if (record.kind === 'closed') add('policy', 'finalPolicy', record.content.finalPolicy);
  if (record.kind !== 'stage') return named;
  const { inputs, stage } = record.content;
  add('policy', 'inputs.policy', inputs.policy);
  add('critic', 'inputs.critic', inputs.critic);
  add('calibration', 'inputs.calibration', inputs.calibration);
  add('evaluation', 'inputs.reference', inputs.reference);
  return named.map((one) => ({ ...one, stage }));
}

/** Activities that are told of a stage's whole result: everything in it is named where it was made. */
const SUMMARIES = ['recordStage', 'report', 'closeRun'];

export function namedInHistory(history: WorkflowHistory & { readonly place: string }, stage: string | undefined): Named[] {
  const named: Named[] = [];
  const add = (place: string, read: () => unknown): void => {
    let value: unknown;
    try {
      value = read();
    } catch {
      // The comparison of the events tells of a payload that cannot be read.
      return;
    }
    for (const { path, ref } of refsIn(value))
      named.push({ ...pick(ref), by: `${place}, ${path}`, ...(stage === undefined ? {} : { stage }) });
  };
  add(`${history.place}, input`, () => inputOf(history));
  for (const trace of activityTraces(history)) {
    const place = `${history.place}, event ${trace.eventId} (${trace.type})`;
    const { input, result } = trace;
    if (input && !SUMMARIES.includes(trace.type)) add(`${place}, input`, () => payloadValue(input));
    if (result) add(`${place}, result`, () => payloadValue(result));
  }
  add(`${history.place}, result`, () => resultOf(history));
  return named;
}

function pick({ sha256, kind, bytes }: ArtifactRef): Pick<Named, 'sha256' | 'kind' | 'bytes'> {
  return { sha256, kind, bytes };
}

/** What a naming artifact names; empty for the others. The bytes' hash has been proven. */
export function namedInBytes(named: Named, bytes: Buffer): Named[] {
  if (!NAMING.includes(named.kind)) return [];
  const lines = bytes
    .toString('utf8')
    .split('\n')
    .filter((line) => line !== '');
  const stage = named.stage === undefined ? {} : { stage: named.stage };
  return lines.flatMap((line, i) =>
    refsIn(JSON.parse(line)).map(({ path, ref }) => ({
      ...pick(ref),
      by: `${named.kind} artifact ${named.sha256.slice(0, 12)}${lines.length > 1 ? `, line ${i + 1}` : ''}, ${path}`,
      ...stage,
    })),
  );
}

/** The files of a directory artifact. Throws TypeError for a manifest that is none. */
export function treeFiles(bytes: Buffer): readonly TreeFile[] {
  const { schema, files } = JSON.parse(bytes.toString('utf8')) as { schema?: string; files?: readonly TreeFile[] };
  if (schema !== 'terminal-rsi/tree@1' || !Array.isArray(files))
    throw new TypeError('expected a manifest with schema "terminal-rsi/tree@1"');
  return files as readonly TreeFile[];
}

/**
 * Visits every artifact once per hash, in the order in which they are named, the blobs of directories after their manifest.
 * `visit` gets the error that reading gave.
 */
export async function walkArtifacts(
  reader: ArtifactReader,
  roots: readonly Named[],
  visit: (named: Named, read: Buffer | Error, files?: readonly TreeFile[]) => Promise<void> | void,
): Promise<void> {
  const seen = new Set<string>();
  const go = async (named: Named): Promise<void> => {
    if (seen.has(named.sha256)) return;
    seen.add(named.sha256);
    let bytes: Buffer;
    try {
      bytes = await reader.readBytes(named);
    } catch (error) {
      await visit(named, error as Error);
      return;
    }
    let files: readonly TreeFile[] | undefined;
    try {
      if (isDirectory(named.kind)) files = treeFiles(bytes);
    } catch (error) {
      await visit(named, error as Error);
      return;
    }
    await visit(named, bytes, files);
    for (const file of files ?? []) {
      if (seen.has(file.sha256)) continue;
      seen.add(file.sha256);
      const blob: Named = {
        ...named,
        sha256: file.sha256,
        bytes: file.bytes,
        by: `${named.kind} artifact ${named.sha256.slice(0, 12)}, file ${file.path}`,
      };
      await visit(blob, await reader.readBytes(blob).catch((error: unknown) => error as Error));
    }
    for (const next of namedInBytes(named, bytes)) await go(next);
  };
  for (const root of roots) await go(root);
}
