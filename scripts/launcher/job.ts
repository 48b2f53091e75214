/** Starting, finding and following a job of episodes. */
import { copyFile, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { defaultPayloadConverter, WorkflowExecutionAlreadyStartedError, type Client, type WorkflowHandle } from '@temporalio/client';
import { UserError } from '../../environment/errors.ts';
import { openStore } from '../../records/artifacts.ts';
import { inputFile } from '../../records/job-folder.ts';
import { jobResultSchema } from '../../records/job-result.ts';
import type { JobResult } from '../../records/job-result.ts';
import { TASK_QUEUE } from '../../workflows/contract.ts';
import { resolveEpisodesConfig } from '../../workflows/episodes-config.ts';
import type { EpisodesConfig, TaskEpisodesInput } from '../../workflows/episodes-config.ts';
import type { JobProgress, TaskEpisodesResult } from '../../workflows/job-contract.ts';
import { job as jobQuery, resume } from '../../workflows/messages.ts';
import type { PendingTrial } from '../job-view.ts';
import { jobView } from '../job-view.ts';
import type { LiveTable } from '../live-table.ts';
import { workflowOutcome } from './outcome.ts';

/** Where jobs of the data folder are, unless they are told otherwise. */
export const jobsFolder = (data: string): string => path.join(data, 'jobs');

/** The complete configuration. Throws UserError with a line for each field that is wrong. */
export function checkedJob(input: TaskEpisodesInput): EpisodesConfig {
  try {
    return resolveEpisodesConfig(input);
  } catch (error) {
    throw new UserError(error instanceof Error ? error.message : String(error));
  }
}

/** The configuration of the job in `directory`, or of the newest of the data folder. */
export async function storedJob(data: string, directory: string | undefined): Promise<EpisodesConfig> {
  const place = directory === undefined ? await newestJob(data) : path.resolve(directory);
  const file = inputFile(place);
  const text = await readFile(file, 'utf8').catch(({ message }: Error) => {
    throw new UserError(`${place}: no job of \`npm run episodes\` in it, expected the folder of one (${message})`);
  });
  return checkedJob(JSON.parse(text) as TaskEpisodesInput);
}

async function newestJob(data: string): Promise<string> {
  const folder = jobsFolder(data);
  const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  const dated = await Promise.all(
    names.map(async (name) => ({
      name,
      at: await stat(inputFile(path.join(folder, name))).then(
        ({ mtimeMs }) => mtimeMs,
        () => 0,
      ),
    })),
  );
  const newest = dated.filter(({ at }) => at > 0).sort((a, b) => b.at - a.at)[0];
  if (!newest) throw new UserError(`--resume: no job in ${folder} yet; name the folder of one`);
  return path.join(folder, newest.name);
}

/** Starts a job in its folder, or goes on with the one that is open there; one that has paused is told to go on. */
export async function startJob(
  client: Client,
  config: EpisodesConfig & { readonly jobDir: string },
): Promise<{ handle: WorkflowHandle; continued: boolean }> {
  const workflowId = `episodes-${path.basename(config.jobDir)}`;
  try {
    const handle = await client.workflow.start('taskEpisodes', {
      workflowId,
      taskQueue: TASK_QUEUE,
      args: [config],
      staticSummary: `${config.agent} · ${path.basename(config.dataset)} · ${config.harness} · ${config.sandbox}`,
    });
    return { handle, continued: false };
  } catch (error) {
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    return { handle: client.workflow.getHandle(workflowId), continued: true };
  }
}

export type JobOutcome = { readonly ok: true; readonly result: JobResult } | { readonly ok: false; readonly message: string };

/** Shows the job until it ends. With `signal` aborted: returns undefined, the job goes on. `goOn`: one that is found paused is resumed. */
export async function followJob(
  client: Client,
  handle: WorkflowHandle,
  table: LiveTable,
  signal: AbortSignal,
  goOn: boolean,
): Promise<JobOutcome | undefined> {
  const ended = { yes: false };
  const outcome = outcomeOf(handle).finally(() => (ended.yes = true));
  let resumed = !goOn;
  const events = new Map<string, string>();
  while (!ended.yes && !signal.aborted) {
    // Queries fail while no worker is up; the job itself does not, and the next second may answer.
    const job = await handle.query<JobProgress>(jobQuery.name).catch(() => undefined);
    if (ended.yes || signal.aborted) break;
    if (job) {
      if (!resumed && job.status === 'paused') await handle.executeUpdate(resume.name).catch(() => undefined);
      resumed = true;
      table.show(jobView(job, await pendingTrials(client, handle.workflowId).catch(() => []), events, Date.now()));
    }
    await Promise.race([sleep(1000, undefined, { signal }).catch(() => undefined), outcome.catch(() => undefined)]);
  }
  return ended.yes ? outcome : undefined;
}

async function outcomeOf(handle: WorkflowHandle): Promise<JobOutcome> {
  const outcome = await workflowOutcome<TaskEpisodesResult>(handle);
  if (!outcome.ok) return { ok: false, message: outcome.causes.at(-1) ?? outcome.causes[0] };
  return { ok: true, result: jobResultSchema.parse(await openStore().readJson(outcome.result.result)) };
}

async function pendingTrials(client: Client, workflowId: string): Promise<PendingTrial[]> {
  const { pendingActivities } = await client.workflowService.describeWorkflowExecution({
    namespace: client.options.namespace,
    execution: { workflowId },
  });
  return (pendingActivities ?? []).flatMap((info) => {
    const payload = info.heartbeatDetails?.payloads?.[0];
    const details = payload ? defaultPayloadConverter.fromPayload<Heartbeat | null>(payload) : undefined;
    if (!details?.task) return [];
    const failure = info.lastFailure?.message;
    return [
      {
        ...{ task: details.task, sample: details.sample ?? 0 },
        ...(details.phase === undefined ? {} : { phase: details.phase }),
        attempt: Math.max(info.attempt ?? 1, details.attempt ?? 1),
        ...(failure ? { lastFailure: failure } : {}),
      },
    ];
  });
}
/** Of activities/run-trial.ts. */
interface Heartbeat {
  readonly task?: string;
  readonly sample?: number;
  readonly phase?: string;
  readonly attempt?: number;
}

/** Writes the result as JSON for `--result-file`. */
export async function writeJobResult(result: JobResult, file: string): Promise<void> {
  const target = path.resolve(file);
  await mkdir(path.dirname(target), { recursive: true });
  await writeFile(`${target}.part`, `${JSON.stringify(result, null, 2)}\n`);
  await copyFile(`${target}.part`, target);
}
