/**
 * A job of episodes before and after its trials: which tasks of the dataset are run, where the trials are written, and the job's
 * result. The trials themselves: run-trial.ts.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { onStorage, UserError } from '../environment/errors.ts';
import type { Task } from '../environment/types.ts';
import { canonicalJson } from '../records/canonical-json.ts';
import { writeJob } from '../records/harbor-job.ts';
import { jobResult } from '../records/job-result.ts';
import { repoRoot } from '../records/paths.ts';
import { inputFile, readSummary, settingsFile } from '../records/job-folder.ts';
import type { ArtifactRef } from '../records/types.ts';
import type { EpisodesConfig } from '../workflows/episodes-config.ts';
import type {
  CloseJobInput,
  CloseJobResult,
  EpisodesJob,
  OpenJobResult,
  PlannedTrial,
  PlanTrialsInput,
  TrialSummary,
} from '../workflows/job-contract.ts';
import { trialName } from '../environment/trial/outcome.ts';
import type { RolloutDependencies } from './dependencies.ts';

/** Named in the result; the job's folder has all of them. */
const REFUSED_SHOWN = 20;

export async function openJob(deps: RolloutDependencies, job: EpisodesJob): Promise<OpenJobResult> {
  const { config, workflowId } = job;
  const directory = path.resolve(repoRoot, config.jobDir ?? path.join(deps.data, 'jobs', workflowId.replaceAll('/', '_')));
  await keepSettings(directory, config);
  if (config.harness === 'terminus' && config.sandbox === 'embedded')
    throw new UserError('harness: got terminus, expected shell or script in the embedded sandbox, which has no terminals');
  const { include, exclude, limit } = config;
  const selection = { include, exclude, ...(limit === 0 ? {} : { limit }) };
  const { name: source, tasks } = await deps.dataset(path.resolve(repoRoot, config.dataset), selection);
  const refused: { task: string; reason: string }[] = [];
  const runnable: Task[] = [];
  for (const { id, task, error } of tasks) {
    const reason = task ? refusal(deps, config, task) : (error?.message ?? 'it does not load');
    if (task && reason === undefined) runnable.push(task);
    else refused.push({ task: id, reason: reason ?? '' });
  }
  if (runnable.length === 0) {
    const reasons = refused.slice(0, 5).map(({ task, reason }) => `${task}: ${reason}`);
    throw new UserError([`dataset: no task of ${config.dataset} can be run with these settings`, ...reasons].join('\n'));
  }
  // Every task once, then every task again: what is known early is known of all.
  const plan = Array.from({ length: config.samples }, (_, sample) =>
    runnable.map(({ id, dir, checksum }): PlannedTrial => ({ task: id, dir, checksum, sample })),
  ).flat();
  const policy = await policyOf(deps, config);
  return {
    ...{ directory, source, tasks: runnable.length, trials: plan.length, plan: await deps.store.putJsonLines('trials', plan) },
    ...{ refused: refused.slice(0, REFUSED_SHOWN), refusedCount: refused.length },
    ...(policy ? { policy } : {}),
  };
}

export async function planTrials({ store }: RolloutDependencies, { plan, from, count }: PlanTrialsInput): Promise<readonly PlannedTrial[]> {
  return (await store.readJsonLines<PlannedTrial>(plan)).slice(from, from + count);
}

export async function closeJob({ store }: RolloutDependencies, { job, opened, startedAt }: CloseJobInput): Promise<CloseJobResult> {
  const { directory } = opened;
  const plan = await store.readJsonLines<PlannedTrial>(opened.plan);
  const trials: TrialSummary[] = [];
  for (const { task, sample } of plan) {
    const name = trialName(path.basename(directory), task, sample);
    const summary = await readSummary(directory, name);
    // One whose task has changed or gone since: the workflow has counted it so, and a later job in the folder tries it.
    const missing = { outcome: 'no-verdict', rewardValid: false, error: 'NotRun', infraFailed: true, attempts: 1, seconds: 0 } as const;
    trials.push(summary ?? { name, task, sample, ...missing });
  }
  await writeJob({
    ...{ name: path.basename(directory), directory, totalTrials: plan.length, concurrency: job.config.concurrency },
    ...{ startedAt: new Date(startedAt).toISOString(), finishedAt: new Date().toISOString() },
    retries: trials.reduce((sum, { attempts }) => sum + attempts - 1, 0),
  });
  return { result: await store.putJson('result', jobResult(job, opened, trials)) };
}

/** Why a task is not run. */
function refusal(deps: RolloutDependencies, { sandbox, agent }: EpisodesConfig, task: Task): string | undefined {
  if (agent === 'oracle' && !(task.steps ? task.steps.every(({ solution }) => solution) : task.solution)) return 'it has no solution/';
  return deps.provider(sandbox).refusal(task);
}

/** What a job's trials depend on. A folder holds the trials of one job; another's beside them would be taken for its own. */
async function keepSettings(directory: string, config: EpisodesConfig): Promise<void> {
  const {
    concurrency: _c,
    limit: _l,
    include: _i,
    exclude: _e,
    samples: _s,
    attempts: _a,
    maxInfraFailedRate: _m,
    jobDir: _j,
    ...settings
  } = config;
  const file = settingsFile(directory);
  await onStorage(directory, async () => {
    await mkdir(path.dirname(file), { recursive: true });
    const text = `${JSON.stringify(settings, null, 2)}\n`;
    await writeFile(file, text, { flag: 'wx' }).catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    });
    await writeFile(inputFile(directory), `${JSON.stringify({ ...config, jobDir: directory }, null, 2)}\n`);
    const kept = JSON.parse(await readFile(file, 'utf8')) as Record<string, unknown>;
    for (const [key, value] of Object.entries(settings)) {
      if (canonicalJson(kept[key] ?? null) === canonicalJson(value)) continue;
      throw new UserError(
        `${key}: got ${JSON.stringify(value)}, expected ${JSON.stringify(kept[key])}, with which the trials in ${directory} were made; give another jobDir`,
      );
    }
  });
}

async function policyOf({ store }: RolloutDependencies, { agent }: EpisodesConfig): Promise<ArtifactRef | undefined> {
  if (!agent.startsWith('policy:')) return undefined;
  const named = agent.slice('policy:'.length);
  if (!/^[0-9a-f]{64}$/.test(named)) return await store.putDirectory('policy', path.resolve(repoRoot, named));
  // Whether it is there at all.
  await store.directory({ sha256: named });
  return { kind: 'policy', uri: `artifact:${named}`, sha256: named, bytes: 0 };
}
