/**
 * Which libtensorflow the addon links to, read from the addon itself before it loads: settings for CUDA have to be in the environment by then.
 * Setup compiles the addon with a path to the library relative to itself (scripts/setup/tensorflow.mjs).
 */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

export interface TensorFlowLibrary {
  readonly variant: 'cpu' | 'gpu';
  /** Holds tensorflow/ and, for a GPU, nvidia/ with the CUDA libraries. */
  readonly folder: string;
  /** The CUDA wheels beside it, e.g. "nvidia_cudnn_cu12-9.3.0.75"; none in the CPU variant. */
  readonly cuda: readonly string[];
}

/** Undefined for an addon that setup did not compile. */
export function tensorflowLibrary(addon = addonFile()): TensorFlowLibrary | undefined {
  if (!existsSync(addon)) return undefined;
  const found = /\$ORIGIN\/([^\0:]*tensorflow-[^/\0:]*-(cpu|gpu))\/tensorflow\0/.exec(readFileSync(addon, 'latin1'));
  if (found === null) return undefined;
  const folder = path.resolve(path.dirname(addon), found[1]!);
  const file = path.join(folder, 'complete.json');
  const { cuda = [] } = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as { cuda?: string[] }) : {};
  return { variant: found[2] as 'cpu' | 'gpu', folder, cuda };
}

function addonFile(): string {
  const packageFile = createRequire(import.meta.url).resolve('@tensorflow/tfjs-node-gpu/package.json');
  return path.join(path.dirname(packageFile), 'lib/napi-v8/tfjs_binding.node');
}

/** Version of a CUDA package among the wheels, e.g. of "cudnn" or "cuda_runtime". */
export function cudaVersion(cuda: readonly string[], name: string): string | undefined {
  return cuda.map((wheel) => new RegExp(`^nvidia_${name}_cu\\d+-(.+)$`).exec(wheel)?.[1]).find((version) => version !== undefined);
}
