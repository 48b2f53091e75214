/** Training and sampling rates of the policy engine on the chosen device, with the workloads and the process of `npm run bench:policy`. */
import { adviceFor, visibleNvidiaGpu } from '../../policy/gpu.ts';
import { Peer } from '../bench/policy/peers.ts';
import { ON_CPU, runProgram } from './program.ts';
import type { MadeWorkload, MadeWorkloads } from './workloads.ts';

export interface Rates extends Omit<MadeWorkload, 'file' | 'tokens'> {
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

/** @param folder where models and workloads are written; the caller removes it */
export async function ratesOf(
  sizes: readonly string[],
  folder: string,
  onGpu: boolean,
): Promise<{ readonly rates: readonly Rates[]; readonly skipped: readonly string[] }> {
  if (sizes.length === 0) return { rates: [], skipped: [] };
  const { made, skipped } = JSON.parse(await runProgram('workloads.ts', [folder, ...sizes], ON_CPU)) as MadeWorkloads;
  const rates: Rates[] = [];
  const left = [...skipped];
  for (const one of made) {
    const gpu = onGpu ? visibleNvidiaGpu() : undefined;
    const free = gpu === undefined ? Infinity : gpu.memoryMiB - gpu.usedMiB;
    const name = `${one.size}, ${one.workload}`;
    if (free < LEAST_FREE_MIB) {
      left.push(`${name}: ${free} MiB of the GPU are free, at least ${LEAST_FREE_MIB} are needed`);
      continue;
    }
    try {
      rates.push(await measure(one, gpu?.usedMiB));
    } catch (error) {
      const { message } = error as Error;
      const advice = adviceFor(message);
      left.push(`${name}: ${message}${advice === undefined ? '' : ` → ${advice}`}`);
    }
  }
  return { rates, skipped: left };
}

async function measure({ file, tokens, ...one }: MadeWorkload, usedBefore: number | undefined): Promise<Rates> {
  const threads = Number(process.env['TERMINAL_RSI_TF_THREADS'] ?? 2);
  const peer = new Peer('graph', file, { threads, python: undefined });
  try {
    const { prepareSeconds } = await peer.ready();
    const seconds: number[] = [];
    for (let round = 0; round < ROUNDS; round++) seconds.push(...(await peer.round()).seconds);
    const used = usedBefore === undefined ? undefined : visibleNvidiaGpu()?.usedMiB;
    const median = seconds.sort((a, b) => a - b)[Math.floor(seconds.length / 2)]!;
    return {
      ...{ ...one, tokensPerSecond: tokens / median, prepareSeconds },
      ...(used !== undefined && usedBefore !== undefined && { memoryMiB: used - usedBefore }),
    };
  } finally {
    await peer.stop();
  }
}
