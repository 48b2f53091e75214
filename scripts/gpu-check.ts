/**
 * `npm run gpu-check`: what the policy engine does on this machine's GPU. Device and versions, on which device each operation runs, training and
 * sampling against the CPU, rates and memory. Without a GPU the same runs on the CPU and says so. docs/gpu.md explains the answers.
 *
 * Exit codes: 0 everything passed on a GPU; 1 something failed; 2 everything passed, but on the CPU.
 */
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { UserError } from '../environment/errors.ts';
import { lookAround, visibleNvidiaGpu, whyNoGpu } from '../policy/gpu.ts';
import type { Gpu } from '../policy/gpu.ts';
import { cudaVersion, tensorflowLibrary } from '../policy/tensorflow-library.ts';
import type { Size } from './bench/policy/workloads.ts';
import { errorText } from './error-text.ts';
import { compareDevices, repeats } from './gpu-check/compare.ts';
import type { Comparison, Computed } from './gpu-check/compare.ts';
import { misplaced } from './gpu-check/placement.ts';
import { ON_CPU, runProgram } from './gpu-check/program.ts';
import { ratesOf } from './gpu-check/rates.ts';
import type { Rates } from './gpu-check/rates.ts';

const SIZES: readonly Size[] = ['d128', 'd256', 'smollm2'];
const HELP = `npm run gpu-check [-- options]

  --sizes LIST         whose rates are measured, of ${SIZES.join(', ')}, or none (default: all)
  --result-file FILE   write the same as JSON (docs/gpu.md)
`;
const RESULT_SCHEMA = 1;
const PASSED_ON_CPU = 2;

interface Options {
  readonly sizes: readonly Size[];
  readonly resultFile: string | undefined;
}

function parseOptions(args: readonly string[]): Options | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      sizes: { type: 'string', default: SIZES.join() },
      'result-file': { type: 'string' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) return undefined;
  const sizes = values.sizes === 'none' ? [] : values.sizes.split(',');
  const wrong = sizes.find((size) => !SIZES.includes(size as Size));
  if (wrong !== undefined) throw new UserError(`--sizes has '${wrong}', expected ${SIZES.join(', ')} or none`);
  return { sizes: sizes as Size[], resultFile: values['result-file'] };
}

/** What compute.ts finds on the device that `env` leaves it. */
async function compute(file: string, env: Readonly<Record<string, string>> = {}): Promise<Computed> {
  await runProgram('compute.ts', [file], env);
  return JSON.parse(await readFile(file, 'utf8')) as Computed;
}

function printDevice({ device }: Computed, gpu: Gpu | undefined): void {
  const library = tensorflowLibrary();
  console.log(`TensorFlow ${device.tensorflow}, ${library?.variant ?? 'unknown'} variant`);
  if (device.kind === 'CPU') {
    console.log(`This ran on the CPU (${device.name}, ${device.threads} threads).`);
    console.log(`No GPU: ${whyNoGpu(lookAround(library))}.`);
    return;
  }
  const cuda = library?.cuda ?? [];
  const version = (name: string): string => cudaVersion(cuda, name) ?? 'unknown';
  console.log(`GPU ${device.name}, ${gpu?.memoryMiB} MiB (${gpu?.usedMiB} MiB in use), compute capability ${gpu?.computeCapability}`);
  console.log(`driver ${gpu?.driver}, CUDA ${version('cuda_runtime')}, cuDNN ${version('cudnn')}, cuBLAS ${version('cublas')}`);
  console.log(
    `TensorFloat-32 ${device.tensorFloat32 === true ? 'allowed (TERMINAL_RSI_TF32=1): parity with the CPU is not to be expected' : 'off'}`,
  );
}

function printPlacement({ placement }: Computed): void {
  console.log('\nNodes of the functions by operation and device:');
  const lines = Object.entries(placement).map(
    ([operation, counts]) =>
      `${operation} ${Object.entries(counts)
        .map(([where, count]) => `${where} ${count}`)
        .join(', ')}`,
  );
  console.log(`  ${lines.sort().join('\n  ')}`);
}

function printComparisons(comparisons: readonly Comparison[]): void {
  console.log('\nAgainst the CPU, in a process of its own:');
  for (const { name, difference, tolerance, passed } of comparisons) {
    console.log(`  ${passed ? 'ok    ' : 'FAILED'}  ${name.padEnd(46)} ${difference.toExponential(1)}  (at most ${tolerance})`);
  }
}

function printRates(rates: readonly Rates[]): void {
  if (rates.length > 0) console.log('\nRates in tokens a second (median), through the trainer and the sampler:');
  for (const { size, workload, shape, tokensPerSecond, prepareSeconds, memoryMiB } of rates) {
    const memory = memoryMiB === undefined ? '' : `, ${memoryMiB} MiB of the GPU`;
    const setting = `${shape.rows} × ${shape.length}`;
    console.log(
      `  ${size.padEnd(8)} ${workload.padEnd(8)} ${setting.padEnd(9)} ${tokensPerSecond.toFixed(0).padStart(9)}   ready after ${prepareSeconds.toFixed(1)} s${memory}`,
    );
  }
}

async function check({ sizes, resultFile }: Options): Promise<number> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'terminal-rsi-gpu-check-'));
  try {
    const gpu = visibleNvidiaGpu();
    const ours = await compute(path.join(folder, 'ours.json'));
    printDevice(ours, gpu);
    printPlacement(ours);
    const cpu = await compute(path.join(folder, 'cpu.json'), ON_CPU);
    const comparisons = compareDevices(ours, cpu);
    printComparisons(comparisons);
    const onGpu = ours.device.kind === 'GPU';
    const problems = [
      ...comparisons.filter(({ passed }) => !passed).map(({ name }) => `differs from the CPU: ${name}`),
      ...ours.fallbacks.map((reason) => `ran eagerly: ${reason}`),
      ...(onGpu ? misplaced(ours.placement).map((operation) => `ran on the CPU: ${operation}`) : []),
    ];
    console.log(`\nThe same training twice gave ${repeats(ours) ? 'the same bits' : 'other bits: kernels of a GPU may add in any order'}.`);
    const { rates, skipped } = await ratesOf(sizes, folder, onGpu);
    printRates(rates);
    for (const reason of skipped) console.log(`left out: ${reason}`);
    for (const problem of problems) console.log(`FAILED: ${problem}`);
    if (problems.length === 0) console.log(`\nEverything passed${onGpu ? ' on the GPU' : ', on the CPU: this says nothing about a GPU'}.`);
    if (resultFile !== undefined) {
      const { device, placement } = ours;
      const cuda = tensorflowLibrary()?.cuda ?? [];
      const result = {
        ...{ schema: RESULT_SCHEMA, passed: problems.length === 0, device, gpu, cuda, placement, comparisons },
        ...{ repeats: repeats(ours), problems, rates, skipped },
      };
      await mkdir(path.dirname(path.resolve(resultFile)), { recursive: true });
      await writeFile(resultFile, `${JSON.stringify(result, null, 2)}\n`);
    }
    return problems.length > 0 ? 1 : onGpu ? 0 : PASSED_ON_CPU;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function main(): Promise<void> {
  const options = parseOptions(process.argv.slice(2));
  if (options) process.exitCode = await check(options);
  else process.stdout.write(HELP);
}

main().catch((error: unknown) => {
  console.error(errorText(error));
  process.exitCode = 1;
});
