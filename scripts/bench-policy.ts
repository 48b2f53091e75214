/**
 * `npm run bench:policy`: training and sampling by our engine, as graphs and eagerly, beside PyTorch and JAX on the same weights, tokens,
 * settings and threads, in turns. Prints the tables of docs/benchmarks.md.
 */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { UserError } from '../environment/errors.ts';
import { loadModel } from '../policy/checkpoint.ts';
import { disposeModel, parameterCount } from '../policy/model-parameters.ts';
import { checkSampling, checkTraining } from './bench/policy/check.ts';
import { compare } from './bench/policy/compare.ts';
import type { Engine } from './bench/policy/peers.ts';
import { ENGINES, Peer } from './bench/policy/peers.ts';
import { tableOf } from './bench/policy/table.ts';
import type { Result } from './bench/policy/table.ts';
import { modelDirectory, SIZES, writeSpec } from './bench/policy/workloads.ts';
import type { Size, Workload } from './bench/policy/workloads.ts';
import { errorText } from './error-text.ts';
import { pythonEnvironment } from './python-environment.ts';

const HELP = `npm run bench:policy [-- options]

  --only WORKLOAD      training or sampling (default: both)
  --sizes LIST         of ${SIZES.join(', ')} (default: all)
  --engines LIST       of ${ENGINES.join(', ')} (default: all)
  --rounds N           of each engine (default: 5)
  --threads N          of every engine (default: 2)
  --python FILE        interpreter that has torch, jax, numpy and safetensors
  --install            make one under .cache/ from PyPI (some GB)
  --result-file FILE   write the figures as JSON (docs/benchmarks.md)
`;
const RESULT_SCHEMA = 1;
const WORKLOADS: readonly Workload[] = ['training', 'sampling'];
const PACKAGES = ['torch==2.15.0', 'jax[cpu]==0.12.0.1', 'numpy==2.5.5', 'safetensors==0.8.0'];

interface Options {
  readonly workloads: readonly Workload[];
  readonly sizes: readonly Size[];
  readonly engines: readonly Engine[];
  readonly rounds: number;
  readonly threads: number;
  readonly python: string | undefined;
  readonly install: boolean;
  readonly resultFile: string | undefined;
}

function parseOptions(args: readonly string[]): Options | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      only: { type: 'string' },
      sizes: { type: 'string', default: SIZES.join() },
      engines: { type: 'string', default: ENGINES.join() },
      rounds: { type: 'string', default: '5' },
      threads: { type: 'string', default: '2' },
      python: { type: 'string' },
      install: { type: 'boolean', default: false },
      'result-file': { type: 'string' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) return undefined;
  const whole = (name: 'rounds' | 'threads'): number => {
    if (!/^[1-9]\d{0,3}$/.test(values[name])) throw new UserError(`--${name} is '${values[name]}', expected a whole number from 1`);
    return Number(values[name]);
  };
  const known = <T extends string>(name: string, text: string, all: readonly T[]): T[] => {
    const wrong = text.split(',').find((one) => !all.includes(one as T));
    if (wrong !== undefined) throw new UserError(`--${name} has '${wrong}', expected ${all.join(', ')}`);
    return text.split(',') as T[];
  };
  return {
    workloads: values.only === undefined ? WORKLOADS : known('only', values.only, WORKLOADS),
    sizes: known('sizes', values.sizes, SIZES),
    engines: known('engines', values.engines, ENGINES),
    rounds: whole('rounds'),
    threads: whole('threads'),
    python: values.python,
    install: values.install,
    resultFile: values['result-file'],
  };
}

/** The interpreter of the Python engines, or why there is none. */
async function interpreter({ python, install }: Options): Promise<string | { readonly skip: string }> {
  if (python !== undefined) return python;
  if (!install) return { skip: 'neither --python nor --install was given' };
  const made = await pythonEnvironment({ name: 'bench-policy', packages: PACKAGES, minor: 11, minutes: 60 });
  return 'skip' in made ? made : made.python;
}

async function bench(options: Options): Promise<void> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'terminal-rsi-bench-'));
  const results: Result[] = [];
  const skipped: string[] = [];
  const loadBefore = os.loadavg();
  try {
    const python = await interpreter(options);
    const isPython = (engine: Engine): boolean => engine !== 'graph' && engine !== 'eager';
    const engines = options.engines.filter((engine) => !isPython(engine) || typeof python === 'string');
    if (typeof python !== 'string') skipped.push(`${options.engines.filter(isPython).join(', ')}: ${python.skip}`);
    for (const size of options.sizes) {
      const found = await modelDirectory(size, folder);
      if ('skip' in found) {
        skipped.push(`${size}: ${found.skip}`);
        continue;
      }
      const model = { size, model: found.directory, folder, python: typeof python === 'string' ? python : undefined };
      for (const workload of options.workloads) {
        const result = await one({ ...model, workload, options, engines: engines.filter((engine) => measures(engine, workload)) });
        results.push(result);
        console.log(`\n${tableOf(result)}\n`);
      }
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  for (const reason of [...skipped, ...results.flatMap((result) => result.skipped)]) console.log(`left out: ${reason}`);
  if (options.resultFile === undefined) return;
  const machine = {
    processor: os.cpus()[0]?.model,
    processors: os.cpus().length,
    memoryBytes: os.totalmem(),
    loadBefore,
    loadAfter: os.loadavg(),
  };
  await mkdir(path.dirname(path.resolve(options.resultFile)), { recursive: true });
  const text = JSON.stringify({ schema: RESULT_SCHEMA, machine, threads: options.threads, results, skipped }, null, 2);
  await writeFile(options.resultFile, `${text}\n`);
}

/** The draw is all that this engine does otherwise. */
const measures = (engine: Engine, workload: Workload): boolean => workload === 'sampling' || engine !== 'torch-cdf';

interface OneInput {
  readonly size: Size;
  readonly workload: Workload;
  readonly engines: readonly Engine[];
  readonly options: Options;
  readonly model: string;
  readonly folder: string;
  readonly python: string | undefined;
}

async function one({ size, workload, engines, options, model: directory, folder, python }: OneInput): Promise<Result> {
  const { rounds, threads } = options;
  const model = loadModel(directory, 'actor');
  try {
    const { spec, file } = await writeSpec(size, workload, { model: directory, vocabulary: model.config.vocab_size, threads, folder });
    const compared = await compare({
      ...{ engines, rounds, workload },
      start: (engine) => new Peer(engine, file, { threads, python }),
      check: (answers) => (workload === 'training' ? checkTraining(answers) : checkSampling(answers, model, spec)),
      progress: (text) => console.error(`${workload}, ${size}: ${text}`),
    });
    const { rows, length } = spec;
    return { size, workload, parameters: parameterCount(model), shape: { rows, length }, rounds, ...compared };
  } finally {
    disposeModel(model);
  }
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
