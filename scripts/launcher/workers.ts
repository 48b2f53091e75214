/** The worker processes: started, watched, and awaited until the server hands them tasks. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from '@temporalio/client';
import proto from '@temporalio/proto';
import { InfrastructureError } from '../../environment/errors.ts';
import { repoRoot } from '../../records/paths.ts';
import { GPU_TASK_QUEUE, TASK_QUEUE } from '../../workflows/contract.ts';
import { logTail, SupervisedChild } from './child.ts';
import type { WorkerPorts } from './state.ts';

const WORKERS = [
  {
    name: 'GPU worker',
    script: 'workers/gpu-worker.ts',
    queue: GPU_TASK_QUEUE,
    log: 'gpu-worker.log',
    status: 'gpuStatus',
    metrics: 'gpuMetrics',
  },
  {
    name: 'rollout worker',
    script: 'workers/rollout-worker.ts',
    queue: TASK_QUEUE,
    log: 'rollout-worker.log',
    status: 'rolloutStatus',
    metrics: 'rolloutMetrics',
  },
] as const;

/** Text in a worker's command line by which the launcher knows it again. */
export const workerMarkers: readonly string[] = WORKERS.map(({ script }) => script);

/** Text in the command line of the worker that trains and samples. */
export const gpuWorkerMarker: string = WORKERS[0].script;

const READY_MS = 180_000;

export interface WorkerSettings {
  readonly data: string;
  /** Also the worker that trains and samples; jobs of other agents than policies do without. */
  readonly gpu: boolean;
  /** Address of the launcher's own server; undefined where the environment names one. */
  readonly address: string | undefined;
  readonly ports: WorkerPorts;
  readonly warn: (message: string) => void;
  readonly onStart: (pid: number, marker: string) => void;
}

export function startWorkers({ data, gpu, address, ports, warn, onStart }: WorkerSettings): SupervisedChild[] {
  const env: NodeJS.ProcessEnv = { ...process.env, TERMINAL_RSI_DATA: data, TERMINAL_RSI_TRAINER_URL: `http://127.0.0.1:${ports.trainer}` };
  if (address !== undefined) {
    env['TEMPORAL_ADDRESS'] = address;
    env['TEMPORAL_NAMESPACE'] = 'default';
    env['TEMPORAL_CONFIG_FILE'] = writeProfile(data, address);
  }
  return wanted(gpu).map(({ name, script, log, status, metrics }) => {
    const child = new SupervisedChild({
      name,
      command: process.execPath,
      args: ['--import', 'tsx', path.join(repoRoot, script)],
      env: {
        ...env,
        TERMINAL_RSI_STATUS_ADDRESS: `127.0.0.1:${ports[status]}`,
        TERMINAL_RSI_METRICS_ADDRESS: `127.0.0.1:${ports[metrics]}`,
      },
      cwd: repoRoot,
      logFile: path.join(data, 'logs', log),
      health: { url: `http://127.0.0.1:${ports[status]}/health` },
      onCrash: warn,
      onStart: (pid) => onStart(pid, script),
    });
    child.start();
    return child;
  });
}

function wanted(gpu: boolean): readonly (typeof WORKERS)[number][] {
  return WORKERS.filter(({ queue }) => gpu || queue !== GPU_TASK_QUEUE);
}

/**
 * A configuration file for Temporal clients of our own server, so that a profile of this person's other servers does not add
 * its credentials. Not empty, because envconfig fails on a file without a default profile.
 */
function writeProfile(data: string, address: string): string {
  const file = path.join(data, 'temporal', 'client.toml');
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, `[profile.default]\naddress = "${address}"\nnamespace = "default"\n`);
  return file;
}

/**
 * Waits until the server sees each worker poll its queue (pollers are known by the process id in their identity).
 * Throws InfrastructureError with the end of the log of a worker that dies three times or is not ready in three minutes.
 */
export async function workersReady(client: Client, children: readonly SupervisedChild[], gpu: boolean, signal: AbortSignal): Promise<void> {
  const deadline = Date.now() + READY_MS;
  for (const [i, { queue, name }] of wanted(gpu).entries()) {
    const child = children[i];
    if (!child) throw new InfrastructureError(`no process for the ${name}`);
    while (!(await polls(client, queue, child.pid))) {
      if (signal.aborted) return;
      if (child.crashes >= 3 || Date.now() > deadline) {
        throw new InfrastructureError(`the ${name} does not come up. The end of ${child.logFile}:\n${await logTail(child.logFile, 12)}`);
      }
      await sleep(250);
    }
  }
}

async function polls(client: Client, queue: string, pid: number | undefined): Promise<boolean> {
  if (pid === undefined) return false;
  const { pollers } = await client.workflowService.describeTaskQueue({
    namespace: client.options.namespace,
    taskQueue: { name: queue },
    taskQueueType: proto.temporal.api.enums.v1.TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
  });
  return (pollers ?? []).some(({ identity }) => new RegExp(`(^|\\D)${pid}(\\D|$)`).test(identity ?? ''));
}
