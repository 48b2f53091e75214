/**
 * The ledger of a run: one record for its opening, each stage, each restart from a stage, and its end, chained by hash. It lies
 * with the artifacts and not only in Temporal, because histories expire.
 *
 *     <data>/runs/<runKey>/ledger/000003.json     canonical JSON of one record, and a newline
 *
 * Invariants:
 *  I1 A record names the hash of the record before it; its own hash covers everything else in it. Changing a byte anywhere, leaving
 *     out or exchanging records breaks the chain at that place.
 *  I2 `content` holds what equal runs have in common (inputs, outputs, seeds, counts, decision); times, workers, attempts and what
 *     names this very execution stand in `observed`. Equal runs have equal contents, whatever was killed on the way.
 *  I3 A record is whole or absent: written under a temporary name, synced, and linked to its number, which fails when that is taken.
 *     So two attempts of one activity cannot both append.
 */
import { randomUUID } from 'node:crypto';
import { link, mkdir, open, readdir, readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
import { canonicalHash, canonicalJson } from './canonical-json.ts';
import { recordBodySchema } from './ledger-schema.ts';
import type { RecordBody } from './ledger-schema.ts';

export const LEDGER_SCHEMA = 'terminal-rsi/ledger@1';

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const envelopeSchema = z.object({
  schema: z.literal(LEDGER_SCHEMA),
  runKey: z.string(),
  /** Counts from 0. */
  index: z.number().int().min(0),
  /** Hash of the record before it; null in the first. */
  previous: sha256.nullable(),
  /** SHA-256 of the canonical JSON of the record without this field. */
  hash: sha256,
});
export type LedgerRecord = z.infer<typeof envelopeSchema> & RecordBody;

/** The ledger does not hold together. `place` is the file (or the line's name in an archive), the message says what is wrong with it. */
export class LedgerError extends Error {
  override readonly name = 'LedgerError';
  readonly place: string;
  constructor(place: string, problem: string) {
    super(`${place}: ${problem}`);
    this.place = place;
  }
}

export function ledgerDirectory(data: string, runKey: string): string {
  return path.join(data, 'runs', runKey, 'ledger');
}

export class Ledger {
  readonly directory: string;
  readonly #runKey: string;

  constructor(data: string, runKey: string) {
    this.directory = ledgerDirectory(data, runKey);
    this.#runKey = runKey;
  }

  /** All records, checked. Empty where the run has none. Throws LedgerError naming the first record that does not fit. */
  async read(): Promise<LedgerRecord[]> {
    const texts: LedgerText[] = [];
    for (const name of (await namesIn(this.directory)).filter((file) => /^\d{6}\.json$/.test(file)).sort())
      texts.push({ place: path.join(this.directory, name), text: await readFile(path.join(this.directory, name), 'utf8') });
    return checkedLedger(texts, this.#runKey);
  }

  /**
   * Appends a record, unless one of the same kind and content follows the last restart already (an earlier attempt wrote it): then
   * that one is returned. A restart is known only if it is the last record. Throws LedgerError when what is there does not hold together.
   */
  async append(body: RecordBody): Promise<LedgerRecord> {
    await mkdir(this.directory, { recursive: true });
    for (;;) {
      const records = await this.read();
      const candidates = body.kind === 'restarted' ? records.slice(-1) : sinceRestart(records);
      const known = candidates.find((record) => record.kind === body.kind && equal(record.content, body.content));
      if (known) return known;
      const record = chained(this.#runKey, records.at(-1), body);
      if (await this.#place(record)) return record;
    }
  }

  /** False when another writer took the number. */
  async #place(record: LedgerRecord): Promise<boolean> {
    const temporary = path.join(this.directory, `.${process.pid}-${randomUUID()}.tmp`);
    try {
      const file = await open(temporary, 'wx');
      try {
        await file.writeFile(`${canonicalJson(record)}\n`);
        await file.sync();
      } finally {
        await file.close();
      }
      await link(temporary, path.join(this.directory, `${String(record.index).padStart(6, '0')}.json`));
      const folder = await open(this.directory, 'r');
      await folder.sync().finally(() => folder.close());
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
      throw error;
    } finally {
      await rm(temporary, { force: true });
    }
  }
}

export interface LedgerText {
  /** File name, for messages. */
  readonly place: string;
  readonly text: string;
}

/** Parses and checks records in the order of their numbers. Throws LedgerError naming the first one that does not fit. */
export function checkedLedger(texts: readonly LedgerText[], runKey?: string): LedgerRecord[] {
  const records: LedgerRecord[] = [];
  for (const { place, text } of texts) {
    const { record, found } = parseRecord(place, text);
    const { hash } = record;
    if (found !== hash) throw new LedgerError(place, `the record's bytes have hash ${found}, the record says ${hash}: it was changed`);
    if (runKey !== undefined && record.runKey !== runKey)
      throw new LedgerError(place, `belongs to run ${record.runKey}, expected run ${runKey}`);
    const before = records.at(-1);
    if (record.index !== records.length)
      throw new LedgerError(place, `has number ${record.index}, expected ${records.length}: records are missing or exchanged`);
    if (record.previous !== (before?.hash ?? null))
      throw new LedgerError(place, `names ${record.previous ?? 'no record'} as the record before it, which is ${before?.hash ?? 'none'}`);
    records.push(record);
  }
  return records;
}

/** The records that count: of each stage the last one, and none of a stage that a later restart made void. */
export function effectiveStages(records: readonly LedgerRecord[]): (LedgerRecord & { kind: 'stage' })[] {
  let stages: (LedgerRecord & { kind: 'stage' })[] = [];
  for (const record of records) {
    if (record.kind === 'restarted') stages = stages.filter(({ content }) => record.content.kept.includes(content.stage));
    if (record.kind !== 'stage') continue;
    stages = [...stages.filter(({ content }) => content.stage !== record.content.stage), record];
  }
  return stages;
}

function sinceRestart(records: readonly LedgerRecord[]): readonly LedgerRecord[] {
  return records.slice(records.findLastIndex(({ kind }) => kind === 'restarted') + 1);
}

function chained(runKey: string, before: LedgerRecord | undefined, body: RecordBody): LedgerRecord {
  const rest = { schema: LEDGER_SCHEMA, runKey, index: (before?.index ?? -1) + 1, previous: before?.hash ?? null, ...body } as const;
  return { ...rest, hash: canonicalHash(rest) };
}

/**
 * One record, and the hash that its bytes have: over all fields that stand there, those this version does not know included.
 * Throws LedgerError for what is no record, and for one that is not written as `append` writes it: spacing is no place to hide in.
 */
export function parseRecord(place: string, text: string): { record: LedgerRecord; found: string } {
  try {
    const json: unknown = JSON.parse(text);
    const record = { ...envelopeSchema.parse(json), ...recordBodySchema.parse(json) };
    if (text !== `${canonicalJson(json)}\n`) throw new TypeError('expected canonical JSON and one newline');
    const { hash: _, ...rest } = json as Record<string, unknown>;
    return { record, found: canonicalHash(rest) };
  } catch (error) {
    const why = error instanceof z.ZodError ? z.prettifyError(error) : error instanceof Error ? error.message : String(error);
    throw new LedgerError(place, `is not a record of a ledger: ${why}`);
  }
}

const equal = (a: unknown, b: unknown): boolean => canonicalJson(a) === canonicalJson(b);

async function namesIn(directory: string): Promise<string[]> {
  try {
    return await readdir(directory);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}
