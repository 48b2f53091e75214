/**
 * What is up for a data folder, kept in `<data>/launcher.json`: so that a second command finds the server and workers of the
 * first, and a start after a crash finds (and ends) what the crash left behind.
 */
import { execFileSync } from 'node:child_process';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';

const processSchema = z.object({
  pid: z.number().int().positive(),
  /** Text that its command line contains: process ids are reused. */ marker: z.string().min(1),
});
const port = z.number().int().min(1).max(65_535);
const portsSchema = z.object({ trainer: port, rolloutStatus: port, gpuStatus: port, rolloutMetrics: port, gpuMetrics: port });
const stateSchema = z.object({
  /** The dev server of this data folder; absent when the server is someone else's. */
  server: processSchema.extend({ address: z.string(), uiUrl: z.string() }).optional(),
  /** The command that keeps the workers up. */
  launcher: processSchema.optional(),
  workers: z.array(processSchema),
  /** Where the workers listen on 127.0.0.1, kept so that links and scrape settings stay valid over restarts. */
  ports: portsSchema.optional(),
  /** Where the workers connect to. */
  address: z.string().optional(),
  /** The run that this data folder started last, for servers that other data folders use too. */
  workflowId: z.string().optional(),
});
export type LauncherState = z.infer<typeof stateSchema>;
export type WorkerPorts = z.infer<typeof portsSchema>;
export type KnownProcess = z.infer<typeof processSchema>;

const stateFile = (data: string): string => path.join(data, 'launcher.json');

/** The recorded state; an empty one when there is none or it cannot be read (it only ever describes what can be found again). */
export async function readState(data: string): Promise<LauncherState> {
  try {
    return stateSchema.parse(JSON.parse(await readFile(stateFile(data), 'utf8')));
  } catch {
    return { workers: [] };
  }
}

let updates: Promise<void> = Promise.resolve();

/** Reads, changes and writes the state; the changes of one process happen one after the other. */
export function updateState(data: string, change: (state: LauncherState) => LauncherState): Promise<void> {
  const update = updates.then(async () => {
    const next = change(await readState(data));
    await mkdir(data, { recursive: true });
    const temporary = `${stateFile(data)}.${process.pid}`;
    await writeFile(temporary, `${JSON.stringify(next, null, 2)}\n`);
    await rename(temporary, stateFile(data));
  });
  updates = update.catch(() => undefined);
  return update;
}

/** Whether the recorded process is alive and still the one that was recorded. */
export function isAlive(known: KnownProcess | undefined): known is KnownProcess {
  return known !== undefined && commandLine(known.pid).includes(known.marker);
}

/** Ids of all processes whose command line contains `marker`; none where there is no `ps`. */
export function findProcesses(marker: string): number[] {
  try {
    const table = execFileSync('ps', ['-A', '-o', 'pid=,args='], { encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 });
    return table.split('\n').flatMap((line) => (line.includes(marker) ? [Number.parseInt(line, 10)] : []));
  } catch {
    return [];
  }
}

/** The command line of a process, or an empty string when there is no such process. */
function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
  } catch {
    if (process.platform === 'linux') return '';
  }
  try {
    return execFileSync('ps', ['-o', 'command=', '-p', String(pid)], { encoding: 'utf8' });
  } catch {
    return '';
  }
}
