import assert from 'node:assert/strict';
import { fork, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { WorkflowHandle } from '@temporalio/client';
import type { temporal } from '@temporalio/proto';
import { bundleWorkflowCode, DefaultLogger, Worker } from '@temporalio/worker';
import { pino } from 'pino';
import type { FineTuneActivityInput } from '../workflows/contract.ts';
import { GPU_TASK_QUEUE } from '../workflows/contract.ts';
import { TemporalServer } from '../tests/temporal.ts';
import { AttemptRecords, endOrphans, failLostAttempts } from './lost-attempts.ts';
import { fate, identify } from './process-identity.ts';

const DRIVER_QUEUE = 'driver';
const logger = pino({ enabled: false });
const fixture = (name: string): string => fileURLToPath(new URL(`../tests/fixtures/${name}`, import.meta.url));

let server: TemporalServer;
let driver: Worker;
let driving: Promise<void>;
let data: string;
before(async () => {
  const workflowBundle = await bundleWorkflowCode({ workflowsPath: fixture('one-activity.ts'), logger: new DefaultLogger('ERROR') });
  server = await TemporalServer.start({ workflowBundle });
  driver = await Worker.create({ connection: server.connection, taskQueue: DRIVER_QUEUE, workflowBundle });
  driving = driver.run();
  data = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-attempts-'));
});
after(async () => {
  driver.shutdown();
  await driving;
  await server.stop();
  await rm(data, { recursive: true, force: true });
});

async function start(workflowId: string): Promise<WorkflowHandle> {
  return await server.client.workflow.start('fineTuneOnly', {
    taskQueue: DRIVER_QUEUE,
    workflowId,
    args: [{} as FineTuneActivityInput],
  });
}
async function pending(handle: WorkflowHandle): Promise<temporal.api.workflow.v1.IPendingActivityInfo> {
  const { raw } = await handle.describe();
  const [activity] = raw.pendingActivities ?? [];
  assert.ok(activity, `${handle.workflowId} has no pending activity`);
  return activity;
}
async function runDoomed(): Promise<{ worker: ChildProcess; child: number }> {
  const worker = fork(fixture('doomed-worker.ts'), [server.address, data], { execArgv: ['--import', import.meta.resolve('tsx')] });
  const [{ child }] = (await once(worker, 'message')) as [{ child: number }];
  return { worker, child };
}
async function kill(worker: ChildProcess): Promise<void> {
  worker.kill('SIGKILL');
  await once(worker, 'exit');
}
const folders = async (): Promise<string[]> => await readdir(path.join(data, 'attempts'));
const stillRuns = (pid: number): boolean => {
  const process = identify(pid);
  return process !== undefined && fate(process) === 'alive';
};

test('a process is told from another one with its id, from one that ended, and from one of another host', async () => {
  const self = identify(process.pid);
  assert.ok(self);
  assert.equal(fate(self), 'alive');
  assert.equal(fate({ ...self, start: '1' }), 'gone');
  assert.equal(fate({ ...self, host: 'elsewhere' }), 'unknown');
  const other = spawn('sleep', ['0.2']);
  const known = identify(other.pid ?? 0);
  assert.ok(known);
  await once(other, 'exit');
  assert.equal(fate(known), 'gone');
});

test('the attempt of a killed worker is failed once, and the next worker gets it; its trainer is ended', async () => {
  const handle = await start('lost');
  const { worker, child } = await runDoomed();
  await endOrphans(data, logger);
  assert.equal(await failLostAttempts(server.connection, data, logger), 0, 'nothing of a living worker is touched');
  assert.ok(stillRuns(child));
  await kill(worker);
  await endOrphans(data, logger);
  while (stillRuns(child)) await sleep(10);
  assert.equal(await failLostAttempts(server.connection, data, logger), 1);
  assert.equal(await failLostAttempts(server.connection, data, logger), 0);
  const { attempt, lastFailure } = await pending(handle);
  assert.equal(attempt, 2);
  assert.equal(lastFailure?.applicationFailureInfo?.type, 'WorkerLost');
  assert.match(lastFailure?.message ?? '', new RegExp(`worker process ${worker.pid} .* died during attempt 1`));
  assert.deepEqual(await folders(), []);
  const next = await Worker.create({
    connection: server.connection,
    taskQueue: GPU_TASK_QUEUE,
    activities: { fineTuneActor: async () => 'done' },
  });
  assert.equal(await next.runUntil(handle.result()), 'done');
});

test('an attempt that ended, and a record that is torn, are passed over', async () => {
  const handle = await start('reported');
  const { worker, child } = await runDoomed();
  await kill(worker);
  await handle.terminate();
  const [folder = ''] = await folders();
  await writeFile(path.join(data, 'attempts', folder, '2.json'), '{"taskToken":"AAA');
  assert.equal(await failLostAttempts(server.connection, data, logger), 0);
  assert.deepEqual(await folders(), []);
  process.kill(child, 'SIGKILL');
});

test('a record outlives its attempt until the report is surely sent, and an orderly end removes them all', async () => {
  const records = new AttemptRecords(data, logger);
  const handle = await start('orderly');
  const worker = await Worker.create({
    connection: server.connection,
    taskQueue: GPU_TASK_QUEUE,
    interceptors: { activity: [records.interceptor] },
    activities: { fineTuneActor: async () => (await folders()).length },
  });
  assert.equal(await worker.runUntil(handle.result()), 1);
  const [folder = ''] = await folders();
  assert.deepEqual(await readdir(path.join(data, 'attempts', folder)), ['1.json']);
  await records.clear();
  assert.deepEqual(await folders(), []);
});

test('folders of other hosts stay until they are a day old', async () => {
  const [young, old] = ['aaaaaaaaaaaa.1.1', 'bbbbbbbbbbbb.1.1'].map((name) => path.join(data, 'attempts', name));
  assert.ok(young && old);
  for (const folder of [young, old]) await mkdir(folder, { recursive: true });
  const twoDaysAgo = Date.now() / 1000 - 2 * 24 * 3600;
  await utimes(old, twoDaysAgo, twoDaysAgo);
  await failLostAttempts(server.connection, data, logger);
  assert.deepEqual([existsSync(young), existsSync(old)], [true, false]);
});
