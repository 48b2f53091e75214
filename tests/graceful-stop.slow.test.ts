/**
 * What signals do to processes in the middle of their work: the first one lets them write down what they have and leave, the second
 * one ends them at once. Either way the activity goes on where it was, and its result is that of an undisturbed one.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { WorkerRig } from './worker-rig.ts';

const STEPS = 48;
/** Steps before the first signal: far more than are taken between looking and the end of a process. */
const FIRST = 16;
let rig: WorkerRig;
before(async () => {
  rig = await WorkerRig.start();
});
after(async () => await rig.stop());

const undisturbed = 'undisturbed';
const disturbed = 'disturbed';

/** Step of the newest checkpoint. */
async function checkpointStep(runKey: string): Promise<number> {
  const names = await readdir(path.join(rig.data, 'runs', runKey, 'checkpoints', 'RSR-1', 'fine-tune', 'steps'));
  return Math.max(0, ...names.flatMap((name) => Number(/^step-(\d+)\.json$/.exec(name)?.[1] ?? 0)));
}
/** Optimizer steps that all trainers together have taken, by their log: it tells sooner than a heartbeat. */
async function optimSteps(): Promise<number> {
  return (await rig.log('gpu-worker')).split('optim-step').length - 1;
}
/** Steps that are in no checkpoint; `redone` of all that were taken replaced others. */
async function afterCheckpoint(redone: number): Promise<number> {
  const saved = await checkpointStep(disturbed);
  return (await optimSteps()) - redone - saved;
}
async function stepsTaken(least: number): Promise<void> {
  while ((await optimSteps()) < least) await sleep(10);
}

test('training: SIGTERM writes a checkpoint of the last step, a second signal loses no checkpoint, and the result is the same', async () => {
  await rig.startWorker('gpu-worker');
  const handle = await rig.fineTune(disturbed, STEPS);

  await stepsTaken(FIRST);
  assert.equal(await rig.end('gpu-worker', 'SIGTERM'), 0);
  const saved = await checkpointStep(disturbed);
  assert.equal(saved, await optimSteps(), 'every step that was taken is in the checkpoint');
  assert.deepEqual(await readdir(path.join(rig.data, 'attempts')), [], 'an orderly end leaves no open attempt');

  const second = await rig.startWorker('gpu-worker');
  await stepsTaken(saved + 3);
  const before = await checkpointStep(disturbed);
  assert.ok(before >= saved);
  const exit = once(second, 'exit');
  second.kill('SIGINT');
  second.kill('SIGTERM');
  assert.deepEqual(await exit, [130, null]);
  const lostWithWorker = await afterCheckpoint(0);
  assert.ok((await checkpointStep(disturbed)) >= before);

  await rig.startWorker('gpu-worker');
  await stepsTaken((await optimSteps()) + 3);
  const trainer = await rig.trainerPid();
  const lostWithTrainer = await afterCheckpoint(lostWithWorker);
  process.kill(trainer, 'SIGTERM');

  const result = await handle.result();
  assert.equal(result.metrics.steps, STEPS);
  const [taken, most] = [await optimSteps(), STEPS + lostWithWorker + lostWithTrainer + FIRST / 2];
  assert.ok(
    taken <= most,
    `${taken} steps were taken for ${STEPS}, expected at most ${most}: only what came after a checkpoint is done again`,
  );
  const straight = await (await rig.fineTune(undisturbed, STEPS)).result();
  assert.equal(result.actor.sha256, straight.actor.sha256);
  assert.deepEqual(result.metrics, straight.metrics);
});

test('rollout: SIGINT keeps the finished episodes, a second signal does too, and the episodes are those of an undisturbed one', async () => {
  await rig.startWorker('rollout-worker');
  const straight = await (await rig.rollout(undisturbed, 12, 2)).result();

  const handle = await rig.rollout(disturbed, 12, 2);
  const { workflowId } = handle;
  const journal = async (): Promise<string[]> => {
    const file = path.join(rig.data, 'runs', disturbed, 'journal', 'RSR-1', 'rollout', '0.jsonl');
    return (await readFile(file, 'utf8').catch(() => '')).split('\n').filter((line) => line !== '');
  };
  const journalled = async (count: number): Promise<void> => {
    while ((await journal()).length < count) await sleep(10);
  };
  await journalled(1);
  assert.equal(await rig.end('rollout-worker', 'SIGINT'), 0);
  const kept = await journal();
  assert.ok(kept.length < straight.episodeCount, 'the rollout was not finished yet');

  const second = await rig.startWorker('rollout-worker');
  await journalled(kept.length + 1);
  const exit = once(second, 'exit');
  // Two different ones: equal signals that wait together are delivered as one.
  second.kill('SIGTERM');
  second.kill('SIGINT');
  assert.deepEqual(await exit, [130, null]);

  await rig.startWorker('rollout-worker');
  const result = await handle.result();
  const lines = await journal();
  assert.deepEqual(lines.slice(0, kept.length), kept);
  assert.equal(lines.length, straight.episodeCount, 'no episode was rolled out twice');
  assert.deepEqual(result, straight);
  assert.equal((await rig.server.client.workflow.getHandle(workflowId).describe()).status.name, 'COMPLETED');
});
