/** Each record of a ledger against its own hash, its number and the record before it. Goes on after the first that does not fit. */
import { parseRecord, LedgerError } from '../ledger.ts';
import type { LedgerRecord, LedgerText } from '../ledger.ts';
import type { Problem } from './findings.ts';

export interface ExaminedLedger {
  /** What can be read, with its file. */
  readonly records: ReadonlyMap<LedgerRecord, string>;
  readonly problems: readonly Omit<Problem, 'check'>[];
}

export function examineLedger(texts: readonly LedgerText[], runKey: string): ExaminedLedger {
  const records = new Map<LedgerRecord, string>();
  const problems: Omit<Problem, 'check'>[] = [];
  let before: LedgerRecord | undefined;
  for (const [number, { place, text }] of texts.entries()) {
    let record: LedgerRecord;
    let found: string;
    try {
      ({ record, found } = parseRecord(place, text));
    } catch (error) {
      if (!(error instanceof LedgerError)) throw error;
      problems.push({ place, expected: 'a record of a ledger', found: error.message.replace(`${place}: `, '') });
      before = undefined;
      continue;
    }
    const stage = record.kind === 'stage' ? { stage: record.content.stage } : {};
    const add = (what: string, expected: string, got: string): void =>
      void problems.push({ place: `${place}${what}`, expected, found: got, ...stage });
    if (found !== record.hash)
      add('', `bytes with the SHA-256 that the record says it has, ${record.hash}`, `bytes with SHA-256 ${found}: the record was changed`);
    if (record.runKey !== runKey) add(', runKey', runKey, record.runKey);
    const expected = before ? before.index + 1 : number;
    if (record.index !== expected)
      add(', index', `${expected}: one more than the record before it`, `${record.index}: records are missing or exchanged`);
    // After a record that cannot be read, or that is missing, nothing is known of the one before.
    if ((before ?? number === 0) && record.previous !== (before?.hash ?? null))
      add(
        ', previous',
        before ? `${before.hash}, the hash of record ${before.index}` : 'null: it is the first record',
        record.previous ?? 'null',
      );
    records.set(record, place);
    before = record;
  }
  if (texts.length === 0) problems.push({ place: 'ledger', expected: 'the records of the run', found: 'no record' });
  else if ([...records.keys()][0]?.kind !== 'opened' && problems.length === 0)
    problems.push({
      place: texts[0]?.place ?? 'ledger',
      expected: 'the opening of the run as its first record',
      found: `a record of kind ${[...records.keys()][0]?.kind}`,
    });
  return { records, problems };
}
