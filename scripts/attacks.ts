/**
 * `npm run attacks -- --sandbox docker|embedded --result-file FILE`: tries every attack (environment/attacks/) against this machine's
 * sandbox and says what came of it. Exit status 1 when one earned a reward, harmed the worker or left something behind.
 */
import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import Table from 'cli-table3';
import Docker from 'dockerode';
import pc from 'picocolors';
import { attacks } from '../environment/attacks/attacks.ts';
import { held, tryAttack } from '../environment/attacks/run.ts';
import type { AttackOutcome, VerifierMode } from '../environment/attacks/run.ts';
import { ensureBaseImage } from '../environment/docker/base-image.ts';
import { DockerProvider } from '../environment/docker/provider.ts';
import { ensureShellImage } from '../environment/docker/shell-image.ts';
import { EmbeddedProvider } from '../environment/embedded/provider.ts';
import { UserError } from '../environment/errors.ts';
import { errorText } from './error-text.ts';

const HELP = `npm run attacks [-- options]

  --sandbox KIND       docker | embedded (default: docker)
  --only NAMES         comma-separated names of attacks (default: all)
  --verifier MODE      shared | separate | both (default: both)
  --result-file FILE   write what was found as JSON (docs/load.md)
`;
const RESULT_SCHEMA = 1;

interface Options {
  readonly sandbox: 'docker' | 'embedded';
  readonly chosen: typeof attacks;
  readonly modes: readonly VerifierMode[];
  readonly resultFile: string | undefined;
}

function parseOptions(args: readonly string[]): Options | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      sandbox: { type: 'string', default: 'docker' },
      only: { type: 'string' },
      verifier: { type: 'string', default: 'both' },
      'result-file': { type: 'string' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) return undefined;
  const { sandbox, verifier, only } = values;
  if (sandbox !== 'docker' && sandbox !== 'embedded')
    throw new UserError(`--sandbox is ${JSON.stringify(sandbox)}; expected docker or embedded`);
  if (verifier !== 'shared' && verifier !== 'separate' && verifier !== 'both')
    throw new UserError(`--verifier is ${JSON.stringify(verifier)}; expected shared, separate or both`);
  const names = only?.split(',') ?? attacks.map(({ name }) => name);
  const unknown = names.find((name) => !attacks.some((attack) => attack.name === name));
  if (unknown !== undefined)
    throw new UserError(`--only names ${JSON.stringify(unknown)}; expected some of ${attacks.map(({ name }) => name).join(', ')}`);
  return {
    sandbox,
    chosen: attacks.filter(({ name }) => names.includes(name)),
    modes: verifier === 'both' ? ['shared', 'separate'] : [verifier],
    resultFile: values['result-file'],
  };
}

/** @returns the exit status */
async function run({ sandbox, chosen, modes, resultFile }: Options, signal: AbortSignal): Promise<number> {
  const docker = sandbox === 'docker' ? new Docker() : undefined;
  if (docker) {
    await ensureShellImage(docker);
    if (chosen.some(({ pytest }) => pytest)) await ensureBaseImage(docker);
  }
  const provider = docker ? new DockerProvider({ docker }) : new EmbeddedProvider();
  const machine = { ...(docker ? { docker } : {}), alone: true };
  const runKey = `attacks-${randomUUID()}`;
  const outcomes: AttackOutcome[] = [];
  try {
    for (const attack of chosen) {
      for (const mode of modes) {
        const outcome = await tryAttack(attack, mode, { provider, machine, runKey, signal });
        outcomes.push(outcome);
        const mark = held(outcome) ? pc.green('held') : pc.red('BROKE');
        console.log(`${mark}  ${attack.name} (${mode}): ${said(outcome)}`);
      }
    }
  } finally {
    await provider.sweep(runKey);
    await provider.close();
  }
  const broken = outcomes.filter((outcome) => !held(outcome));
  const table = new Table({ head: ['attack', 'verifier', 'reward', 'ended by', 'memory', 'stall', 'time'], style: { head: [] } });
  for (const { name, verifier, reward, error, stopReason, memoryGrowthMiB, stallMs, seconds } of outcomes)
    table.push([name, verifier, reward ?? '–', error ?? stopReason, `+${memoryGrowthMiB} MiB`, `${stallMs} ms`, `${seconds} s`]);
  console.log(table.toString());
  console.log(
    `${chosen.length} attacks on the ${sandbox} sandbox, ${outcomes.length} episodes: ${broken.length === 0 ? 'none came to anything' : `${broken.length} came to something`}`,
  );
  if (resultFile !== undefined) {
    await mkdir(path.dirname(path.resolve(resultFile)), { recursive: true });
    const result = { schema: RESULT_SCHEMA, sandbox, held: broken.length === 0, attacks: outcomes };
    await writeFile(resultFile, `${JSON.stringify(result, null, 2)}\n`);
  }
  return broken.length === 0 ? 0 : 1;
}

function said({ reward, outcome, error, findings }: AttackOutcome): string {
  return [reward === null ? outcome : `reward ${reward}`, ...(error === null ? [] : [error]), ...findings].join('; ');
}

async function main(): Promise<number> {
  const options = parseOptions(process.argv.slice(2));
  if (!options) {
    process.stdout.write(HELP);
    return 0;
  }
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort(new UserError('interrupted')));
  // A folder of its own, so that every file that is left in it is known.
  const folder = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-attacks-'));
  process.env.TMPDIR = folder;
  try {
    return await run(options, stop.signal);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

main().then(
  (status) => (process.exitCode = status),
  (error: unknown) => {
    console.error(errorText(error));
    process.exitCode = 1;
  },
);
