/**
 * `npm run stress:episodes -- --episodes 500 --concurrency 8 --kills 3`: episodes of agents that solve, do nothing and do harm, as jobs of a
 * real server and a real rollout worker, which is killed with kill -9 at random moments. Afterwards every episode must have one verdict, the right one
 * where that is known, and nothing of the run may be left on the machine. Exit status 1 when anything of this does not hold.
 */
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import Docker from 'dockerode';
import { ensureShellImage } from '../environment/docker/shell-image.ts';
import { UserError } from '../environment/errors.ts';
import { deriveSeed, Random } from '../method/seeds.ts';
import { suiteDirectory } from '../suites/suites.ts';
import { TemporalServer } from '../tests/temporal.ts';
import { TASK_QUEUE } from '../workflows/contract.ts';
import type { TaskEpisodesInput } from '../workflows/episodes-config.ts';
import type { TaskEpisodesResult } from '../workflows/job-contract.ts';
import { errorText } from './error-text.ts';
import { randomEpisodes } from './stress/agents.ts';
import { folderBytes, machineUse, processesOf } from './stress/machine.ts';
import { verdictsOf } from './stress/verdicts.ts';
import type { JobVerdicts } from './stress/verdicts.ts';
import { StressWorker } from './stress/worker.ts';

const HELP = `npm run stress:episodes [-- options]

  --episodes N         of all agents together; a multiple of 10 (default: 500)
  --concurrency N      episodes at a time (default: 8)
  --kills N            kill -9 of the rollout worker (default: 3)
  --seed N             of the random commands and of when it is killed (default: 1)
  --result-file FILE   write the figures as JSON (docs/load.md)
`;
const RESULT_SCHEMA = 1;
const SUITE = 'core';
const TASKS = 10;
const POLL_MS = 250;
/** A worker that has just polled may be killed at once; most kills shall come while episodes run. */
const KILL_DELAY_MS = 1_500;
/** Docker's own bookkeeping of a few hundred containers. */
const DISK_TOLERANCE_BYTES = 32 * 1024 * 1024;

interface Options {
  readonly episodes: number;
  readonly concurrency: number;
  readonly kills: number;
  readonly seed: number;
  readonly resultFile: string | undefined;
}
interface Job {
  readonly agent: 'oracle' | 'nop' | 'random';
  readonly directory: string;
  readonly samples: number;
  readonly concurrency: number;
}

function parseOptions(args: readonly string[]): Options | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      episodes: { type: 'string', default: '500' },
      concurrency: { type: 'string', default: '8' },
      kills: { type: 'string', default: '3' },
      seed: { type: 'string', default: '1' },
      'result-file': { type: 'string' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) return undefined;
  const whole = (name: 'episodes' | 'concurrency' | 'kills' | 'seed', least: number): number => {
    const value = values[name];
    if (!/^\d{1,9}$/.test(value) || Number(value) < least)
      throw new UserError(`--${name} is ${JSON.stringify(value)}; expected a whole number from ${least}`);
    return Number(value);
  };
  const episodes = whole('episodes', 3 * TASKS);
  if (episodes % TASKS !== 0) throw new UserError(`--episodes is ${episodes}; expected a multiple of ${TASKS}`);
  return {
    episodes,
    concurrency: whole('concurrency', 3),
    kills: whole('kills', 0),
    seed: whole('seed', 0),
    resultFile: values['result-file'],
  };
}

/** Three jobs that share the episodes and the places. */
function planJobs(data: string, { episodes, concurrency }: Options): Job[] {
  const samples = episodes / TASKS;
  const places = Math.floor(concurrency / 3);
  const share = Math.floor(samples / 3);
  const job = (agent: Job['agent'], count: number, own: number): Job => ({
    ...{ agent, directory: path.join(data, 'jobs', agent), samples: count, concurrency: own },
  });
  return [job('oracle', samples - 2 * share, concurrency - 2 * places), job('nop', share, places), job('random', share, places)];
}

