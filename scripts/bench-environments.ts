/**
 * `npm run bench:environments`: episodes per minute, processor time and memory of our sandboxes, against the floor (a container that
 * does nothing) and, where it can be installed, against Harbor's own runner with the oracle agent on the same tasks. Prints the table of docs/load.md.
 */
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs, promisify } from 'node:util';
import Docker from 'dockerode';
import { BASE_IMAGE, ensureBaseImage } from '../environment/docker/base-image.ts';
import { DockerProvider } from '../environment/docker/provider.ts';
import { ensureShellImage, SHELL_IMAGE } from '../environment/docker/shell-image.ts';
import { EmbeddedProvider } from '../environment/embedded/provider.ts';
import { InfrastructureError, UserError } from '../environment/errors.ts';
import type { Agent } from '../environment/harness/agent.ts';
import { scriptedAgent } from '../environment/harness/scripted-agent.ts';
import { loadTask } from '../environment/tasks/task.ts';
import { runTrial } from '../environment/trial/run.ts';
import type { SandboxProvider, Task } from '../environment/types.ts';
import { repoRoot } from '../records/paths.ts';
import { suiteDirectory } from '../suites/suites.ts';
import { measure, roundOf } from './bench/environments.ts';
import type { EnvironmentCost, Load, Round, Spread } from './bench/environments.ts';
import { harborCommand, harborRound } from './bench/harbor-runner.ts';
import { errorText } from './error-text.ts';

const HELP = `npm run bench:environments [-- options]

  --episodes N         of a round (default: 16)
  --rounds N           of each measurement (default: 3)
  --concurrency LIST   episodes at a time (default: 1,4,8)
  --no-harbor          leave Harbor's runner out
  --result-file FILE   write the figures as JSON (docs/load.md)
`;
const RESULT_SCHEMA = 1;
const SHELL_TASK = path.join(suiteDirectory('core'), 'append-line-1');
const BASE_TASK = path.join(repoRoot, 'suites/terminal/recover-lost-commit');
const exec = promisify(execFile);

interface Options {
  readonly load: Omit<Load, 'concurrency'>;
  readonly concurrencies: readonly number[];
  readonly harbor: boolean;
  readonly resultFile: string | undefined;
}

