/**
 * Prints how long it takes from `kill -9` of a process to the start of the next attempt of the activity that ran in it, with the
 * records of workers/lost-attempts.ts and without them (then the heartbeat time-out tells). The dead worker is started again after
 * half a second, as the launcher does.
 *
 *   node --import tsx tests/recovery-times.ts
 */
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import proto from '@temporalio/proto';
import type { WorkerName } from './worker-rig.ts';
import { WorkerRig } from './worker-rig.ts';

const STARTED = proto.temporal.api.enums.v1.PendingActivityState.PENDING_ACTIVITY_STATE_STARTED;
const RESTART_MS = 500;
const rig = await WorkerRig.start();

async function attemptStarts(workflowId: string, attempt: number): Promise<void> {
  await rig.until(workflowId, `attempt ${attempt}`, (activity) => (activity.attempt ?? 0) >= attempt && activity.state === STARTED);
}
async function attemptNow(workflowId: string): Promise<number> {
  return (await rig.pending(workflowId))?.attempt ?? 0;
}
function print(what: string, since: number): void {
  process.stdout.write(`${what}: ${((performance.now() - since) / 1000).toFixed(1)} s\n`);
}

async function killWorker(name: WorkerName, workflowId: string, records: boolean): Promise<void> {
  const attempt = await attemptNow(workflowId);
  const since = performance.now();
  await rig.end(name, 'SIGKILL');
  if (!records) await rm(path.join(rig.data, 'attempts'), { recursive: true, force: true });
  await sleep(RESTART_MS);
  await rig.startWorker(name);
  print(`${name} ready again`, since);
  await attemptStarts(workflowId, attempt + 1);
  print(`${name} killed, ${records ? 'with' : 'without'} records: next attempt starts after`, since);
}

try {
  await rig.startWorker('gpu-worker');
  await rig.startWorker('rollout-worker');
  const { workflowId } = await rig.fineTune('times', 1_000);
  const stepping = async (attempt: number): Promise<void> =>
    await rig.until(workflowId, 'a step', (activity, { step }) => activity.attempt === attempt && Number(step) > 0);
  await stepping(1);
  await killWorker('gpu-worker', workflowId, true);
  await stepping(2);
  await killWorker('gpu-worker', workflowId, false);
  await stepping(3);
  const since = performance.now();
  process.kill(await rig.trainerPid(), 'SIGKILL');
  await attemptStarts(workflowId, 4);
  print('trainer killed: next attempt starts after', since);
  await stepping(4);
  print('trainer killed: next training step is reported after', since);
  await rig.server.client.workflow.getHandle(workflowId).terminate();
  await sleep(5_000);

  const rollout = await rig.rollout('times', 48, 8);
  const rolling = async (attempt: number): Promise<void> =>
    await rig.until(rollout.workflowId, 'an episode', (activity) => activity.attempt === attempt && activity.heartbeatDetails != null);
  await rolling(1);
  await killWorker('rollout-worker', rollout.workflowId, true);
  await rolling(2);
  await killWorker('rollout-worker', rollout.workflowId, false);
  await rollout.terminate();
} catch (error) {
  console.error(error);
} finally {
  await rig.stop();
}
