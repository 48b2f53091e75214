/**
 * The one place that imports TensorFlow. Everything else takes `tf` from here, so that the environment is set before the
 * native library loads, and no other backend (plain JavaScript, WASM) can ever stand in silently.
 *
 * TensorFlow operations are synchronous: import this in the trainer process and in scripts, never in a Temporal worker.
 */
import os from 'node:os';
import { tensorFloat32, tensorflowThreads } from './tensorflow-environment.ts';
import * as tf from '@tensorflow/tfjs-node-gpu';
import type { NodeJSKernelBackend } from '@tensorflow/tfjs-node-gpu/dist/nodejs_kernel_backend.js';
import type { TFEOpAttr } from '@tensorflow/tfjs-node-gpu/dist/tfjs_binding.js';
import { UserError } from '../environment/errors.ts';
import { lookAround, visibleNvidiaGpu, whyNoGpu } from './gpu.ts';
import { tensorflowLibrary } from './tensorflow-library.ts';

if (tf.getBackend() !== 'tensorflow') {
  throw new Error(`TensorFlow backend: found "${tf.getBackend()}", expected "tensorflow" (the native addon of @tensorflow/tfjs-node-gpu)`);
}

/** The native backend: raw operations, and `binding` with the TF_* attribute constants. */
export function nativeBackend(): NodeJSKernelBackend {
  return tf.backend() as NodeJSKernelBackend;
}

/** An attribute of a raw operation: a number type such as `{ type: 'float32' }`, or a plain value. */
export type RawAttribute =
  { readonly type: 'float32' | 'int32' | 'bool' } | { readonly int: number } | { readonly float: number } | { readonly bool: boolean };

function toNative(name: string, attribute: RawAttribute): TFEOpAttr {
  const { binding } = nativeBackend();
  if ('type' in attribute) {
    const type = { float32: binding.TF_FLOAT, int32: binding.TF_INT32, bool: binding.TF_BOOL }[attribute.type];
    return { name, type: binding.TF_ATTR_TYPE, value: type };
  }
  if ('int' in attribute) return { name, type: binding.TF_ATTR_INT, value: attribute.int };
  if ('float' in attribute) return { name, type: binding.TF_ATTR_FLOAT, value: attribute.float };
  return { name, type: binding.TF_ATTR_BOOL, value: attribute.bool };
}

/**
 * Runs a TensorFlow operation that tfjs has no function for, e.g. `SparseSoftmaxCrossEntropyWithLogits`. No gradient is
 * recorded: call it inside `tf.customGrad`.
 */
export function rawOp(
  name: string,
  attributes: Readonly<Record<string, RawAttribute>>,
  inputs: readonly tf.Tensor[],
  numOutputs: number,
): tf.Tensor[] {
  const native = Object.entries(attributes).map(([key, value]) => toNative(key, value));
  return nativeBackend().executeMultipleOutputs(name, native, [...inputs], numOutputs);
}

const library = tensorflowLibrary();
const onGpu = nativeBackend().isUsingGpuDevice;
// Never silently the CPU: neither where a GPU was asked for, nor where setup found one that has gone since.
const asked = process.env['TERMINAL_RSI_TENSORFLOW'];
if (!onGpu && (asked === 'gpu' || (library?.variant === 'gpu' && process.env['CUDA_VISIBLE_DEVICES'] !== '-1'))) {
  throw new UserError(
    `TensorFlow sees no GPU: ${whyNoGpu(lookAround(library))}. To compute on the CPU instead: export TERMINAL_RSI_TENSORFLOW=cpu`,
  );
}
// A Python process would allow it by default: it is fast, and it changes the third digit of a product.
(nativeBackend().binding as unknown as { setTensorFloat32?(on: boolean): void }).setTensorFloat32?.(tensorFloat32);

/** What computes: recorded with every training result, because bits depend on it. */
export interface Device {
  readonly kind: 'CPU' | 'GPU';
  /** The GPU's or the processor's model. */
  readonly name: string;
  readonly tensorflow: string;
  readonly threads: number;
  /** Only on a GPU. */
  readonly tensorFloat32?: boolean;
  readonly driver?: string;
}
const chosen: Device = describeDevice();

/** Chosen once, when TensorFlow loads. */
export function device(): Device {
  return chosen;
}

function describeDevice(): Device {
  const { binding } = nativeBackend();
  const common = { tensorflow: binding.TF_Version, threads: tensorflowThreads };
  if (!onGpu) return { kind: 'CPU', name: os.cpus()[0]?.model ?? process.arch, ...common };
  const gpu = visibleNvidiaGpu();
  return { kind: 'GPU', name: gpu?.name ?? 'unknown', ...common, tensorFloat32, ...(gpu && { driver: gpu.driver }) };
}

/** Lanes that compute side by side where nobody says: one for each thread on a CPU, one on a GPU. */
export function defaultLanes(): number {
  const { kind, threads } = device();
  return kind === 'GPU' ? 1 : threads;
}

export { tf };
