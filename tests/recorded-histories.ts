/**
 * Recorded histories of released versions, in tests/fixtures/histories/<version>/: `index.json`, and for each scenario one
 * compressed file with a line for every execution, whose payloads are text instead of base64 so that they compress well. `npm run record-histories` writes them, workflows/replay.test.ts replays them.
 */
import { readFileSync } from 'node:fs';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, brotliDecompress } from 'node:zlib';
import { parseHistory } from '../records/history.ts';
import type { WorkflowHistory } from '../records/history.ts';
import { repoRoot } from '../records/paths.ts';

const folder = path.join(repoRoot, 'tests', 'fixtures', 'histories');

export interface HistoryIndex {
  /** Of this project. */
  readonly version: string;
  /** What the workflows were built from (workers/bundle.ts). */
  readonly bundle: string;
  readonly scenarios: readonly {
    readonly name: string;
    readonly shows: string;
    readonly ends: string;
    readonly executions: number;
    readonly events: number;
  }[];
}

/** Versions with recorded histories, sorted by name. */
export async function recordedVersions(): Promise<string[]> {
  return (await readdir(folder)).sort();
}

export function readIndex(version: string): HistoryIndex {
  return JSON.parse(readFileSync(path.join(folder, version, 'index.json'), 'utf8')) as HistoryIndex;
}

/** The executions of a scenario, oldest first. */
export async function readScenario(version: string, name: string): Promise<WorkflowHistory[]> {
  const lines = (await promisify(brotliDecompress)(await readFile(fileOf(version, name)))).toString().trimEnd().split('\n');
  return lines.map((line) => {
    const { workflowId, runId, history } = JSON.parse(line, encoded) as { workflowId: string; runId: string; history: unknown };
    return parseHistory({ workflowId, runId }, JSON.stringify(history));
  });
}

export async function writeScenario(version: string, name: string, histories: readonly WorkflowHistory[]): Promise<void> {
  await mkdir(path.join(folder, version), { recursive: true });
  const lines = histories.map(({ workflowId, runId, json }) =>
    JSON.stringify({ workflowId, runId, history: JSON.parse(json) as unknown }, decoded),
  );
  await writeFile(fileOf(version, name), await promisify(brotliCompress)(`${lines.join('\n')}\n`));
}

export async function writeIndex(index: HistoryIndex): Promise<void> {
  await writeFile(path.join(folder, index.version, 'index.json'), `${JSON.stringify(index, undefined, 2)}\n`);
}

/** Where the histories of a version lie. */
export function versionFolder(version: string): string {
  return path.join(folder, version);
}
function fileOf(version: string, name: string): string {
  return path.join(versionFolder(version), `${name}.jsonl.br`);
}

/** A payload as it is exported has its bytes as base64 in `data`; here it has them in `text` where they are JSON. */
interface Payload {
  readonly metadata: Readonly<Record<string, string>>;
  readonly data?: string;
  readonly text?: string;
}
const JSON_PAYLOAD = Buffer.from('json/plain').toString('base64');
function isJsonPayload(value: unknown): value is Payload {
  return (value as Payload | null)?.metadata?.['encoding'] === JSON_PAYLOAD;
}
function decoded(_: string, value: unknown): unknown {
  if (!isJsonPayload(value)) return value;
  const { data = '', ...rest } = value;
  return { ...rest, text: Buffer.from(data, 'base64').toString() };
}
function encoded(_: string, value: unknown): unknown {
  if (!isJsonPayload(value)) return value;
  const { text = '', ...rest } = value;
  return { ...rest, data: Buffer.from(text).toString('base64') };
}
