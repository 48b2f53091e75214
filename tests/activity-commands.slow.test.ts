/**
 * Pause, unpause and reset of an activity, as the Temporal UI and `temporal activity` send them, against real workers and the
 * real trainer: a paused attempt writes down what it has and ends, and no other one begins; work that goes on, also after a
 * reset that clears the heartbeat's details, goes on from the disk.
 */
import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import proto from '@temporalio/proto';
import { WorkerRig } from './worker-rig.ts';

const State = proto.temporal.api.enums.v1.PendingActivityState;
const STEPS = 160;
/** Longer than a retry takes to begin where nothing holds it back. */
const QUIET_MS = 3_000;

let rig: WorkerRig;
before(async () => {
  rig = await WorkerRig.start();
});
after(async () => await rig.stop());

async function command(name: 'pause' | 'unpause' | 'reset', workflowId: string): Promise<void> {
  const id = (await rig.pending(workflowId))?.activityId;
  assert.ok(id, `${workflowId} has no pending activity`);
  const { workflowService } = rig.server.client;
  const request = { namespace: 'default', execution: { workflowId }, id };
  if (name === 'pause') await workflowService.pauseActivity(request);
  else if (name === 'unpause') await workflowService.unpauseActivity(request);
  else await workflowService.resetActivity({ ...request, resetHeartbeat: true });
}
/** The attempt has ended, and the server holds the next one back. */
async function paused(workflowId: string): Promise<void> {
  await rig.until(workflowId, 'it is paused', (activity) => activity.state === State.PENDING_ACTIVITY_STATE_PAUSED);
}
async function lastFailureType(workflowId: string): Promise<string | null | undefined> {
  return (await rig.pending(workflowId))?.lastFailure?.applicationFailureInfo?.type;
}

test('training: pause writes a checkpoint and holds, unpause and reset go on from it, and no step is taken twice', async () => {
  await rig.startWorker('gpu-worker');
  const handle = await rig.fineTune('commands', STEPS);
  const { workflowId } = handle;
  const optimSteps = async (): Promise<number> => (await rig.log('gpu-worker')).split('optim-step').length - 1;
  const steps = async (least: number): Promise<void> =>
    await rig.until(workflowId, `step ${least}`, (_, { step }) => Number(step ?? 0) >= least);
  const checkpoint = async (): Promise<number> => {
    const names = await readdir(path.join(rig.data, 'runs', 'commands', 'checkpoints', 'RSR-1', 'fine-tune', 'steps'));
    return Math.max(0, ...names.flatMap((name) => Number(/^step-(\d+)\.json$/.exec(name)?.[1] ?? 0)));
  };

  await steps(2);
  await command('pause', workflowId);
  await paused(workflowId);
  const taken = await optimSteps();
  assert.equal(await checkpoint(), taken);
  assert.equal(await lastFailureType(workflowId), 'ActivityPause');
  await sleep(QUIET_MS);
  assert.equal(await optimSteps(), taken);

  await command('unpause', workflowId);
  await steps(taken + 1);
  await command('reset', workflowId);
  await rig.until(
    workflowId,
    'it is reset',
    (activity) => activity.attempt === 1 && activity.state === State.PENDING_ACTIVITY_STATE_STARTED,
  );
  await steps(taken + 2);
  assert.equal((await handle.result()).metrics.steps, STEPS);
  assert.equal(await optimSteps(), STEPS);
});

test('rollout: pause keeps the finished episodes and holds, unpause and reset go on with the others', async () => {
  await rig.startWorker('rollout-worker');
  // The trainer is up for sampling as long as the GPU worker is.
  const handle = await rig.rollout('commands', 24, 12);
  const { workflowId } = handle;
  const journal = async (): Promise<string[]> => {
    const file = path.join(rig.data, 'runs', 'commands', 'journal', 'RSR-1', 'rollout', '0.jsonl');
    return (await readFile(file, 'utf8').catch(() => '')).split('\n').filter((line) => line !== '');
  };
  while ((await journal()).length < 1) await sleep(10);
  await command('pause', workflowId);
  await paused(workflowId);
  const kept = await journal();
  assert.equal(await lastFailureType(workflowId), 'ActivityPause');
  await sleep(QUIET_MS);
  assert.deepEqual(await journal(), kept);

  await command('unpause', workflowId);
  while ((await journal()).length < kept.length + 1) await sleep(10);
  await command('reset', workflowId);
  const { episodeCount } = await handle.result();
  const lines = await journal();
  assert.deepEqual(lines.slice(0, kept.length), kept);
  assert.equal(lines.length, episodeCount, 'no episode was rolled out twice');
});
