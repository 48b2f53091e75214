/**
 * A folder of trials as Harbor lays it out, so that its viewer and its tools read ours:
 *
 *     <job>/config.json, result.json
 *     <job>/<trial>/config.json, trial.log, exception.txt (where there was one), result.json
 *     <job>/<trial>/agent/          what the agent left in /logs/agent, trajectory.json, tokens.jsonl
 *     <job>/<trial>/verifier/       what the verifier left in /logs/verifier
 *     <job>/<trial>/artifacts/      what was collected, and manifest.json
 *     <job>/<trial>/steps/<name>/   the three folders of each step, for tasks of several
 *
 * A trial is written below .tmp/ and moved to its name, so that one with that name is whole. It is written once: whoever repeats it finds
 * it there and changes nothing.
 */
import { randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, rmdir, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { onStorage } from '../environment/errors.ts';
import type { Trial, TrialFiles, TrialPhase } from '../environment/trial/types.ts';
import type { FileTree } from '../environment/types.ts';
import { TOKENS_FILE, toAtif, TRAJECTORY_FILE } from './atif.ts';
import type { AtifInput } from './atif.ts';
import { jobConfig, jobResult } from './harbor-job-result.ts';
import type { JobInfo } from './harbor-job-result.ts';
import { trialConfig, trialResult } from './harbor-result.ts';
import type { TrialResult } from './harbor-result.ts';

export type { JobInfo } from './harbor-job-result.ts';
export type { TrialResult } from './harbor-result.ts';

const MANIFEST = 'manifest.json';
const PHASES = ['environmentSetup', 'agentSetup', 'agentExecution', 'verifier'] as const satisfies TrialPhase[];
const TEMPORARY = '.tmp';

/**
 * Writes a trial's folder.
 * @param jobDirectory absolute
 * @param beside more files for the folder
 * @returns false where one of that name was there already, and is left as it is
 * @throws InfrastructureError (disk)
 */
export async function writeTrial(jobDirectory: string, trial: Trial, beside: FileTree = new Map()): Promise<boolean> {
  const target = path.join(jobDirectory, segment(trial.name));
  return await onStorage(target, async () => {
    if (await exists(path.join(target, 'result.json'))) return false;
    const temporary = path.join(jobDirectory, TEMPORARY, `${trial.name}-${randomUUID()}`);
    try {
      await writeTree(temporary, new Map([...trialFiles(trial, jobDirectory), ...beside]));
      // Never over a folder that is there: of two attempts that end at the same moment one would remove the other's.
      await rename(temporary, target).catch(async (error: unknown) => {
        if (!['ENOTEMPTY', 'EEXIST'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
        if (await exists(path.join(target, 'result.json'))) throw error;
        await rm(target, { recursive: true, force: true }); // one without a result: what a broken-off Harbor leaves
        await rename(temporary, target);
      });
      return true;
    } catch (error) {
      // Another attempt was faster.
      if (await exists(path.join(target, 'result.json'))) return false;
      throw error;
    } finally {
      await rm(temporary, { recursive: true, force: true });
      await rmdir(path.dirname(temporary)).catch(() => undefined);
    }
  });
}

/** Writes, or writes again, the job's own documents. `trials`: default those in the folder. @throws InfrastructureError (disk) */
export async function writeJob(info: JobInfo, trials?: readonly TrialResult[]): Promise<void> {
  await onStorage(info.directory, async () => {
    await mkdir(info.directory, { recursive: true });
    const all = trials ?? (await readTrials(info.directory));
    await replaceFile(path.join(info.directory, 'config.json'), json(jobConfig(info, all)));
    await replaceFile(path.join(info.directory, 'result.json'), json(jobResult(info, all)));
  });
}

/** The results of the trials in a job's folder, ours or Harbor's, by name; those without a result are left out. @throws InfrastructureError (disk) */
export async function readTrials(jobDirectory: string): Promise<TrialResult[]> {
  return await onStorage(jobDirectory, async () => {
    const entries = await readdir(jobDirectory, { withFileTypes: true }).catch(missing([]));
    const names = entries.filter((entry) => entry.isDirectory() && entry.name !== TEMPORARY).map((entry) => entry.name);
    const found = await Promise.all(
      names.sort().map((name) => readFile(path.join(jobDirectory, name, 'result.json'), 'utf8').catch(missing(undefined))),
    );
    return found.filter((text) => text !== undefined).map((text) => JSON.parse(text) as TrialResult);
  });
}

function trialFiles(trial: Trial, jobDirectory: string): FileTree {
  const files: FileTree = new Map();
  const add = (name: string, text: string): void => void files.set(name, { data: Buffer.from(text), mode: 0o644 });
  const { record, tokens, usage, steps, instruction } = trial;
  const atif = { record, ...(tokens ? { tokens } : {}), ...(usage ? { usage } : {}) };
  add('config.json', json(trialConfig(trial, jobDirectory)));
  add('trial.log', log(trial));
  if (trial.error) add('exception.txt', `${trial.error.type}: ${trial.error.message}\n`);
  for (const step of steps ?? []) {
    const place = `steps/${segment(step.name)}/`;
    addFolders(files, place, step.files, { ...atif, instruction: step.instruction ?? instruction, turns: step.turns });
  }
  if (!steps) addFolders(files, '', trial.files, { ...atif, instruction });
  add('result.json', json(trialResult(trial, jobDirectory)));
  return files;
}

function addFolders(files: FileTree, place: string, { agent, verifier, artifacts }: TrialFiles, input: AtifInput): void {
  const add = (folder: string, tree: FileTree): void => {
    for (const [name, entry] of tree) files.set(`${place}${folder}/${name}`, entry);
  };
  const { trajectory, tokenLines } = toAtif(input);
  add('agent', agent);
  add('agent', new Map([[TRAJECTORY_FILE, text(json(trajectory))]]));
  if (tokenLines !== undefined) add('agent', new Map([[TOKENS_FILE, text(tokenLines)]]));
  add('verifier', verifier);
  const kept = new Map([...artifacts].filter(([name]) => name !== MANIFEST));
  add('artifacts', kept);
  const manifest = [...kept.keys()].map((name) => ({ source: `/${name}`, destination: name, type: 'file', status: 'ok' }));
  add('artifacts', new Map([[MANIFEST, artifacts.get(MANIFEST) ?? text(json(manifest))]]));
}

/** When what happened, for a person who looks into the folder. */
function log({ name, record, verdict, error, period, phases }: Trial): string {
  // In their order: one may begin in the millisecond in which another ends.
  const known = PHASES.flatMap((phase) => (phases[phase] ? [[phase, phases[phase]] as const] : []));
  const events = known.flatMap(([phase, one]) => [
    { at: one.startedAt, what: `${phase} begins` },
    { at: one.finishedAt, what: `${phase} ends` },
  ]);
  const reward = verdict.reward === undefined ? '' : `, reward ${verdict.reward}`;
  const lines = [
    {
      at: period.startedAt,
      what: `trial ${name}: task ${record.taskId}, agent ${record.agent}, harness ${record.harness}, sandbox ${record.sandbox}`,
    },
    ...events.sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0)),
    { at: period.finishedAt, what: `${record.turns.length} turns, stopped by ${record.stopReason}; ${verdict.outcome}${reward}` },
    ...(error ? [{ at: period.finishedAt, what: `${error.type}: ${error.message}` }] : []),
  ];
  return lines.map(({ at, what }) => `${at} ${what}\n`).join('');
}

/** Names come from archives of sandboxes in which agents worked: none leads out of the folder. */
async function writeTree(directory: string, files: FileTree): Promise<void> {
  for (const [name, { data, mode }] of files) {
    const file = path.join(directory, ...name.split('/').map(segment));
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(file, data, { mode: (mode & 0o777) | 0o600 });
  }
}

/** One part of a path. @throws Error where it is none */
function segment(name: string): string {
  if (name === '' || name === '.' || name === '..' || /[/\0]/.test(name))
    throw new Error(`file name ${JSON.stringify(name)}: expected the name of one file or folder`);
  return name;
}

async function replaceFile(file: string, content: string): Promise<void> {
  const temporary = `${file}.${randomUUID()}`;
  try {
    await writeFile(temporary, content);
    await rename(temporary, file);
  } finally {
    await rm(temporary, { force: true });
  }
}

const json = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;
const text = (content: string): { data: Uint8Array; mode: number } => ({ data: Buffer.from(content), mode: 0o644 });
const exists = (file: string): Promise<boolean> => stat(file).then(() => true, missing(false));

/** Takes a missing file for `value`. */
function missing<T>(value: T): (error: unknown) => T {
  return (error) => {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT' || (error as NodeJS.ErrnoException).code === 'ENOTDIR') return value;
    throw error;
  };
}
