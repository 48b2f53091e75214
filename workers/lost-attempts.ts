/**
 * Activity attempts that died with their worker, noticed at once instead of by the heartbeat time-out, which stays as the net
 * below. Each worker process keeps, below the data folder, a folder named for itself:
 *
 *   <data>/attempts/<host>.<pid>.<start>/<n>.json      one attempt that runs, or has just ended
 *   <data>/attempts/<host>.<pid>.<start>/child         process id and start of the trainer that it forked
 *
 * The next worker that starts on this host finds the folder of a process that is gone and fails its attempts through the
 * server, which then hands out the next attempt without waiting.
 *
 * Invariants:
 *  I1 Attempts and children of a process that may live, here or on another host, are never touched.
 *  I2 A record that is too many does no harm: the server knows by the task token that the attempt has ended.
 *     So records outlive their attempt by a moment, because the worker may die between an attempt's end and its report.
 *  I3 A record that cannot be written or read costs only speed. It never fails an activity.
 */
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import path from 'node:path';
import { ActivityNotFoundError, AsyncCompletionClient } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import type { ActivityInterceptorsFactory, NativeConnection } from '@temporalio/worker';
import { z } from 'zod';
import { InfrastructureError } from '../environment/errors.ts';
import { fate, identify } from './process-identity.ts';
import type { ProcessIdentity } from './process-identity.ts';
import type { Logger } from './runtime.ts';

/** Longer than a report takes to reach a server that is up. */
const REPORTED_AFTER_MS = 5_000;
/** Folders of other hosts are left to them until nobody can want them any more: by then every attempt in them has timed out. */
const FORGOTTEN_AFTER_MS = 24 * 3600 * 1000;

const attemptSchema = z.object({
  taskToken: z.base64(),
  namespace: z.string(),
  /** For a person who looks; the folder's name decides. */
  hostname: z.string(),
  pid: z.number(),
  activity: z.string(),
  workflowId: z.string(),
  attempt: z.number(),
});
export type AttemptRecord = z.infer<typeof attemptSchema>;

/** The records of this process. */
export class AttemptRecords {
  readonly #directory: string;
  readonly #logger: Logger;
  #next = 1;

  constructor(data: string, logger: Logger) {
    const self = identify(process.pid);
    if (!self) throw new InfrastructureError(`process ${process.pid} is not in this system's process table`);
    this.#directory = path.join(attemptsDirectory(data), folderName(self));
    this.#logger = logger;
  }