async function stress(options: Options): Promise<number> {
  const docker = new Docker();
  await ensureShellImage(docker);
  const data = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-stress-'));
  const started = performance.now();
  const say = (text: string): void => console.log(`[${((performance.now() - started) / 1000).toFixed(0).padStart(4)} s] ${text}`);
  try {
    const suite = suiteDirectory(SUITE);
    const tasks = (await readdir(suite)).sort().slice(0, TASKS);
    const commands = path.join(data, 'random-commands.jsonl');
    await writeFile(commands, randomEpisodes(tasks, options.seed));
    const jobs = planJobs(data, options);
    const before = await machineUse(docker, []);
    const bytesBefore = await folderBytes(data);
    const server = await TemporalServer.start({ database: path.join(data, 'temporal.db') });
    const worker = new StressWorker(data, server.address);
    let replayed: number;
    const kills: { pid: number; afterEpisodes: number; atSeconds: number }[] = [];
    const beganAt = performance.now();
    let seconds = 0;
    const runKeys: string[] = [];
    try {
      await worker.start();
      const handles = await Promise.all(
        jobs.map(({ agent, directory, samples, concurrency }) =>
          server.client.workflow.start('taskEpisodes', {
            workflowId: `stress-${agent}`,
            taskQueue: TASK_QUEUE,
            args: [
              {
                ...{ dataset: suite, include: tasks, samples, concurrency, jobDir: directory, sandbox: 'docker', verifier: 'task' },
                agent: agent === 'random' ? `replay:${commands}` : agent,
                limits: { maxTurns: 20, maxTokensPerTurn: 1000, observationTokens: 1000, commandTimeoutSec: 3 },
                maxInfraFailedRate: 1,
              } satisfies TaskEpisodesInput,
            ],
          }),
        ),
      );
      runKeys.push(...handles.map(({ firstExecutionRunId }) => firstExecutionRunId));
      const all = Promise.all(handles.map((handle) => handle.result() as Promise<TaskEpisodesResult>));
      const running = { yes: true };
      all.finally(() => (running.yes = false)).catch(() => undefined);
      await killAtRandom(options, { worker, jobs, running, kills, say, beganAt });
      while (running.yes) {
        await worker.sampleMemory();
        await sleep(POLL_MS);
      }
      await all;
      seconds = (performance.now() - beganAt) / 1000;
      say(`all episodes have ended`);
    } finally {
      await worker.stop();
      replayed = await server.stop();
    }
    const verdicts = await Promise.all(jobs.map(({ agent, directory, samples }) => verdictsOf(directory, agent, tasks, samples)));
    const after = await machineUse(docker, runKeys);
    const growth = after.dockerBytes - before.dockerBytes;
    const problems = [
      ...verdicts.flatMap(problemsOf),
      ...(after.containers > before.containers ? [`${after.containers - before.containers} containers are left`] : []),
      ...(after.networks > before.networks ? [`${after.networks - before.networks} networks are left`] : []),
      ...(after.volumes > before.volumes ? [`${after.volumes - before.volumes} volumes are left`] : []),
      ...processesOf(data).map((pid) => `process ${pid} is left`),
      ...(growth > DISK_TOLERANCE_BYTES ? [`Docker uses ${mebibytes(growth)} MiB more than before`] : []),
      ...(kills.length === options.kills ? [] : [`${kills.length} of ${options.kills} kills found an episode to disturb`]),
    ];
    const result = {
      schema: RESULT_SCHEMA,
      ...{ episodes: options.episodes, concurrency: options.concurrency, seed: options.seed, kills },
      ...{ seconds: Math.round(seconds), episodesPerMinute: Math.round((600 * options.episodes) / seconds) / 10 },
      ...{ workerPeakMiB: mebibytes(worker.peakBytes), historiesReplayed: replayed, verdicts },
      machine: { before, after, processes: processesOf(data).length, dataMiB: mebibytes((await folderBytes(data)) - bytesBefore) },
      problems,
    };
    for (const { agent, trials, passed, failed, noVerdict, attempts, lost, doubled } of verdicts)
      console.log(
        `${agent}: ${trials} episodes, ${passed} passed, ${failed} failed, ${noVerdict} without verdict, ${attempts} attempts, ${lost.length} lost, ${doubled.length} doubled`,
      );
    console.log(
      `${result.episodesPerMinute} episodes per minute, worker at most ${result.workerPeakMiB} MiB, data folder ${result.machine.dataMiB} MiB, Docker's disk ${growth >= 0 ? '+' : ''}${mebibytes(growth)} MiB, ${replayed} histories replayed`,
    );
    console.log(problems.length === 0 ? 'nothing lost, nothing doubled, nothing left' : problems.join('\n'));
    if (options.resultFile !== undefined) {
      await mkdir(path.dirname(path.resolve(options.resultFile)), { recursive: true });
      await writeFile(options.resultFile, `${JSON.stringify(result, null, 2)}\n`);
    }
    return problems.length === 0 ? 0 : 1;
  } finally {
    await rm(data, { recursive: true, force: true });
  }
}

