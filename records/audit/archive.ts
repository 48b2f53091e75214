/**
 * The archive of a run (`npm run export`), read: a gzipped tar or the folder it was unpacked to.
 *
 *     manifest.json            what is in it, and the SHA-256 of every other member
 *     ledger/000000.json …     the ledger, byte for byte
 *     ledgers/<runKey>/…       ledgers of the runs that this one was forked from or reuses stages of
 *     histories/<runId>.json   the workflow histories as Temporal exports them
 *     artifacts/<sha256>       artifacts, each named by its own hash
 *     result.json              the run's result file
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { extract } from 'tar-stream';
import { z } from 'zod';
import { UserError } from '../../environment/errors.ts';
import { parseHistory } from '../history.ts';
import type { LedgerText } from '../ledger.ts';
import type { AuditSource, SourcedHistory } from './source.ts';

export const ARCHIVE_SCHEMA = 'terminal-rsi/archive@1';
const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const whole = z.number().int().min(0);
/** Nothing else is written when an archive is unpacked: it may come from anywhere. */
const MEMBER = /^(manifest\.json|result\.json|(ledger|ledgers\/[\w-]+)\/\d{6}\.json|histories\/[\w-]+\.json|artifacts\/[0-9a-f]{64})$/;
const memberName = z.string().regex(MEMBER);

export const manifestSchema = z.object({
  schema: z.literal(ARCHIVE_SCHEMA),
  runKey: z.string(),
  workflowId: z.string(),
  /** `records`: without policies, critics, optimizers and token records; `hashes`: without any artifact. */
  artifacts: z.enum(['all', 'records', 'hashes']),
  /** True where the run was not over yet. */
  open: z.boolean(),
  versions: z.record(z.string(), z.string()),
  histories: z.array(
    z.object({ workflowId: z.string(), runId: z.string(), type: z.string(), events: whole, complete: z.boolean(), member: memberName }),
  ),
  members: z.array(z.object({ name: memberName, sha256, bytes: whole })),
  /** Artifacts that are named and were not there, or not as their hash says, when the archive was made. */
  missing: z.array(z.object({ sha256, kind: z.string(), why: z.string() })),
  /** What whoever exported should know, e.g. which histories the server had lost. */
  notes: z.array(z.string()),
});
export type Manifest = z.infer<typeof manifestSchema>;

/** Left out with `--artifacts records`: large, and nothing but training reads them. Histories are members of their own. */
const LARGE: readonly string[] = ['policy', 'critic', 'optimizer', 'tokens', 'snapshots', 'examples', 'batch', 'history'];
export function isIncluded(mode: Manifest['artifacts'], kind: string): boolean {
  return mode === 'all' || (mode === 'records' && !LARGE.includes(kind));
}

/** Whether `target` is an archive of a run, packed or unpacked. */
export async function isArchive(target: string): Promise<boolean> {
  const found = await stat(target).catch(() => undefined);
  if (found?.isDirectory()) return (await stat(path.join(target, 'manifest.json')).catch(() => undefined)) !== undefined;
  return found?.isFile() === true;
}

/** Throws UserError where the file is no archive at all; whatever is wrong inside is for the audit to tell. */
export async function openArchive(target: string): Promise<AuditSource> {
  const packed = (await stat(target)).isFile();
  const folder = packed ? await mkdtemp(path.join(tmpdir(), 'terminal-rsi-audit-')) : path.resolve(target);
  const close = async (): Promise<void> => {
    if (packed) await rm(folder, { recursive: true, force: true });
  };
  try {
    const strangers = packed ? await unpackArchive(target, folder) : [];
    return await read(folder, target, strangers, close);
  } catch (error) {
    await close();
    throw error;
  }
}

/**
 * Returns the names of entries that do not belong into an archive; they are not written. Throws UserError where the file is no
 * gzipped tar, or was cut off.
 */