  /** For `interceptors.activity` of `Worker.create`: keeps a record of each attempt while it runs. */
  readonly interceptor: ActivityInterceptorsFactory = ({ info }) => ({
    inbound: {
      execute: async (input, next) => {
        const name = `${this.#next++}.json`;
        await this.#write(name, {
          taskToken: info.base64TaskToken,
          namespace: info.namespace,
          hostname: hostname(),
          pid: process.pid,
          activity: info.activityType,
          workflowId: info.workflowExecution?.workflowId ?? '',
          attempt: info.attempt,
        });
        try {
          return await next(input);
        } finally {
          setTimeout(() => void rm(path.join(this.#directory, name), { force: true }).catch(() => undefined), REPORTED_AFTER_MS).unref();
        }
      },
    },
  });

  /** Notes the child process that must not outlive this one; a later one replaces it. */
  async child(pid: number): Promise<void> {
    const child = identify(pid);
    if (child) await this.#write('child', child);
  }

  /** Removes this process's folder: for an orderly end, after the last attempt has been reported. */
  async clear(): Promise<void> {
    await rm(this.#directory, { recursive: true, force: true });
  }

  async #write(name: string, content: AttemptRecord | ProcessIdentity): Promise<void> {
    const file = path.join(this.#directory, name);
    try {
      await mkdir(this.#directory, { recursive: true });
      await writeFile(`${file}.tmp`, JSON.stringify(content));
      await rename(`${file}.tmp`, file);
    } catch (error) {
      this.#logger.warn({ err: error, file }, 'no record of an activity attempt: if this worker dies, the heartbeat time-out must tell');
    }
  }
}

/**
 * Fails, through the server, the attempts of workers of this host that are gone. Call it after connecting and before polling.
 * @returns how many attempts the server did not know to have ended
 */
export async function failLostAttempts(connection: NativeConnection, data: string, logger: Logger): Promise<number> {
  let failed = 0;
  for (const { directory, owner } of await deadOwners(data)) {
    for (const name of await readdir(directory).catch(() => [])) {
      if (!name.endsWith('.json')) continue;
      const record = attemptSchema.safeParse(await readJson(path.join(directory, name)));
      if (record.success && (await fail(connection, record.data, owner, logger))) failed++;
    }
    await rm(directory, { recursive: true, force: true });
  }
  return failed;
}

/**
 * Ends the trainers that dead workers of this host left behind. They end by themselves, but not while they are inside a long
 * TensorFlow operation, and until then they hold the port. What they still write is a temporary file that nobody will name.
 */
export async function endOrphans(data: string, logger: Logger): Promise<void> {
  for (const { directory, owner } of await deadOwners(data)) {
    const child = identitySchema.safeParse(await readJson(path.join(directory, 'child')));
    if (!child.success || fate(child.data) !== 'alive') continue;
    logger.warn({ pid: child.data.pid, worker: owner.pid }, 'ending the trainer that a lost worker left behind');
    process.kill(child.data.pid, 'SIGKILL');
  }
}

async function fail(connection: NativeConnection, record: AttemptRecord, owner: ProcessIdentity, logger: Logger): Promise<boolean> {
  const { taskToken, namespace, ...what } = record;
  const client = new AsyncCompletionClient({ connection, namespace });
  const failure = ApplicationFailure.create({
    type: 'WorkerLost',
    message: `the worker process ${owner.pid} on ${record.hostname} died during attempt ${record.attempt}`,
    // The worker that says so is there to take the next attempt; the back-off is for failures that come back.
    nextRetryDelay: 1,
  });
  try {
    await client.fail(Buffer.from(taskToken, 'base64'), failure);
    logger.warn(what, 'activity attempt was lost with its worker; the next one starts at once');
    return true;
  } catch (error) {
    // Reported, timed out, or its workflow is closed: it is not running any more, which is all we wanted.
    if (!(error instanceof ActivityNotFoundError)) logger.warn({ ...what, err: error }, 'lost activity attempt is left to its time-out');
    return false;
  }
}

interface Owned {
  readonly directory: string;
  readonly owner: ProcessIdentity;
}

async function deadOwners(data: string): Promise<Owned[]> {
  const dead: Owned[] = [];
  for (const name of await readdir(attemptsDirectory(data)).catch(() => [])) {
    const directory = path.join(attemptsDirectory(data), name);
    const owner = parseFolderName(name);
    const known = owner === undefined ? 'unknown' : fate(owner);
    if (owner && known === 'gone') dead.push({ directory, owner });
    else if (known === 'unknown') await removeForgotten(directory);
  }
  return dead;
}

async function removeForgotten(directory: string): Promise<void> {
  const changed = await stat(directory).catch(() => undefined);
  if (changed && Date.now() - changed.mtimeMs > FORGOTTEN_AFTER_MS) await rm(directory, { recursive: true, force: true });
}

const identitySchema = z.object({ host: z.string(), pid: z.number().int().positive(), start: z.string() });

function attemptsDirectory(data: string): string {
  return path.join(data, 'attempts');
}
function folderName({ host, pid, start }: ProcessIdentity): string {
  return `${host}.${pid}.${start}`;
}
function parseFolderName(name: string): ProcessIdentity | undefined {
  const match = /^([^.]+)\.(\d+)\.([^.]+)$/.exec(name);
  return match ? { host: match[1]!, pid: Number(match[2]), start: match[3]! } : undefined;
}

/** undefined for a file that is missing or torn. */
async function readJson(file: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(file, 'utf8'));
  } catch {
    return undefined;
  }
}
