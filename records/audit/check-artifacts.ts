/** Every artifact that anything names, read and hashed; and the copies of artifacts that people and processes use. */
import { ArtifactError } from '../artifacts.ts';
import { canonicalHash } from '../canonical-json.ts';
import type { AuditContext } from './context.ts';
import { isDirectory, namedInHistory, namedInRecord, treeFiles, walkArtifacts } from './graph.ts';
import type { Named } from './graph.ts';
import { NotInArchive } from './source.ts';

/** What a stage consumed or made, for the report. */
export interface ArtifactSize {
  readonly kind: string;
  readonly bytes: number;
}

/** Returns kind and size of every artifact that could be read, by hash. */
export async function checkArtifacts(context: AuditContext): Promise<Map<string, ArtifactSize>> {
  const { source, findings, reader } = context;
  const sizes = new Map<string, ArtifactSize>();
  const roots = namedArtifacts(context);
  const claims = new Map<string, Named[]>();
  for (const named of roots) claims.set(named.sha256, [...(claims.get(named.sha256) ?? []), named]);
  await walkArtifacts(reader, roots, async (named, read, files) => {
    const what = `${named.kind} artifact ${named.sha256}`;
    const stage = named.stage;
    if (read instanceof NotInArchive) {
      // Its bytes are those of a member of its own, or of the beginning of one: the check of the histories compares the hash.
      if (named.kind === 'history') return;
      findings.missing('artifacts', what, read.message);
      return;
    }
    findings.count('artifacts');
    if (read instanceof ArtifactError) {
      const found = read.found === undefined ? 'nothing: it is missing' : `bytes with SHA-256 ${read.found}`;
      findings.problem('artifacts', read.path, `${named.kind} with SHA-256 ${named.sha256} (named by ${named.by})`, found, stage);
      return;
    }
    if (read instanceof Error) {
      findings.problem('artifacts', what, `a readable ${named.kind} (named by ${named.by})`, read.message, stage);
      return;
    }
    const bytes = files ? files.reduce((sum, file) => sum + file.bytes, 0) : read.byteLength;
    sizes.set(named.sha256, { kind: named.kind, bytes });
    for (const claim of [named, ...(claims.get(named.sha256) ?? [])])
      if (claim.bytes !== undefined && claim.bytes !== bytes)
        findings.problem('artifacts', claim.by, `${bytes} bytes, the size of ${what}`, `${claim.bytes} bytes`, stage);
    if (files) await compareTree(context, named, files, stage);
  });
  await checkReport(context);
  return sizes;

  async function compareTree(
    _: AuditContext,
    named: Named,
    files: readonly { path: string; sha256: string }[],
    stage: string | undefined,
  ): Promise<void> {
    const expected = new Map(files.map(({ path, sha256 }) => [path, sha256]));
    for (const copy of await source.tree(named.sha256)) {
      findings.count('artifacts');
      const hash = expected.get(copy.file);
      if (hash !== copy.sha256)
        findings.problem(
          'artifacts',
          copy.place,
          hash === undefined ? 'no such file' : `SHA-256 ${hash}, as file ${copy.file} of ${named.kind} ${named.sha256}`,
          `SHA-256 ${copy.sha256}`,
          stage,
        );
    }
  }
}

function namedArtifacts(context: AuditContext): Named[] {
  const named: Named[] = [];
  for (const record of context.records) {
    if (record.kind === 'stage' && !context.covers(record.content.stage)) continue;
    named.push(...namedInRecord(record, context.place(record)));
  }
  for (const history of context.source.histories) {
    const stage = context.stageOf(history.workflowId);
    if (context.only === undefined || stage === context.only) named.push(...namedInHistory(history, stage));
  }
  return named;
}

/** What the run hands out: `report/policy` is what people take away, `result.json` what they quote. */
async function checkReport({ source, findings, reader, closed, only }: AuditContext): Promise<void> {
  if (!closed || only !== undefined) return;
  const { policy, result } = await source.report();
  if (result) {
    findings.count('artifacts');
    let found: string;
    try {
      found = `SHA-256 ${canonicalHash(JSON.parse(result.text))}`;
    } catch (error) {
      found = error instanceof Error ? error.message : String(error);
    }
    const expected = `SHA-256 ${closed.observed.result.sha256}`;
    if (found !== expected)
      findings.problem('artifacts', result.place, `${expected} of its content, as the last record of the ledger says`, found);
  }
  if (policy.length === 0) return;
  const final = { sha256: closed.content.finalPolicy, kind: 'policy' } as const;
  if (!isDirectory(final.kind)) return;
  const files = await reader.readBytes(final).then(treeFiles, () => undefined);
  for (const copy of files ? policy : []) {
    findings.count('artifacts');
    const hash = files?.find(({ path }) => path === copy.file)?.sha256;
    if (hash !== copy.sha256)
      findings.problem(
        'artifacts',
        copy.place,
        hash === undefined ? 'no such file' : `SHA-256 ${hash} as in the final policy ${final.sha256}`,
        `SHA-256 ${copy.sha256}`,
      );
  }
}