interface Disturbed {
  readonly worker: StressWorker;
  readonly jobs: readonly Job[];
  readonly running: { readonly yes: boolean };
  readonly kills: { pid: number; afterEpisodes: number; atSeconds: number }[];
  readonly beganAt: number;
  readonly say: (text: string) => void;
}

/** Each kill comes a random moment after a random number of episodes has ended. */
async function killAtRandom({ episodes, kills, seed }: Options, disturbed: Disturbed): Promise<void> {
  const { worker, jobs, running, say, beganAt } = disturbed;
  const random = new Random(deriveSeed(seed, 'stress', 'kills'));
  const moments = Array.from({ length: kills }, () => Math.floor(episodes * (0.05 + 0.85 * random.next()))).sort((a, b) => a - b);
  for (const moment of moments) {
    while (running.yes && (await ended(jobs)) < moment) {
      await worker.sampleMemory();
      await sleep(POLL_MS);
    }
    await sleep(random.next() * KILL_DELAY_MS);
    if (!running.yes) return;
    const afterEpisodes = await ended(jobs);
    const pid = await worker.kill();
    disturbed.kills.push({ pid, afterEpisodes, atSeconds: Math.round((performance.now() - beganAt) / 1000) });
    say(`kill -9 of the rollout worker after ${afterEpisodes} episodes`);
    await worker.start();
  }
}

/** Trials that are in their job's folder. */
async function ended(jobs: readonly Job[]): Promise<number> {
  const counts = await Promise.all(
    jobs.map(({ directory }) =>
      readdir(directory).then(
        (names) => names.filter((name) => /__[0-9a-z]{7}$/.test(name)).length,
        () => 0,
      ),
    ),
  );
  return counts.reduce((sum, count) => sum + count, 0);
}

/** What is wrong with a job's verdicts: the oracle passes everything, whoever does nothing fails everything. */
function problemsOf({ agent, trials, passed, failed, infraFailed, lost, doubled }: JobVerdicts): string[] {
  return [
    ...lost.map((name) => `${agent}: ${name} has no verdict`),
    ...doubled.map((name) => `${agent}: ${name} is there twice or was not asked for`),
    ...(infraFailed > 0 ? [`${agent}: ${infraFailed} episodes failed for their environment`] : []),
    ...(agent === 'oracle' && passed < trials ? [`oracle: ${trials - passed} of ${trials} did not pass`] : []),
    ...(agent === 'nop' && failed < trials ? [`nop: ${trials - failed} of ${trials} did not fail`] : []),
    ...(agent === 'random' && passed > 0 ? [`random: ${passed} passed`] : []),
  ];
}

const mebibytes = (bytes: number): number => Math.round(bytes / 1024 / 1024);

async function main(): Promise<number> {
  const options = parseOptions(process.argv.slice(2));
  if (options) return stress(options);
  process.stdout.write(HELP);
  return 0;
}

main().then(
  (status) => (process.exitCode = status),
  (error: unknown) => {
    console.error(errorText(error));
    process.exitCode = 1;
  },
);
