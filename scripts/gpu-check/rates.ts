/** Training and sampling rates of the policy engine on the chosen device, with the workloads and the process of `npm run bench:policy`. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { adviceFor, visibleNvidiaGpu } from '../../policy/gpu.ts';
import { Peer } from '../bench/policy/peers.ts';
import { modelDirectory, PROMPT_TOKENS, writeSpec } from '../bench/policy/workloads.ts';
import type { Size, Workload } from '../bench/policy/workloads.ts';

export interface Rates {
  readonly size: Size;
  readonly workload: Workload;
  readonly shape: { readonly rows: number; readonly length: number };
  /** Median over the rounds: trained tokens, or sampled ones. */
  readonly tokensPerSecond: number;
  /** Until the first round: recording, compiling and warm-up. */
  readonly prepareSeconds: number;
  /** By how much the GPU's used memory grew. TensorFlow keeps what it once had, so this is the peak. */
  readonly memoryMiB?: number;
}

const ROUNDS = 3;
/** A GPU that has less free is not measured. */
const LEAST_FREE_MIB = 4096;

export async function ratesOf(sizes: readonly Size[], folder: string, onGpu: boolean): Promise<{ rates: Rates[]; skipped: string[] }> {
  const rates: Rates[] = [];
  const skipped: string[] = [];
  for (const size of sizes) {
    const found = await modelDirectory(size, folder);
    if ('skip' in found) {
      skipped.push(`${size}: ${found.skip}`);
      continue;
    }
    for (const workload of ['training', 'sampling'] as const) {
      const gpu = onGpu ? visibleNvidiaGpu() : undefined;
      if (gpu !== undefined && gpu.memoryMiB - gpu.usedMiB < LEAST_FREE_MIB) {
        skipped.push(`${size}, ${workload}: ${gpu.memoryMiB - gpu.usedMiB} MiB of the GPU are free, at least ${LEAST_FREE_MIB} are needed`);
        continue;
      }
      try {
        rates.push(await measure(size, workload, found.directory, folder, gpu?.usedMiB));
      } catch (error) {
        const { message } = error as Error;
        skipped.push(`${size}, ${workload}: ${message}${adviceFor(message) === undefined ? '' : ` → ${adviceFor(message)}`}`);
      }
    }
  }
  return { rates, skipped };
}

async function measure(size: Size, workload: Workload, model: string, folder: string, usedBefore: number | undefined): Promise<Rates> {
  const threads = Number(process.env['TERMINAL_RSI_TF_THREADS'] ?? 2);
  const { vocab_size: vocabulary } = JSON.parse(readFileSync(path.join(model, 'config.json'), 'utf8')) as { vocab_size: number };
  const { spec, file } = await writeSpec(size, workload, { model, vocabulary, threads, folder });
  const peer = new Peer('graph', file, { threads, python: undefined });
  try {
    const { prepareSeconds } = await peer.ready();
    const seconds: number[] = [];
    for (let round = 0; round < ROUNDS; round++) seconds.push(...(await peer.round()).seconds);
    const used = usedBefore === undefined ? undefined : visibleNvidiaGpu()?.usedMiB;
    const { rows, length } = spec;
    const tokens = rows * (workload === 'training' ? length : length - PROMPT_TOKENS);
    const median = seconds.sort((a, b) => a - b)[Math.floor(seconds.length / 2)]!;
    return {
      ...{ size, workload, shape: { rows, length }, tokensPerSecond: tokens / median, prepareSeconds },
      ...(used !== undefined && usedBefore !== undefined && { memoryMiB: used - usedBefore }),
    };
  } finally {
    await peer.stop();
  }
}
