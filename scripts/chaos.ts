/**
 * `npm run chaos -- --kills N --seed S`: runs the same run twice, once left alone and once with its processes killed, its checkpoints
 * torn and its disk filled, and compares everything that the two made. Exit status 1 when anything differs or a run did not finish.
 */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import pc from 'picocolors';
import { InfrastructureError, UserError } from '../environment/errors.ts';
import type { TrainingRunInput } from '../workflows/contract.ts';
import { resolveConfig } from '../workflows/profiles.ts';
import { differences, namedHashes, type Difference, type RunOutcome } from './chaos/compare.ts';
import { SmallDisk } from './chaos/damage.ts';
import { DockerDaemon } from './chaos/docker.ts';
import { planDisturbances, pointsOf, type DisturbanceKind } from './chaos/plan.ts';
import { CHAOS_RESULT_SCHEMA, chaosResultSchema, killTable, type ChaosResult, type Kill } from './chaos/result.ts';
import { disturbedRun, undisturbedRun } from './chaos/run.ts';
import { errorText } from './error-text.ts';

const HELP = `npm run chaos [-- options]

  --kills N            disturbances (default: 20)
  --seed N             of the run, and of when what is disturbed (default: 1)
  --sandbox KIND       embedded | docker (default: embedded)
  --profile NAME       smoke | quick | full (default: smoke)
  --result-file FILE   write what was found as JSON (docs/durability.md)
  --keep               keep both data folders although nothing differs, e.g. for an audit
`;

interface Options {
  readonly kills: number;
  readonly input: TrainingRunInput & { readonly profile: string; readonly seed: number; readonly sandbox: 'embedded' | 'docker' };
  readonly resultFile: string | undefined;
  readonly keep: boolean;
}

/** Work goes on while a process starts again: a run needs so much of it that all disturbances find their place. */
const KILLS_PER_ITERATION = 6;

/** One sequence a step: the smoke profile's trainings would else be over after one step or four, with nothing in between to disturb. */
function smokeSettings(kills: number): Pick<TrainingRunInput, 'rsr' | 'rpr'> {
  return { rsr: { sequencesPerStep: 1 }, rpr: { sequencesPerStep: 1, iterations: [Math.ceil(kills / KILLS_PER_ITERATION)] } };
}

function parseOptions(args: readonly string[]): Options | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      kills: { type: 'string', default: '20' },
      seed: { type: 'string', default: '1' },
      sandbox: { type: 'string', default: 'embedded' },
      profile: { type: 'string', default: 'smoke' },
      'result-file': { type: 'string' },
      keep: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) return undefined;
  const { kills, profile, keep } = values;
  if (!/^[1-9]\d{0,2}$/.test(kills)) throw new UserError(`--kills is ${JSON.stringify(kills)}; expected a whole number from 1 to 999`);
  if (!/^\d{1,9}$/.test(values.seed)) throw new UserError(`--seed is ${JSON.stringify(values.seed)}; expected a whole number`);
  const { sandbox } = values;
  if (sandbox !== 'embedded' && sandbox !== 'docker')
    throw new UserError(`--sandbox is ${JSON.stringify(sandbox)}; expected embedded or docker`);
  const input = { profile, seed: Number(values.seed), sandbox, ...(profile === 'smoke' ? smokeSettings(Number(kills)) : {}) } as const;
  resolveConfig(input);
  return { kills: Number(kills), input, resultFile: values['result-file'], keep };
}

/** @returns the exit status */
async function chaos({ kills: count, input, resultFile, keep }: Options, signal: AbortSignal): Promise<number> {
  const startedAt = Date.now();
  const say = (text: string): void => void process.stdout.write(`${pc.dim(`[${clock(Date.now() - startedAt)}]`)} ${text}\n`);
  const { seed, profile, sandbox } = input;
  const home = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-chaos-'));
  let kept = keep;
  let docker: DockerDaemon | undefined;
  try {
    const without = new Map<DisturbanceKind, string>();
    const refusal = SmallDisk.refusal();
    if (refusal !== undefined) without.set('full disk', refusal);
    if (sandbox === 'docker') docker = await ownDaemon(path.join(home, 'docker'), (why) => without.set('Docker daemon', why));
    else without.set('Docker daemon', 'the sandbox is embedded');

    say(`undisturbed run: profile ${profile}, seed ${seed}, ${sandbox} …`);
    const undisturbed = await undisturbedRun({ data: path.join(home, 'undisturbed'), input, docker, signal });
    const points = pointsOf(undisturbed.marks, undisturbed.outcome.activities);
    const plan = planDisturbances(points, { kills: count, seed, without: new Set(without.keys()) });
    say(`undisturbed run: ${undisturbed.outcome.seconds.toFixed(1)} s, ${points.length} points to disturb; disturbed run …`);

    let found: Difference[] | undefined;
    let outcome: RunOutcome | undefined;
    const disturbed = await disturbedRun(
      {
        ...{ data: path.join(home, 'disturbed'), input, docker, signal, plan, points, seed },
        smallDisk: plan.some(({ kind }) => kind === 'full disk'),
        onKill: (kill, number) => say(killLine(kill, number, count)),
        keep: () => (kept ||= found?.length !== 0),
      },
      (its) => {
        outcome = its;
        found = differences(undisturbed.outcome, its);
      },
    );
    const result: ChaosResult = chaosResultSchema.parse({
      schema: CHAOS_RESULT_SCHEMA,
      ...{ seed, profile, sandbox, kills: disturbed.kills },
      identical: found?.length === 0,
      hashes: hashesOf(undisturbed.outcome),
      differences: found ?? [],
      ...(disturbed.failure === undefined ? {} : { failure: disturbed.failure }),
      undisturbedSeconds: undisturbed.outcome.seconds,
      disturbedSeconds: outcome?.seconds ?? (Date.now() - disturbed.startedAt) / 1000,
      skipped: [...[...without].map(([kind, why]) => `${kind}: ${why}`), ...disturbed.skipped],
    });
    if (resultFile !== undefined) {
      await mkdir(path.dirname(path.resolve(resultFile)), { recursive: true });
      await writeFile(resultFile, `${JSON.stringify(result, null, 2)}\n`);
    }
    printResult(result, count);
    return result.identical && result.kills.length === count ? 0 : 1;
  } catch (error) {
    // A run that did not come to its end left its reasons in its logs. Ctrl-C left nothing that anybody wants.
    kept ||= !signal.aborted;
    throw error;
  } finally {
    await docker?.stop();
    if (kept) process.stdout.write(`Both data folders are kept: ${home}\n`);
    else await rm(home, { recursive: true, force: true });
  }
}