function parseOptions(args: readonly string[]): Options | undefined {
  const { values } = parseArgs({
    args: [...args],
    allowNegative: true,
    options: {
      episodes: { type: 'string', default: '16' },
      rounds: { type: 'string', default: '3' },
      concurrency: { type: 'string', default: '1,4,8' },
      harbor: { type: 'boolean', default: true },
      'result-file': { type: 'string' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) return undefined;
  const whole = (name: string, value: string): number => {
    if (!/^[1-9]\d{0,5}$/.test(value)) throw new UserError(`--${name} is ${JSON.stringify(value)}; expected whole numbers from 1`);
    return Number(value);
  };
  return {
    load: { rounds: whole('rounds', values.rounds), episodes: whole('episodes', values.episodes) },
    concurrencies: values.concurrency.split(',').map((value) => whole('concurrency', value)),
    harbor: values.harbor,
    resultFile: values['result-file'],
  };
}

async function bench({ load, concurrencies, harbor, resultFile }: Options): Promise<void> {
  const docker = new Docker();
  await ensureShellImage(docker);
  await ensureBaseImage(docker);
  const embedded = new EmbeddedProvider();
  const provider = new DockerProvider({ docker });
  const runKey = `bench-${randomUUID()}`;
  const folder = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-bench-'));
  const [shellTask, baseTask] = await Promise.all([loadTask(SHELL_TASK), loadTask(BASE_TASK)]);
  const trials = (where: SandboxProvider, task: Task, agent: 'oracle' | Agent, separate = false): Round =>
    roundOf((episode) => trial({ provider: where, task, agent, separate, runKey, episode }));
  const session = scriptedAgent({ name: 'replay', replies: ['cd /; x=1', 'ls -la', 'echo $x > /tmp/x; cat /tmp/x'] });
  const costs: EnvironmentCost[] = [];
  const skipped: string[] = [];
  try {
    const rounds: (readonly [name: string, round: Round])[] = [
      ['floor: docker run --rm … true, shell image', roundOf(() => floorCommand(SHELL_IMAGE))],
      ['floor: the same through the API, shell image', roundOf(() => floorApi(docker, SHELL_IMAGE))],
      ['floor: the same through the API, base image', roundOf(() => floorApi(docker, BASE_IMAGE))],
      ['embedded, oracle', trials(embedded, shellTask, 'oracle')],
      ['docker, shell image, oracle', trials(provider, shellTask, 'oracle')],
      ['docker, shell image, oracle, separate verifier', trials(provider, shellTask, 'oracle', true)],
      ['docker, shell image, session of 3 commands', trials(provider, shellTask, session)],
      ['docker, base image, oracle', trials(provider, baseTask, 'oracle')],
      ['docker, base image, session of 3 commands', trials(provider, baseTask, session)],
    ];
    const command = harbor ? await harborCommand() : { skip: '--no-harbor' };
    if (typeof command === 'string')
      rounds.push(
        ['Harbor, shell image, oracle', harborRound(command, SHELL_TASK, path.join(folder, 'shell'))],
        ['Harbor, base image, oracle', harborRound(command, BASE_TASK, path.join(folder, 'base'))],
      );
    else skipped.push(`Harbor's runner: ${command.skip}`);
    for (const [name, round] of rounds)
      for (const concurrency of concurrencies) {
        const cost = await measure(name, { ...load, concurrency }, round);
        costs.push(cost);
        console.log(`${name}, ${concurrency} at a time: ${figure(cost.episodesPerMinute, 0)} episodes per minute`);
      }
  } finally {
    await provider.sweep(runKey);
    await provider.close();
    await rm(folder, { recursive: true, force: true });
  }
  console.log(tableOf(costs));
  for (const reason of skipped) console.log(`left out: ${reason}`);
  if (resultFile === undefined) return;
  await mkdir(path.dirname(path.resolve(resultFile)), { recursive: true });
  await writeFile(resultFile, `${JSON.stringify({ schema: RESULT_SCHEMA, costs, skipped }, null, 2)}\n`);
}

interface TrialInput {
  readonly provider: SandboxProvider;
  readonly task: Task;
  readonly agent: 'oracle' | Agent;
  readonly separate: boolean;
  readonly runKey: string;
  readonly episode: string;
}

async function trial({ provider, task, agent, separate, runKey, episode }: TrialInput): Promise<void> {
  const { verdict } = await runTrial({
    ...{ name: episode, task, source: 'bench', agent, harness: 'shell', provider, sample: 0, seed: 0 },
    verifierMode: separate ? 'separate' : 'shared',
    labels: { runKey, episodeId: `${episode}-${task.id}`, purpose: 'check' },
    limits: { maxTurns: 10, maxTokensPerTurn: 1000, observationTokens: 1000, commandTimeoutSec: 60 },
  });
  const wanted = agent === 'oracle' ? 1 : 0;
  if (verdict.reward !== wanted)
    throw new InfrastructureError(`${task.id}: reward ${verdict.reward ?? verdict.error?.message}, expected ${wanted}`);
}

async function floorCommand(image: string): Promise<void> {
  await exec('docker', ['run', '--rm', '--network', 'none', image, 'true']);
}

async function floorApi(docker: Docker, image: string): Promise<void> {
  const container = await docker.createContainer({ Image: image, Cmd: ['true'], HostConfig: { NetworkMode: 'none' } });
  try {
    await container.start();
    await container.wait();
  } finally {
    await container.remove({ force: true });
  }
}

/** Markdown, for the docs. */
function tableOf(costs: readonly EnvironmentCost[]): string {
  const rows = costs.map(({ name, concurrency, episodesPerMinute, cpuSecondsPerEpisode, peakMiB }) => [
    name,
    String(concurrency),
    figure(episodesPerMinute, 0),
    figure(cpuSecondsPerEpisode, 2),
    figure(peakMiB, 0),
  ]);
  const head = ['what', 'at a time', 'episodes/min', 'CPU s/episode', 'memory MiB'];
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

function figure({ median, least, most }: Spread, digits: number): string {
  return `${median.toFixed(digits)} (${least.toFixed(digits)}–${most.toFixed(digits)})`;
}

async function main(): Promise<void> {
  const options = parseOptions(process.argv.slice(2));
  if (options) await bench(options);
  else process.stdout.write(HELP);
}

main().catch((error: unknown) => {
  console.error(errorText(error));
  process.exitCode = 1;
});
