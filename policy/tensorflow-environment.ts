/**
 * Settings that TensorFlow reads from the process environment while its library loads. ES modules evaluate imports in order,
 * so policy/tensorflow.ts imports this file before the binding. A setting that the user made already wins.
 */
const threads = process.env['TERMINAL_RSI_TF_THREADS'] ?? '2';
if (!/^[1-9][0-9]*$/.test(threads)) {
  throw new Error(`TERMINAL_RSI_TF_THREADS: found "${threads}", expected a positive whole number`);
}
const defaults: Record<string, string> = {
  TF_CPP_MIN_LOG_LEVEL: '2',
  // Without it one process takes the whole memory of a GPU.
  TF_FORCE_GPU_ALLOW_GROWTH: 'true',
  // The thread count changes the order of sums, hence bits; it is pinned so that a run can be repeated.
  TF_NUM_INTRAOP_THREADS: threads,
  TF_NUM_INTEROP_THREADS: threads,
};
for (const [name, value] of Object.entries(defaults)) process.env[name] ??= value;

export const tensorflowThreads = Number(process.env['TF_NUM_INTRAOP_THREADS']);
