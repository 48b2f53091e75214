/**
 * Process: training activities of queue `terminal-rsi-gpu`, one at a time. It never loads TensorFlow, whose operations
 * block; it starts and supervises the trainer process that does, and that also serves sampling to the rollout workers.
 */
import { Worker } from '@temporalio/worker';
import { createGpuActivities } from '../activities/gpu-activities.ts';
import { dataDirectory } from '../records/paths.ts';
import { GPU_TASK_QUEUE } from '../workflows/contract.ts';
import { connect } from './connection.ts';
import { gpuDependencies } from './dependencies.ts';
import { AttemptRecords, endOrphans, failLostAttempts } from './lost-attempts.ts';
import { Observability } from './observability.ts';
import { runWorker } from './run.ts';
import { createLogger, installRuntime } from './runtime.ts';
import { startTracing, stopTracing } from './tracing.ts';
import { TRAINING_DRAIN_MS } from './stop-times.ts';
import { TrainerProcess } from './trainer-process.ts';
import { trainerUrl } from './trainer-url.ts';

const logger = createLogger('gpu-worker');
try {
  installRuntime(logger);
  const tracing = await startTracing('terminal-rsi-gpu-worker', logger);
  const data = dataDirectory();
  const records = new AttemptRecords(data, logger);
  await endOrphans(data, logger);
  const trainer = new TrainerProcess({ url: trainerUrl(), logger, onStart: (pid) => void records.child(pid) });
  const observability = new Observability({ name: 'gpu-worker', logger, trainer });
  try {
    trainer.start();
    observability.waitingFor('the Temporal server');
    const { connection, namespace } = await connect(logger);
    await failLostAttempts(connection, data, logger);
    // Before polling: the first TensorFlow operation may compile for minutes, which must not run against an activity's stall limit.
    observability.waitingFor('the trainer');
    await trainer.ready();
    const worker = await Worker.create({
      connection,
      namespace,
      taskQueue: GPU_TASK_QUEUE,
      activities: createGpuActivities(gpuDependencies(trainer)),
      interceptors: { activity: [...observability.interceptors, ...(tracing ? [tracing.activity] : []), records.interceptor] },
      maxConcurrentActivityTaskExecutions: 1,
      // Step and loss in the live table come from heartbeats; the SDK would send one every 24 s. One slot costs the server little.
      maxHeartbeatThrottleInterval: '2s',
      // The checkpoint starts at once; the process stays until it is written.
      shutdownGraceTime: 0,
      shutdownForceTime: TRAINING_DRAIN_MS,
    });
    observability.watch(worker, connection);
    process.exitCode = await runWorker({ logger, worker, records, close: async () => await connection.close() });
  } finally {
    await Promise.all([trainer.stop(), stopTracing()]);
  }
} catch (error) {
  logger.fatal({ err: error }, 'GPU worker could not start');
  process.exitCode = 1;
}
process.exit();
