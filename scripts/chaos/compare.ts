/** Lays the outcomes of two runs side by side. They must be equal in everything but times, ids and the histories themselves. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { ArtifactKind } from '../../records/types.ts';
import type { TrainingRunResult } from '../../workflows/contract.ts';
import { blobFile } from './marks.ts';
import type { ActivityOutcome } from './outcome.ts';

/** All that is compared of a finished run. */
export interface RunOutcome {
  readonly data: string;
  readonly seconds: number;
  readonly result: TrainingRunResult;
  readonly activities: readonly ActivityOutcome[];
  /** The parts of its ledger's records that equal runs have in common, by stage or kind of record. */
  readonly ledger: readonly { readonly name: string; readonly sha256: string }[];
}

/** The first places where two runs differ. `undisturbed` and `disturbed` are hashes, `missing` where one has nothing. */
export interface Difference {
  readonly stage: string;
  /** e.g. `RSR-1/rollout/rollout/0 episodes`. */
  readonly name: string;
  /** Kind of the artifact, `activity result`, `ledger` or `blob`. */
  readonly kind: string;
  readonly undisturbed: string;
  readonly disturbed: string;
}

/** Artifacts that hold times or ids by their nature. */
const KINDS_APART: ReadonlySet<ArtifactKind> = new Set(['result', 'history'] as ArtifactKind[]);
const MISSING = 'missing';

/** Every difference, in the order in which the undisturbed run made the things: the first one is where to look. */
export function differences(undisturbed: RunOutcome, disturbed: RunOutcome): Difference[] {
  const before = namedHashes(undisturbed);
  const after = namedHashes(disturbed);
  const found: Difference[] = [];
  for (const [name, { stage, kind, sha256 }] of before) {
    const other = after.get(name)?.sha256 ?? MISSING;
    if (other !== sha256) found.push({ stage, name, kind, undisturbed: sha256, disturbed: other });
  }
  for (const [name, { stage, kind, sha256 }] of after)
    if (!before.has(name)) found.push({ stage, name, kind, undisturbed: MISSING, disturbed: sha256 });
  return [...found, ...blobDifferences(undisturbed, disturbed)];
}

/** Name → hash of every artifact of every activity, of every activity's result, of the ledger and of the final policy. */
export function namedHashes({ activities, ledger, result }: RunOutcome): Map<string, { stage: string; kind: string; sha256: string }> {
  const hashes = new Map<string, { stage: string; kind: string; sha256: string }>();
  for (const { name, stage, artifacts, result: whole } of activities) {
    for (const { field, ref } of artifacts)
      if (!KINDS_APART.has(ref.kind)) hashes.set(`${name} ${field}`, { stage, kind: ref.kind, sha256: ref.sha256 });
    if (whole !== undefined) hashes.set(name, { stage, kind: 'activity result', sha256: whole });
  }
  for (const { name, sha256 } of ledger) hashes.set(`ledger ${name}`, { stage: name, kind: 'ledger', sha256 });
  hashes.set('final policy', { stage: result.stages.at(-1)?.name ?? 'run', kind: 'policy', sha256: result.finalPolicy.sha256 });
  return hashes;
}

/** Blobs that only one of the stores holds: work of a lost attempt that came out otherwise shows here although nobody refers to it. */
function blobDifferences(undisturbed: RunOutcome, disturbed: RunOutcome): Difference[] {
  const [before, after] = [blobs(undisturbed.data), blobs(disturbed.data)];
  const only = (one: readonly string[], other: readonly string[], data: string): string[] => {
    const known = new Set(other);
    return one.filter((sha256) => !known.has(sha256) && !holdsTimes(data, sha256));
  };
  const difference = { stage: 'run', kind: 'blob' };
  return [
    ...only(before, after, undisturbed.data).map((sha256) => ({
      ...difference,
      name: `artifact:${sha256}`,
      undisturbed: sha256,
      disturbed: MISSING,
    })),
    ...only(after, before, disturbed.data).map((sha256) => ({
      ...difference,
      name: `artifact:${sha256}`,
      undisturbed: MISSING,
      disturbed: sha256,
    })),
  ];
}

function blobs(data: string): string[] {
  const root = path.join(data, 'artifacts', 'sha256');
  return readdirSync(root)
    .flatMap((folder) => readdirSync(path.join(root, folder)))
    .sort();
}

/** Results and histories, told by how they begin: those of a lost attempt are in no record that would name their kind. */
function holdsTimes(data: string, sha256: string): boolean {
  const text = readFileSync(blobFile(data, sha256)).toString('latin1');
  return /^\{\s*"events":/.test(text) || (text.startsWith('{"config":') && text.includes('"schema":"terminal-rsi/run-result@'));
}
