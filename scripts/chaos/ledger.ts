/** The part of a run's ledger that must be equal in equal runs: the `content` of its records, without what was `observed`. */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { canonicalJson } from '../../records/canonical-json.ts';
import type { TrainingRunResult } from '../../workflows/contract.ts';

/** One hash per record, in the ledger's order. */
export function ledgerContents(data: string, { runKey, stages }: TrainingRunResult): { stage: string; sha256: string }[] {
  const file = path.join(data, 'runs', runKey, 'ledger.jsonl');
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, 'utf8').split('\n').filter(Boolean);
  return lines.map((line, index) => {
    const { content } = JSON.parse(line) as { content: unknown };
    const sha256 = createHash('sha256').update(canonicalJson(content)).digest('hex');
    return { stage: stages[index]?.name ?? `record ${index}`, sha256 };
  });
}
