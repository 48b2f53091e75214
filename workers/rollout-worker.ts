/** Process: workflows and CPU activities of queue `terminal-rsi`. Several may run, on several machines with one data folder. */
import path from 'node:path';
import { Worker } from '@temporalio/worker';
import { createRolloutActivities } from '../activities/rollout-activities.ts';
import { dataDirectory } from '../records/paths.ts';
import { TASK_QUEUE } from '../workflows/contract.ts';
import { loadWorkflowBundle, stampText } from './bundle.ts';
import { connect } from './connection.ts';
import { rolloutDependencies } from './dependencies.ts';
import { AttemptRecords, failLostAttempts } from './lost-attempts.ts';
import { Observability } from './observability.ts';
import { openWorkflows } from './open-workflows.ts';
import { runWorker } from './run.ts';
import { createLogger, installRuntime } from './runtime.ts';
import { startTracing, stopTracing, workflowInterceptorModules } from './tracing.ts';
import { ROLLOUT_DRAIN_MS } from './stop-times.ts';

const logger = createLogger('rollout-worker');
try {
  installRuntime(logger);
  const observability = new Observability({ name: 'rollout-worker', logger, runs: path.join(dataDirectory(), 'runs') });
  const tracing = await startTracing('terminal-rsi-rollout-worker', logger);
  const bundle = await loadWorkflowBundle({ interceptorModules: workflowInterceptorModules() });
  logger.info({ stamp: stampText(bundle.stamp), origin: bundle.origin, file: bundle.file }, 'workflow bundle');
  observability.waitingFor('the Temporal server');
  const { connection, namespace } = await connect(logger);
  const dependencies = rolloutDependencies(logger, openWorkflows(connection, namespace));
  void dependencies.reapIfDocker(); // an engine that does not answer must not hold the worker
  const records = new AttemptRecords(dependencies.data, logger);
  await failLostAttempts(connection, dependencies.data, logger);
  const worker = await Worker.create({
    connection,
    namespace,
    taskQueue: TASK_QUEUE,
    workflowBundle: bundle,
    activities: createRolloutActivities(dependencies),
    interceptors: { activity: [...observability.interceptors, ...(tracing ? [tracing.activity] : []), records.interceptor] },
    ...(tracing ? { sinks: tracing.sinks } : {}),
    // Workflows bound themselves: a run by its chunks in flight, each of which is many episodes, a job by its concurrency.
    maxConcurrentActivityTaskExecutions: 64,
    // Pause, reset and cancellation arrive with the answer to a heartbeat; the SDK would send one every 24 s.
    maxHeartbeatThrottleInterval: '3s',
    // Each cached workflow holds its own copy of the zod schemas.
    maxCachedWorkflows: 64,
    // Cancel at once: finished episodes are journalled, unfinished ones start again anyway.
    shutdownGraceTime: 0,
    shutdownForceTime: ROLLOUT_DRAIN_MS,
  });
  observability.watch(worker, connection);
  process.exitCode = await runWorker({
    logger,
    worker,
    records,
    async close() {
      await dependencies.close();
      await connection.close();
      await stopTracing();
    },
  });
} catch (error) {
  logger.fatal({ err: error }, 'rollout worker could not start');
  process.exitCode = 1;
}
// Sandbox libraries keep timers and sockets open that must not hold a worker that has drained.
process.exit();
