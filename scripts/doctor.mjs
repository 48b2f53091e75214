/**
 * `npm run doctor`: what is installed, what is missing and the command that fixes it, which accelerator and which container engine are
 * seen, and which ones a run would use. Changes nothing, and works before set-up. Exit code 1 when something needed is missing.
 *
 *   npm run doctor -- --result-file FILE    also writes the same as JSON (`schema`: 1, fields as in `diagnose` below)
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { cacheDirectory, SetupError, versionOf } from './setup/command.mjs';
import { findDocker } from './setup/docker.mjs';
import { checkNode, checkPlatform, chooseVariant, findCompiler, findPython, fixes, hasNvidiaGpu, nvidiaGpus } from './setup/machine.mjs';
import { npmPackagesReady } from './setup/npm-packages.mjs';
import { suitesReady } from './setup/suites.mjs';
import { temporalLink, temporalReady } from './setup/temporal.mjs';
import { addonReady, libraryReady } from './setup/tensorflow.mjs';
import { tensorflowVersion } from './setup/versions.mjs';

/** @typedef {{ name: string, state: 'ok' | 'missing' | 'absent', found: string, fix: string | null }} Check  absent: not there, and not needed */

/** Turns a check that throws a SetupError into { problem, fix }. */
function attempt(check) {
  try {
    return { value: check(), problem: null, fix: null };
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    return { value: null, problem: error.message, fix: error.fix };
  }
}

/** Everything the doctor looks at. */
export async function diagnose() {
  /** @type {Check[]} */
  const checks = [];
  const need = (name, found, fix) =>
    checks.push({ name, state: found ? 'ok' : 'missing', found: found || 'not found', fix: found ? null : fix });

  const node = attempt(() => checkNode());
  checks.push({ name: 'Node.js', state: node.problem ? 'missing' : 'ok', found: node.problem ?? process.versions.node, fix: node.fix });
  const platform = attempt(() => checkPlatform());
  checks.push({
    name: 'platform',
    state: platform.problem ? 'missing' : 'ok',
    found: platform.problem ?? `${process.platform}-${process.arch}`,
    fix: platform.fix,
  });
  const { python, pip } = findPython();
  need('Python 3', python, fixes.python);
  need('pip', pip?.replace(/ from .*/, ''), fixes.pip);
  need('C++ compiler', findCompiler()?.version, fixes.compiler);

  const variant = platform.value
    ? attempt(() => chooseVariant(undefined, undefined, platform.value))
    : { value: 'cpu', problem: null, fix: null };
  if (variant.problem) checks.push({ name: 'TensorFlow variant', state: 'missing', found: variant.problem, fix: variant.fix });
  const chosen = variant.value ?? 'cpu';
  const setup = 'npm run setup';
  const packages = npmPackagesReady();
  need('npm packages', packages && 'as in package-lock.json', setup);
  need('libtensorflow', libraryReady(chosen) && `${tensorflowVersion} (${chosen})`, setup);
  need('TensorFlow addon', packages && libraryReady(chosen) && addonReady(chosen) && 'compiled and tried', setup);
  need('Temporal CLI', temporalReady() && versionOf(temporalLink), setup);
  need('task suites', suitesReady() && 'built', setup);

  const gpus = nvidiaGpus();
  const gpuSeen = hasNvidiaGpu();
  checks.push({
    name: 'NVIDIA GPU',
    state: gpuSeen ? 'ok' : 'absent',
    found: gpuSeen ? gpus.join('; ') || 'device files, but no nvidia-smi' : 'none seen',
    fix: null,
  });
  const docker = await findDocker();
  checks.push({
    name: 'Docker engine',
    state: docker.reachable ? 'ok' : 'absent',
    found: docker.reachable ? `${docker.version} at ${docker.address}` : `none at ${docker.address} (${docker.problem})`,
    fix: docker.reachable ? null : `only for --sandbox docker: ${fixes.docker}`,
  });
  return {
    schema: 1,
    ready: checks.every((check) => check.state !== 'missing'),
    checks,
    gpus,
    docker,
    wouldUse: {
      training: chosen,
      sandbox: 'embedded',
      sandboxesAvailable: docker.reachable ? ['embedded', 'docker'] : ['embedded'],
      temporalServer: process.env.TEMPORAL_ADDRESS ?? 'a development server started by npm start or npm run up',
    },
  };
}

const marks = { ok: 'ok     ', missing: 'MISSING', absent: '-      ' };

/** The diagnosis as lines of text. */
export function describe(result) {
  const width = Math.max(...result.checks.map((check) => check.name.length));
  const lines = result.checks.flatMap((check) => [
    `${marks[check.state]}  ${check.name.padEnd(width)}  ${check.found}`,
    ...(check.fix ? [`${' '.repeat(width + 11)}→ ${check.fix}`] : []),
  ]);
  const { training, sandboxesAvailable, temporalServer } = result.wouldUse;
  return [
    ...lines,
    '',
    `A run would train on the ${training.toUpperCase()}, in the embedded sandbox${sandboxesAvailable.includes('docker') ? ' (or Docker with --sandbox docker)' : ''}; Temporal: ${temporalServer}.`,
    result.ready ? 'Everything needed is there.' : 'Something needed is missing: see the lines marked MISSING.',
    `Files of set-up: ${join(cacheDirectory, '')}`,
  ].join('\n');
}

const options = process.argv.slice(2);
const resultFile = options[0] === '--result-file' ? options[1] : undefined;
if (options.length > 0 && !(resultFile && options.length === 2)) {
  process.stderr.write(`Unknown arguments: ${options.join(' ')}. Expected nothing, or --result-file FILE.\n`);
  process.exit(2);
}
const result = await diagnose();
process.stdout.write(`${describe(result)}\n`);
if (resultFile) writeFileSync(resultFile, `${JSON.stringify(result, null, 2)}\n`);
process.exitCode = result.ready ? 0 : 1;
