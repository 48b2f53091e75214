/**
 * What this machine's NVIDIA driver shows, and why TensorFlow uses no GPU or gave up on one, in words that a person can act on. No TensorFlow here.
 */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cudaVersion, tensorflowLibrary } from './tensorflow-library.ts';
import type { TensorFlowLibrary } from './tensorflow-library.ts';

export interface Gpu {
  readonly name: string;
  readonly memoryMiB: number;
  /** By all processes. */
  readonly usedMiB: number;
  /** Of the driver, e.g. "570.86.15". */
  readonly driver: string;
  /** E.g. "9.0". */
  readonly computeCapability: string;
}

/**
 * Oldest driver by major version of CUDA, on Linux: NVIDIA's CUDA Toolkit release notes, "CUDA Toolkit and Minimum Required Driver Version for
 * CUDA Minor Version Compatibility".
 */
const OLDEST_DRIVER: Readonly<Record<number, string>> = { 12: '525.60.13', 13: '580' };

/** The GPU that a process uses which sees this one alone, from nvidia-smi; undefined where it shows none. */
export function visibleNvidiaGpu(visible = visibleGpu()): Gpu | undefined {
  if (visible === '-1') return undefined;
  const fields = 'name,memory.total,memory.used,driver_version,compute_cap';
  const done = spawnSync('nvidia-smi', [`--query-gpu=${fields}`, '--format=csv,noheader,nounits', '-i', visible], {
    encoding: 'utf8',
    timeout: 20_000,
  });
  return done.status === 0 ? parseGpu(done.stdout) : undefined;
}

/**
 * The one GPU that a process sees, as CUDA_VISIBLE_DEVICES: the first of those it may use, none ("-1") where the CPU is asked for. With several,
 * tfjs-node would put tensors on the last and TensorFlow operations on the first.
 */
export function visibleGpu(
  asked = process.env['TERMINAL_RSI_TENSORFLOW'],
  visible: string | undefined = process.env['CUDA_VISIBLE_DEVICES'],
): string {
  if (asked === 'cpu') return '-1';
  return (visible ?? '0').split(',')[0]!.trim() || '-1';
}

/** Bytes of the GPU that the trainer computes on; undefined where it is the CPU. Asked again only for another GPU: nvidia-smi takes its time. */
export function gpuMemory(library: TensorFlowLibrary | undefined = (installed ??= [tensorflowLibrary()])[0]): number | undefined {
  const visible = visibleGpu();
  if (library?.variant !== 'gpu' || visible === '-1') return undefined;
  if (!memories.has(visible)) {
    const gpu = visibleNvidiaGpu(visible);
    memories.set(visible, gpu && gpu.memoryMiB * 2 ** 20);
  }
  return memories.get(visible);
}
const memories = new Map<string, number | undefined>();
let installed: [TensorFlowLibrary | undefined] | undefined;

/** The first line of nvidia-smi's answer to the query above. */
export function parseGpu(answer: string): Gpu | undefined {
  const [name, memory, used, driver, computeCapability] = answer
    .split('\n')[0]!
    .split(',')
    .map((field) => field.trim());
  if (!name || !driver || !computeCapability) return undefined;
  return { name, memoryMiB: Number(memory), usedMiB: Number(used), driver, computeCapability };
}

/** What is known when TensorFlow sees no GPU. */
export interface Sighting {
  readonly library: TensorFlowLibrary | undefined;
  /** As `visibleGpu` has it. */
  readonly visible: string;
  readonly gpu: Gpu | undefined;
  /** The kernel module is loaded. */
  readonly driverLoaded: boolean;
}

export function lookAround(library: TensorFlowLibrary | undefined): Sighting {
  const visible = visibleGpu();
  return { library, visible, gpu: visibleNvidiaGpu(visible), driverLoaded: existsSync('/proc/driver/nvidia/version') };
}

/** Why TensorFlow sees no GPU, and what to do. */
export function whyNoGpu({ library, visible, gpu, driverLoaded }: Sighting): string {
  if (library === undefined) return 'the TensorFlow addon was not compiled by our setup: run npm run setup';
  if (library.variant === 'cpu')
    return 'TensorFlow is set up without CUDA: run TERMINAL_RSI_TENSORFLOW=gpu npm run setup (2.5 GB to download)';
  if (visible === '-1') return 'CUDA_VISIBLE_DEVICES (or TERMINAL_RSI_TENSORFLOW=cpu) hides every GPU: unset it';
  if (!driverLoaded)
    return 'no NVIDIA driver is loaded on this machine (/proc/driver/nvidia is missing): install one, then check nvidia-smi';
  if (gpu === undefined)
    return `the driver is loaded, but nvidia-smi shows no GPU ${visible}: check CUDA_VISIBLE_DEVICES; a container needs --gpus all`;
  const runtime = cudaVersion(library.cuda, 'cuda_runtime');
  const oldest = OLDEST_DRIVER[Number.parseInt(runtime ?? '', 10)];
  if (oldest !== undefined && isOlder(gpu.driver, oldest))
    return `driver ${gpu.driver} is too old for CUDA ${runtime}: install driver ${oldest} or newer`;
  return (
    `nvidia-smi shows ${gpu.name} with driver ${gpu.driver}, but CUDA ${runtime ?? '(unknown version)'} cannot use it: ` +
    'TF_CPP_MIN_LOG_LEVEL=0 npm run gpu-check prints what TensorFlow says; in a container libcuda.so.1 must be there (--gpus all)'
  );
}

function isOlder(version: string, minimum: string): boolean {
  return version.localeCompare(minimum, 'en', { numeric: true }) < 0;
}

/** TensorFlow's own words → what to do about it. */
const ADVICE: readonly (readonly [RegExp, string])[] = [
  [
    /RESOURCE_EXHAUSTED|out of memory|\bOOM\b/i,
    'the memory of the GPU is short: end other processes on it (nvidia-smi names them), or use fewer sampler slots (TERMINAL_RSI_SAMPLER_SLOTS) and smaller batches',
  ],
  [/driver version is insufficient/i, 'the driver is too old for the CUDA libraries that setup installed: update it'],
  [
    /no kernel image|compute capability|PTX.*(unsupported|not support)/i,
    'TensorFlow has no code for this GPU: it is too old or too new for it',
  ],
  [/libdevice|ptxas|nvlink/i, 'XLA did not find its CUDA tools: remove .cache/tensorflow-*-gpu, then run npm run setup'],
  [
    /cublas|cudnn|Could not load dynamic library|Cannot dlopen/i,
    'a CUDA library is missing or broken: remove .cache/tensorflow-*-gpu, then run npm run setup',
  ],
];

/** The advice for an error of TensorFlow on a GPU; undefined where we have none. */
export function adviceFor(message: string): string | undefined {
  return ADVICE.find(([pattern]) => pattern.test(message))?.[1];
}
