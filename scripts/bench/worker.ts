/**
 * Process: a worker with the rollout worker's settings whose activities answer at once, so that all that is left is
 * orchestration. It tells its parent how much memory it holds after each thousand episodes.
 */
import { NativeConnection, Worker } from '@temporalio/worker';
import { listSuites, listTraining } from '../../suites/suites.ts';
import { recordedActivities } from '../../tests/recorded-activities.ts';
import { quietRuntime, workflowBundle } from '../../tests/replay.ts';
import { GPU_TASK_QUEUE, TASK_QUEUE } from '../../workflows/contract.ts';
import type { PrepareRunInput, RolloutActivities } from '../../workflows/contract.ts';

export interface MemorySample {
  readonly episodes: number;
  /** Of the whole process: workflows run in a thread of their own. */
  readonly rssBytes: number;
}
export type WorkerMessage = { readonly type: 'ready' } | ({ readonly type: 'memory' } & MemorySample);

quietRuntime();
const recorded = recordedActivities({
  // What was called is of no use here, and must not count as memory of the worker.
  before: async () => void (recorded.calls.length = 0),
});
const tell = (message: WorkerMessage): void => void (process.connected && process.send?.(message));
let episodes = 0;
const rollout: RolloutActivities = {
  ...recorded.rollout,
  async prepareRun(input: PrepareRunInput) {
    // The tasks of a real run, because they are most of what its histories hold.
    return { ...(await recorded.rollout.prepareRun(input)), suites: listSuites(), training: listTraining() };
  },
  async rollout(input) {
    const before = episodes;
    episodes += input.episodes.length;
    if (Math.floor(before / 1000) < Math.floor(episodes / 1000)) tell({ type: 'memory', episodes, rssBytes: process.memoryUsage.rss() });
    return await recorded.rollout.rollout(input);
  },
};

const connection = await NativeConnection.connect({ address: process.env['TEMPORAL_ADDRESS'] ?? '' });
const { code } = await workflowBundle();
const worker = await Worker.create({
  connection,
  taskQueue: TASK_QUEUE,
  workflowBundle: { code },
  activities: rollout,
  maxConcurrentActivityTaskExecutions: 8,
  maxCachedWorkflows: 64,
});
const gpuWorker = await Worker.create({
  connection,
  taskQueue: GPU_TASK_QUEUE,
  activities: recorded.gpu,
  maxConcurrentActivityTaskExecutions: 1,
});
process.on('disconnect', () => {
  worker.shutdown();
  gpuWorker.shutdown();
});
tell({ type: 'ready' });
await Promise.all([worker.run(), gpuWorker.run()]);
await connection.close();
