/**
 * Settings that TensorFlow reads from the process environment while its library loads. ES modules evaluate imports in order,
 * so policy/tensorflow.ts imports this file before the binding. A setting that the user made already wins.
 */
import { visibleGpu } from './gpu.ts';

const threads = process.env['TERMINAL_RSI_TF_THREADS'] ?? '2';
if (!/^[1-9][0-9]*$/.test(threads)) {
  throw new Error(`TERMINAL_RSI_TF_THREADS: found "${threads}", expected a positive whole number`);
}
const allowed = process.env['TERMINAL_RSI_TF32'] ?? '0';
if (allowed !== '0' && allowed !== '1') throw new Error(`TERMINAL_RSI_TF32: found "${allowed}", expected 0 or 1`);

const defaults: Record<string, string> = {
  TF_CPP_MIN_LOG_LEVEL: '2',
  // Without it one process takes the whole memory of a GPU.
  TF_FORCE_GPU_ALLOW_GROWTH: 'true',
  // One thread an operation, and as many operations at once as there are threads: work is cut into lanes (policy/engine/), which need not
  // wait for each other after every operation. Decoding is about a quarter faster this way than with two threads an operation (docs/engine.md).
  TF_NUM_INTRAOP_THREADS: '1',
  TF_NUM_INTEROP_THREADS: threads,
};
for (const [name, value] of Object.entries(defaults)) process.env[name] ??= value;

process.env['CUDA_VISIBLE_DEVICES'] = visibleGpu();

/** Lanes that run side by side. Their number changes shapes, hence bits; it is pinned so that a run can be repeated. */
export const tensorflowThreads = Number(process.env['TF_NUM_INTEROP_THREADS']);
/** Whether matrix products on a GPU may round their inputs to 10 bits (TensorFloat-32). */
export const tensorFloat32 = allowed === '1';