export async function unpackArchive(file: string, folder: string): Promise<string[]> {
  const strangers: string[] = [];
  const extraction = extract();
  extraction.on('entry', ({ name, type }, stream, next) => {
    void (async () => {
      const parts: Buffer[] = [];
      for await (const part of stream) parts.push(part as Buffer);
      if (type !== 'file' || !MEMBER.test(name)) strangers.push(name);
      else {
        await mkdir(path.dirname(path.join(folder, name)), { recursive: true });
        await writeFile(path.join(folder, name), Buffer.concat(parts));
      }
    })().then(() => next(), next);
  });
  try {
    await pipeline(createReadStream(file), createGunzip(), extraction);
  } catch (error) {
    throw new UserError(
      `${file} is not an archive of \`npm run export\`, or it was cut off: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
  return strangers;
}

async function read(folder: string, target: string, strangers: readonly string[], close: () => Promise<void>): Promise<AuditSource> {
  const manifest = await readManifest(folder, target);
  const problems = strangers.map((name) => ({ place: name, expected: 'no such member', found: 'an entry that no archive of a run has' }));
  const names = new Set(await listMembers(folder));
  for (const { name, sha256: expected, bytes } of manifest.members) {
    if (!names.delete(name)) {
      problems.push({
        place: name,
        expected: `a member of ${bytes} bytes with SHA-256 ${expected}`,
        found: 'nothing: it is not in the archive',
      });
      continue;
    }
    const found = createHash('sha256')
      .update(await readFile(path.join(folder, name)))
      .digest('hex');
    if (found !== expected) problems.push({ place: name, expected: `SHA-256 ${expected} as the manifest says`, found: `SHA-256 ${found}` });
  }
  for (const name of names) problems.push({ place: name, expected: 'no such member: the manifest does not list it', found: 'a file' });

  const histories: SourcedHistory[] = [];
  for (const { member, workflowId, runId, events } of manifest.histories) {
    const text = await readFile(path.join(folder, member), 'utf8').catch(() => undefined);
    // The comparison with the manifest has told that it is missing.
    if (text === undefined) continue;
    try {
      const history = { ...parseHistory({ workflowId, runId }, text), place: member };
      histories.push(history);
      if (history.events.length !== events)
        problems.push({ place: member, expected: `${events} events as the manifest says`, found: `${history.events.length} events` });
    } catch (error) {
      problems.push({ place: member, expected: 'a workflow history', found: error instanceof Error ? error.message : String(error) });
    }
  }
  const missing = new Map(manifest.missing.map((one) => [one.sha256, one.why]));
  const texts = (directory: string): Promise<LedgerText[]> => ledgerMembers(folder, directory);
  return {
    runKey: manifest.runKey,
    from: `archive ${target} of run ${manifest.runKey} (${manifest.workflowId}), artifacts: ${manifest.artifacts}`,
    ...{ ledger: await texts('ledger'), histories, problems, members: manifest.members.length, close },
    notes: [
      ...(manifest.open ? ['The run was still open when the archive was made: what came later is not in it.'] : []),
      ...manifest.notes,
    ],
    async blob(hash, kind) {
      const place = `artifacts/${hash}`;
      const bytes = await readFile(path.join(folder, place)).catch(() => undefined);
      if (bytes) return { place, bytes };
      const why = missing.get(hash);
      if (why !== undefined) return { place: `${place} (${why} when the archive was made)`, bytes: undefined };
      const left = kind === undefined ? manifest.artifacts !== 'all' : !isIncluded(manifest.artifacts, kind);
      return left ? { absent: `${kind ?? 'artifact'} ${hash.slice(0, 12)} is not in the archive` } : { place, bytes: undefined };
    },
    tree: async () => [],
    async report() {
      const text = await readFile(path.join(folder, 'result.json'), 'utf8').catch(() => undefined);
      return { policy: [], ...(text === undefined ? {} : { result: { place: 'result.json', text } }) };
    },
    async otherLedger(runKey) {
      if (!/^[\w-]+$/.test(runKey)) return undefined;
      const found = await texts(`ledgers/${runKey}`);
      return found.length === 0 ? undefined : found;
    },
  };
}

async function readManifest(folder: string, target: string): Promise<Manifest> {
  const text = await readFile(path.join(folder, 'manifest.json'), 'utf8').catch(() => undefined);
  if (text === undefined) throw new UserError(`${target} is not an archive of \`npm run export\`: it has no manifest.json`);
  try {
    return manifestSchema.parse(JSON.parse(text));
  } catch (error) {
    const why = error instanceof z.ZodError ? z.prettifyError(error) : error instanceof Error ? error.message : String(error);
    throw new UserError(`${target}: manifest.json is not the manifest of a run's archive: ${why}`);
  }
}

async function listMembers(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)).split(path.sep).join('/'))
    .filter((name) => name !== 'manifest.json');
}

async function ledgerMembers(folder: string, directory: string): Promise<LedgerText[]> {
  const names = (await readdir(path.join(folder, directory)).catch(() => [])).filter((name) => /^\d{6}\.json$/.test(name)).sort();
  return await Promise.all(
    names.map(async (name) => ({ place: `${directory}/${name}`, text: await readFile(path.join(folder, directory, name), 'utf8') })),
  );
}
