/**
 * Writes the models and workloads of `npm run bench:policy` into the folder that is its first argument, for the sizes that follow, and prints what
 * there is as JSON. A process of its own: it needs TensorFlow, and must not hold a GPU while that is measured.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { modelDirectory, PROMPT_TOKENS, writeSpec } from '../bench/policy/workloads.ts';
import type { Size, Workload } from '../bench/policy/workloads.ts';

export interface MadeWorkload {
  readonly size: Size;
  readonly workload: Workload;
  /** For the engine's process. */
  readonly file: string;
  readonly shape: { readonly rows: number; readonly length: number };
  /** Trained in a step, or sampled in a round. */
  readonly tokens: number;
}
export interface MadeWorkloads {
  readonly made: readonly MadeWorkload[];
  /** Sizes that cannot be had, with the reason. */
  readonly skipped: readonly string[];
}

const [folder, ...sizes] = process.argv.slice(2) as [string, ...Size[]];
const threads = Number(process.env['TERMINAL_RSI_TF_THREADS'] ?? 2);
const made: MadeWorkload[] = [];
const skipped: string[] = [];
for (const size of sizes) {
  const found = await modelDirectory(size, folder);
  if ('skip' in found) {
    skipped.push(`${size}: ${found.skip}`);
    continue;
  }
  const model = found.directory;
  const { vocab_size: vocabulary } = JSON.parse(readFileSync(path.join(model, 'config.json'), 'utf8')) as { vocab_size: number };
  for (const workload of ['training', 'sampling'] as const) {
    const { spec, file } = await writeSpec(size, workload, { model, vocabulary, threads, folder });
    const { rows, length } = spec;
    const tokens = rows * (workload === 'training' ? length : length - PROMPT_TOKENS);
    made.push({ size, workload, file, shape: { rows, length }, tokens });
  }
}
console.log(JSON.stringify({ made, skipped } satisfies MadeWorkloads));
