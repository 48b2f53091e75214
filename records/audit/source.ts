/**
 * Where an audit reads from: a data folder (with the Temporal server beside it) or an exported archive. Nothing here writes:
 * what an audit computes again is hashed and thrown away.
 */
import { createHash } from 'node:crypto';
import { ArtifactError } from '../artifacts.ts';
import { canonicalJson } from '../canonical-json.ts';
import type { LedgerText } from '../ledger.ts';
import type { WorkflowHistory } from '../history.ts';
import type { ArtifactKind, ArtifactRef } from '../types.ts';

export interface SourcedHistory extends WorkflowHistory {
  /** For messages: the member's name, or the workflow on its server. */
  readonly place: string;
}
/** Bytes of a blob with the place they are from. `absent`: left out on purpose, which is no failure; undefined bytes: missing. */
export type Blob = { readonly place: string; readonly bytes: Buffer | undefined } | { readonly absent: string };

export interface AuditSource {
  readonly runKey: string;
  /** What was opened, for the first line of the report. */
  readonly from: string;
  readonly ledger: readonly LedgerText[];
  readonly histories: readonly SourcedHistory[];
  /** Notes about the histories, and about what the source is. */
  readonly notes: readonly string[];
  /** Problems of the source itself: members that do not fit the manifest. */
  readonly problems: readonly { readonly place: string; readonly expected: string; readonly found: string }[];
  /** Members of an archive that were compared with its manifest; 0 for a data folder. */
  readonly members: number;
  blob(sha256: string, kind: string | undefined): Promise<Blob>;
  /** The files that are laid out of a directory artifact (a cache, which trainer and sampler read); empty where there are none. */
  tree(sha256: string): Promise<readonly Copy[]>;
  /** What the run hands out: the copy of its final policy, and its result file. */
  report(): Promise<{ readonly policy: readonly Copy[]; readonly result?: { readonly place: string; readonly text: string } }>;
  /** The ledger of another run, for what is reused or forked; undefined where it is not at hand. */
  otherLedger(runKey: string): Promise<readonly LedgerText[] | undefined>;
  close(): Promise<void>;
}
/** A file that was copied from a directory artifact. */
export interface Copy {
  readonly place: string;
  /** Relative to the directory. */
  readonly file: string;
  readonly sha256: string;
}

/** An artifact that was left out of the archive on purpose. */
export class NotInArchive extends Error {
  override readonly name = 'NotInArchive';
}

/** Reads artifacts with the interface of a store (records/artifacts.ts); whatever is "stored" is only hashed. */
export class ArtifactReader {
  readonly #source: Pick<AuditSource, 'blob'>;
  /** Blobs whose hash has been proven. */
  readonly #proven = new Set<string>();

  constructor(source: Pick<AuditSource, 'blob'>) {
    this.#source = source;
  }

  /** Throws NotInArchive, or ArtifactError where bytes are missing or changed. */
  async readBytes({ sha256, kind }: { readonly sha256: string; readonly kind?: string }): Promise<Buffer> {
    const blob = await this.#source.blob(sha256, kind);
    if ('absent' in blob) throw new NotInArchive(blob.absent);
    const { bytes, place } = blob;
    if (bytes === undefined) throw new ArtifactError('artifact is missing', { sha256, path: place });
    if (this.#proven.has(sha256)) return bytes;
    const found = createHash('sha256').update(bytes).digest('hex');
    if (found !== sha256) throw new ArtifactError('artifact is corrupt', { sha256, path: place, found });
    this.#proven.add(sha256);
    return bytes;
  }
  async readJson<T>(ref: { readonly sha256: string; readonly kind?: string }): Promise<T> {
    return JSON.parse((await this.readBytes(ref)).toString('utf8')) as T;
  }
  async readJsonLines<T>(ref: { readonly sha256: string; readonly kind?: string }): Promise<T[]> {
    const text = (await this.readBytes(ref)).toString('utf8');
    return text
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as T);
  }

  async putJson(kind: ArtifactKind, value: unknown): Promise<ArtifactRef> {
    return reference(kind, canonicalJson(value));
  }
  async putJsonLines(kind: ArtifactKind, values: readonly unknown[]): Promise<ArtifactRef> {
    return reference(kind, values.map((value) => `${canonicalJson(value)}\n`).join(''));
  }
}

function reference(kind: ArtifactKind, text: string): ArtifactRef {
  const sha256 = createHash('sha256').update(text).digest('hex');
  return { kind, uri: `artifact:${sha256}`, sha256, bytes: Buffer.byteLength(text) };
}

/** All artifact references in a JSON value, with the path to each. */
export function refsIn(value: unknown, path = ''): { readonly path: string; readonly ref: ArtifactRef }[] {
  if (Array.isArray(value)) return value.flatMap((item, i) => refsIn(item, `${path}[${i}]`));
  if (typeof value !== 'object' || value === null) return [];
  const { kind, uri, sha256, bytes } = value as Partial<ArtifactRef>;
  if (typeof kind === 'string' && typeof sha256 === 'string' && typeof bytes === 'number' && typeof uri === 'string')
    return [{ path, ref: value as ArtifactRef }];
  return Object.entries(value).flatMap(([key, item]) => refsIn(item, path === '' ? key : `${path}.${key}`));
}
