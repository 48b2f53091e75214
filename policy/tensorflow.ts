/**
 * The one place that imports TensorFlow. Everything else takes `tf` from here, so that the environment is set before the
 * native library loads, and no other backend (plain JavaScript, WASM) can ever stand in silently.
 *
 * TensorFlow operations are synchronous: import this in the trainer process and in scripts, never in a Temporal worker.
 */
import { tensorflowThreads } from './tensorflow-environment.ts';
import * as tf from '@tensorflow/tfjs-node-gpu';
import type { NodeJSKernelBackend } from '@tensorflow/tfjs-node-gpu/dist/nodejs_kernel_backend.js';
import type { TFEOpAttr } from '@tensorflow/tfjs-node-gpu/dist/tfjs_binding.js';

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

/** What computes: recorded with every training result, because bits depend on it. */
export function device(): { readonly kind: 'CPU' | 'GPU'; readonly tensorflow: string; readonly threads: number } {
  return {
    kind: nativeBackend().isUsingGpuDevice ? 'GPU' : 'CPU',
    tensorflow: nativeBackend().binding.TF_Version,
    threads: tensorflowThreads,
  };
}

export { tf };
