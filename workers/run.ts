/**
 * The life of a worker process: one "ready" line, graceful end on the first signal, immediate end on the second, and an
 * exit status that tells a supervisor when the worker failed (a worker without pollers must not look alive).
 */
import type { Worker } from '@temporalio/worker';
import type { AttemptRecords } from './lost-attempts.ts';
import type { Logger } from './runtime.ts';

export interface WorkerProcess {
  readonly logger: Logger;
  readonly worker: Worker;
  readonly records: AttemptRecords;
  /** Runs when the worker has drained, whatever happened. */
  readonly close: () => Promise<void>;
}

/** Runs until a signal or a failure; resolves with the process's exit status. */
export async function runWorker({ logger, worker, records, close }: WorkerProcess): Promise<number> {
  let signals = 0;
  const shutDown = (why: string): void => {
    signals++;
    if (signals > 1) {
      logger.warn({ why }, 'second signal: ending at once');
      process.exit(130);
    }
    logger.info({ why }, 'shutting down');
    if (worker.getState() === 'RUNNING') worker.shutdown();
  };
  process.on('SIGINT', shutDown).on('SIGTERM', shutDown);
  // A parent that dies without a word takes its channel with it.
  if (process.send) process.on('disconnect', () => shutDown('parent is gone'));

  try {
    const running = worker.run();
    logger.info({ queue: worker.options.taskQueue, identity: worker.options.identity }, 'worker ready');
    process.send?.({ type: 'ready' });
    await running;
    // Every attempt has been reported. Otherwise the records stay, and the next worker fails what is open.
    await records.clear();
    return 0;
  } catch (error) {
    logger.fatal({ err: error }, 'worker failed');
    return 1;
  } finally {
    await close();
  }
}
