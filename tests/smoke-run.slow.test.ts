/**
 * The smoke profile for real: both worker processes, the trainer, embedded sandboxes, every activity. While it runs the
 * trainer child, the GPU worker and the rollout worker are each killed with SIGKILL and started again, as a supervisor
 * would; the run must finish, and its histories must replay (TemporalServer.stop).
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, open, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { repoRoot } from '../records/paths.ts';
import { TASK_QUEUE } from '../workflows/contract.ts';
import type { RunProgress } from '../workflows/contract.ts';
import { progress } from '../workflows/messages.ts';
import type { trainingRun } from '../workflows/training-run.ts';
import { TemporalServer } from './temporal.ts';

type WorkerName = 'rollout-worker' | 'gpu-worker';

let server: TemporalServer;
let data: string;
let trainerUrl: string;
const workers = new Map<WorkerName, ChildProcess>();

/** Starts a worker process and waits for its `ready` message. Its log is in the data folder. */
async function startWorker(name: WorkerName): Promise<void> {
  const log = await open(path.join(data, `${name}.log`), 'a');
  const child = spawn(process.execPath, ['--import', 'tsx', path.join(repoRoot, 'workers', `${name}.ts`)], {
    cwd: repoRoot,
    env: { ...process.env, TEMPORAL_ADDRESS: server.address, TERMINAL_RSI_DATA: data, TERMINAL_RSI_TRAINER_URL: trainerUrl },
    stdio: ['ignore', log.fd, log.fd, 'ipc'],
  });
  workers.set(name, child);
  const ended = once(child, 'exit').then(async () => {
    throw new Error(`${name} ended before it was ready:\n${await readFile(path.join(data, `${name}.log`), 'utf8')}`);
  });
  await Promise.race([once(child, 'message'), ended]);
  ended.catch(() => undefined);
  await log.close();
}
async function endWorker(name: WorkerName, signal: NodeJS.Signals): Promise<void> {
  const child = workers.get(name);
  if (child?.exitCode !== null || child.signalCode !== null) return;
  child.kill(signal);
  await once(child, 'exit');
}
async function trainerPid(): Promise<number> {
  const response = await fetch(`${trainerUrl}/health`);
  return ((await response.json()) as { pid: number }).pid;
}

before(async () => {
  server = await TemporalServer.start();
  data = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-smoke-'));
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  trainerUrl = `http://127.0.0.1:${(probe.address() as AddressInfo).port}`;
  probe.close();
});
after(async () => {
  const started = performance.now();
  await Promise.all([endWorker('rollout-worker', 'SIGTERM'), endWorker('gpu-worker', 'SIGTERM')]);
  const seconds = (performance.now() - started) / 1000;
  await server.stop();
  await rm(data, { recursive: true, force: true });
  assert.ok(seconds < 15, `idle workers took ${seconds.toFixed(1)} s to end after SIGTERM`);
});

it(
  'a smoke run goes through every activity and survives the loss of trainer, GPU worker and rollout worker',
  { timeout: 900_000 },
  async () => {
    await Promise.all([startWorker('rollout-worker'), startWorker('gpu-worker')]);
    const handle = await server.client.workflow.start<typeof trainingRun>('trainingRun', {
      taskQueue: TASK_QUEUE,
      workflowId: 'smoke',
      args: [{ profile: 'smoke', basePolicy: process.env['TERMINAL_RSI_TEST_POLICY'] ?? 'models/tiny-base' }],
    });
    const reach = async (what: string, reached: (now: RunProgress) => boolean): Promise<void> => {
      for (;;) {
        const { status } = await handle.describe();
        // A run that failed must show its failure, not a time-out of this loop.
        if (status.name !== 'RUNNING') await handle.result();
        assert.equal(status.name, 'RUNNING', `the run ended before ${what}`);
        if (reached(await handle.query(progress))) return;
        await sleep(200);
      }
    };

    await reach('the evaluation of Base', (now) => now.activity.startsWith('evaluation'));
    const lost = await trainerPid();
    process.kill(lost, 'SIGKILL');

    await reach('RSR-1', (now) => now.stage === 'RSR-1');
    assert.notEqual(await trainerPid(), lost);
    await endWorker('rollout-worker', 'SIGKILL');
    await startWorker('rollout-worker');

    await reach('RPR-1', (now) => now.stage === 'RPR-1');
    await endWorker('gpu-worker', 'SIGKILL');
    await startWorker('gpu-worker');

    const result = await handle.result();
    assert.deepEqual(
      result.stages.map(({ name }) => name),
      ['Base', 'RSR-1', 'RPR-1'],
    );
    assert.equal(result.stages[2]?.warmUp?.epochs.length, 4);
    assert.equal(result.stages[2]?.ppo?.length, 1);
    assert.ok(existsSync(path.join(data, result.report, 'report.html')));
  },
);
