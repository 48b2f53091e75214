/**
 * Writes a run's report: `<data>/runs/<runKey>/report/report.html` for people, `result.json` beside it for machines, and
 * `policy/`, the policy that the run ended with in Hugging Face layout; and points `<data>/latest` at it. Everything shown comes from the input and from artifacts, so a report can be made again later.
 */
import { cp, mkdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { ReportInput, ReportResult } from '../workflows/contract.ts';
import type { ArtifactStore } from './artifacts.ts';
import type { Calibration } from './calibration.ts';
import { repoRoot } from './paths.ts';
import { reportPage } from './report-html.ts';
import { buildResult } from './result.ts';
import { auditRun } from './reward-audit.ts';
import { sampleEpisodes } from './sample-episodes.ts';

export interface WriteReportInput {
  readonly store: ArtifactStore;
  /** Absolute. */
  readonly dataDirectory: string;
  readonly input: ReportInput;
  /** More versions to record, e.g. that of the code. */
  readonly versions?: Readonly<Record<string, string>>;
}

/** Idempotent: writing again replaces the files. The result's `directory` is relative to the data folder. */
export async function writeReport({ store, dataDirectory, input, versions = {} }: WriteReportInput): Promise<ReportResult> {
  if (!/^[\w.-]+$/.test(input.runKey))
    throw new TypeError(`runKey ${JSON.stringify(input.runKey)} is not a folder name; expected letters, digits, dots and dashes`);
  const calibration = await store.readJson<Calibration>(input.calibration);
  const audit = await auditRun(store, input.stages, calibration, input.config.reward);
  const allVersions = { ...versions, ...(await installedVersions()) };
  const result = buildResult(input, audit, allVersions);
  const page = reportPage({ input, audit, samples: await sampleEpisodes(store, input.stages), versions: allVersions });

  const directory = path.posix.join('runs', input.runKey, 'report');
  const absolute = path.join(dataDirectory, directory);
  await mkdir(absolute, { recursive: true });
  await replaceFile(path.join(absolute, 'result.json'), `${JSON.stringify(result, null, 2)}\n`);
  await replaceFile(path.join(absolute, 'report.html'), page);
  const final = input.stages.findLast(({ adopted }) => adopted);
  if (final) await replaceDirectory(path.join(absolute, 'policy'), await store.directory(final.policy));
  await pointLatest(dataDirectory, directory);
  return { directory, result: await store.putJson('result', result) };
}

async function replaceFile(file: string, text: string): Promise<void> {
  const temporary = `${file}.${process.pid}.tmp`;
  await writeFile(temporary, text);
  await rename(temporary, file);
}

/** A copy and not a link: it can be moved and changed without harm to the artifact store. */
async function replaceDirectory(target: string, source: string): Promise<void> {
  const temporary = `${target}.${process.pid}.tmp`;
  await rm(temporary, { recursive: true, force: true });
  await cp(source, temporary, { recursive: true });
  await rm(target, { recursive: true, force: true });
  await rename(temporary, target);
}

/** `latest` is a symbolic link to the report's folder, or a text file with its path where links are not allowed. */
async function pointLatest(dataDirectory: string, directory: string): Promise<void> {
  const latest = path.join(dataDirectory, 'latest');
  const temporary = `${latest}.${process.pid}.tmp`;
  await rm(temporary, { force: true });
  try {
    await symlink(directory, temporary);
  } catch (error) {
    if (!['EPERM', 'ENOSYS', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    await writeFile(temporary, `${directory}\n`);
  }
  await rename(temporary, latest);
}

/** Of this project, Node.js, the platform, and the packages that decide results. */
export async function installedVersions(): Promise<Record<string, string>> {
  const versionOf = async (file: string): Promise<string> => (JSON.parse(await readFile(file, 'utf8')) as { version: string }).version;
  const packages = ['@temporalio/worker', '@tensorflow/tfjs-node-gpu', 'just-bash', 'echarts'];
  const found = await Promise.all(
    packages.map(async (name) => [name, await versionOf(path.join(repoRoot, 'node_modules', name, 'package.json'))] as const),
  );
  return {
    'terminal-rsi': await versionOf(path.join(repoRoot, 'package.json')),
    node: process.version,
    platform: `${process.platform} ${process.arch}`,
    ...Object.fromEntries(found),
  };
}
