/**
 * Harbor's own runner with its oracle agent, on copies of our tasks, for comparison. It needs Python 3.12 for the package and the Compose
 * plugin of the Docker command (`docker compose version`); where one is missing the comparison is left out by name.
 */
import { execFile } from 'node:child_process';
import { cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { InfrastructureError } from '../../environment/errors.ts';
import { harborPython } from '../../tests/harbor-python.ts';
import type { Round } from './environments.ts';

const exec = promisify(execFile);
const LIMIT_MS = 20 * 60_000;

/** The command of Harbor, or why it cannot run here. */
export async function harborCommand(): Promise<string | { readonly skip: string }> {
  const compose = await exec('docker', ['compose', 'version']).then(
    () => true,
    () => false,
  );
  if (!compose) return { skip: 'the docker command has no compose plugin' };
  const found = await harborPython();
  return 'skip' in found ? found : path.join(path.dirname(found.python), 'harbor');
}

/** @param folder of this comparison alone; emptied by nobody */
export function harborRound(harbor: string, task: string, folder: string): Round {
  let number = 0;
  return async ({ episodes, concurrency }) => {
    const name = `round-${number++}`;
    const dataset = path.join(folder, 'dataset', path.basename(task));
    await copyTask(task, dataset);
    const jobs = path.join(folder, 'jobs');
    const args = [
      'run',
      '-p',
      dataset,
      '-a',
      'oracle',
      '-k',
      String(episodes),
      '-n',
      String(concurrency),
      '-o',
      jobs,
      '--job-name',
      name,
      '-y',
      '-q',
    ];
    // Its price list of models is of no use to the oracle, and waiting for it would be counted; classic builds need no further plugin.
    const env = { ...process.env, LITELLM_LOCAL_MODEL_COST_MAP: 'True', DOCKER_BUILDKIT: '0', HARBOR_TELEMETRY: '0' };
    await exec(harbor, args, { env, timeout: LIMIT_MS, maxBuffer: 64 * 1024 * 1024 });
    return { seconds: await jobSeconds(path.join(jobs, name), episodes) };
  };
}

/** Harbor's Docker environment cannot take the network away, so it refuses tasks that ask for none. */
async function copyTask(task: string, target: string): Promise<void> {
  await rm(target, { recursive: true, force: true });
  await mkdir(path.dirname(target), { recursive: true });
  await cp(task, target, { recursive: true });
  const file = path.join(target, 'task.toml');
  await writeFile(file, (await readFile(file, 'utf8')).replace(/^network_mode = .*\n/gm, ''));
}

/** From the start of the job to its end, without the start of the program. @throws InfrastructureError unless every episode earned its reward */
async function jobSeconds(job: string, episodes: number): Promise<number> {
  const trials = (await readdir(job, { withFileTypes: true })).filter((entry) => entry.isDirectory());
  const rewards = await Promise.all(
    trials.map(({ name }) => readFile(path.join(job, name, 'verifier/reward.txt'), 'utf8').catch(() => '')),
  );
  const earned = rewards.filter((text) => Number(text) === 1 && text !== '').length;
  if (earned !== episodes) throw new InfrastructureError(`Harbor: ${earned} of ${episodes} oracle episodes earned their reward (${job})`);
  const { started_at: started, finished_at: finished } = JSON.parse(await readFile(path.join(job, 'result.json'), 'utf8')) as Record<
    string,
    string
  >;
  return (Date.parse(finished ?? '') - Date.parse(started ?? '')) / 1000;
}
