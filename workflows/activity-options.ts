/**
 * How each activity is tried, timed and cancelled, with the reason beside it. The numbers assume a laptop at one end and
 * a long run on a busy GPU machine at the other: what tells a dead attempt from a slow one is the heartbeat.
 */
import { ActivityCancellationType, proxyActivities } from '@temporalio/workflow';
import type { ActivityOptions } from '@temporalio/workflow';
import { GPU_TASK_QUEUE } from './contract.ts';
import type { GpuActivities, RolloutActivities } from './contract.ts';

/** Trying again cannot help: the task, the input, the numbers or a stored artifact are wrong. See activities/failures.ts. */
const nonRetryableErrorTypes = ['TaskError', 'UserError', 'NumericalError', 'ArtifactError', 'LedgerError', 'InvalidConfig'];

/**
 * Bounded, because an oversized payload fails retryably and would be tried for ever. Generous, because a worker, trainer
 * or Docker that is being restarted costs an attempt each time: 200 attempts a minute apart outlast three hours.
 */
const retry = {
  initialInterval: '1s',
  backoffCoefficient: 2,
  maximumInterval: '1m',
  maximumAttempts: 200,
  nonRetryableErrorTypes,
} as const;

/** Work of seconds without progress to report; heartbeats on a timer tell a lost worker. */
const brief: ActivityOptions = { startToCloseTimeout: '10m', heartbeatTimeout: '30s', retry };

const episodes: ActivityOptions = {
  // A chunk of long Docker episodes behind a busy sampler; finished episodes are journalled, so another attempt goes on.
  startToCloseTimeout: '2h',
  // Heartbeats come on a timer of a few seconds; half a minute without one means that the process is gone.
  heartbeatTimeout: '30s',
  // Sandboxes must be closed before the workflow ends, or containers stay behind.
  cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
  retry,
};

const training: ActivityOptions = {
  taskQueue: GPU_TASK_QUEUE,
  // The worst case of one fine-tuning on a CPU. Attempts resume from checkpoints, so a limit that is too short only costs a restart.
  startToCloseTimeout: '12h',
  // The supervisor heartbeats beside the blocked trainer process; its own stall limit catches a trainer that hangs.
  heartbeatTimeout: '30s',
  // The checkpoint must be on disk before the workflow moves on.
  cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
  retry,
};

const trial: ActivityOptions = {
  ...episodes,
  // A task may set its agent no time limit; the heartbeat tells a trial that is at work from one that is gone.
  startToCloseTimeout: '24h',
};

type Brief = Exclude<keyof RolloutActivities, 'calibrate' | 'rollout' | 'verify' | 'rewrite' | 'runTrial'>;
export const {
  prepareRun,
  evaluate,
  reward,
  report,
  sweep,
  collectChunks,
  openStage,
  recordStage,
  closeRun,
  openJob,
  planTrials,
  closeJob,
} = proxyActivities<Pick<RolloutActivities, Brief>>(brief);
export const { calibrate, rollout, verify, rewrite } =
  proxyActivities<Pick<RolloutActivities, 'calibrate' | 'rollout' | 'verify' | 'rewrite'>>(episodes);
export const { runTrial } = proxyActivities<Pick<RolloutActivities, 'runTrial'>>(trial);
export const { fineTuneActor, warmUpCritic, jointPpo } = proxyActivities<GpuActivities>(training);