async function ownDaemon(folder: string, refused: (why: string) => void): Promise<DockerDaemon | undefined> {
  try {
    return await DockerDaemon.start(folder);
  } catch (error) {
    if (!(error instanceof InfrastructureError)) throw error;
    refused(`only a daemon of our own is restarted. ${error.message}`);
    return undefined;
  }
}

function hashesOf(outcome: RunOutcome): ChaosResult['hashes'] {
  const all = Object.fromEntries([...namedHashes(outcome)].map(([name, { sha256 }]) => [name, sha256]));
  const stages = outcome.result.stages.map(({ name, policy, critic, evaluation }) => [
    name,
    {
      ...{ policy: policy.sha256, evaluation: evaluation.table.sha256 },
      ...(critic ? { critic: critic.sha256 } : {}),
      ...(all[`ledger ${name}`] === undefined ? {} : { ledger: all[`ledger ${name}`] }),
    },
  ]);
  return { final: outcome.result.finalPolicy.sha256, stages: Object.fromEntries(stages) as ChaosResult['hashes']['stages'], all };
}

function killLine({ process, moment, secondsUntilProgress, repeatedSeconds }: Kill, number: number, count: number): string {
  return `${number}/${count} ${pc.yellow(process)}: ${moment}. On again after ${secondsUntilProgress.toFixed(1)} s, ${repeatedSeconds.toFixed(1)} s repeated`;
}

function printResult({ kills, identical, differences: found, failure, hashes, skipped, ...times }: ChaosResult, count: number): void {
  const lines = [
    killTable(kills),
    ...skipped.map((what) => `not done: ${what}`),
    `undisturbed ${times.undisturbedSeconds.toFixed(1)} s, disturbed ${times.disturbedSeconds.toFixed(1)} s, ${kills.length} of ${count} disturbances`,
  ];
  const [first] = found;
  if (failure !== undefined) lines.push(pc.red(`The disturbed run did not finish: ${failure}`));
  else if (identical)
    lines.push(pc.green(`Identical: ${Object.keys(hashes.all).length} hashes; final policy ${hashes.final.slice(0, 12)}`));
  else if (first) {
    const { stage, name, kind, undisturbed, disturbed } = first;
    lines.push(
      pc.red(
        `${found.length} differences. The first: stage ${stage}, ${name} (${kind}): ${short(undisturbed)} undisturbed, ${short(disturbed)} disturbed`,
      ),
    );
  }
  process.stdout.write(`${lines.join('\n')}\n`);
}

const short = (hash: string): string => hash.slice(0, 12);
const clock = (milliseconds: number): string =>
  `${Math.floor(milliseconds / 60_000)}:${String(Math.floor(milliseconds / 1000) % 60).padStart(2, '0')}`;

const abort = new AbortController();
for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.on(name, () => {
    if (!abort.signal.aborted) process.stdout.write(`${name}: ending what was started …\n`);
    abort.abort(new Error(name));
  });
}
try {
  const options = parseOptions(process.argv.slice(2));
  if (options) process.exitCode = await chaos(options, abort.signal);
  else process.stdout.write(HELP);
} catch (error) {
  const text = abort.signal.aborted && error instanceof Error ? error.message : errorText(error);
  process.stderr.write(`${pc.red('Error:')} ${text}\n`);
  process.exitCode = abort.signal.aborted ? 130 : 1;
}
// A client's connection that is trying to reach a dead server would hold the process.
process.exit();
