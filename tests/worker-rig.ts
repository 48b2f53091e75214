/**
 * Real worker processes and the real trainer against a real server, driven one activity at a time: for tests of what signals,
 * kills and the server's activity commands do to an attempt.
 */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, open, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { defaultPayloadConverter } from '@temporalio/client';
import type { WorkflowHandleWithFirstExecutionRunId } from '@temporalio/client';
import type { temporal } from '@temporalio/proto';
import { bundleWorkflowCode, DefaultLogger, Worker } from '@temporalio/worker';
import type { EpisodeTokens } from '../environment/types.ts';
import { Random } from '../method/seeds.ts';
import { ArtifactStore } from '../records/artifacts.ts';
import { repoRoot } from '../records/paths.ts';
import { listTraining } from '../suites/suites.ts';
import type { ArtifactRef } from '../records/types.ts';
import type { FineTuneActivityInput, RolloutInput } from '../workflows/contract.ts';
import { profiles } from '../workflows/profiles.ts';
import type { fineTuneOnly, rolloutOnly } from './fixtures/one-activity.ts';
import { TemporalServer } from './temporal.ts';
import { freePort } from './free-port.ts';

const DRIVER_QUEUE = 'driver';
const VOCABULARY = 500;

export type WorkerName = 'rollout-worker' | 'gpu-worker';
export type FineTuneHandle = WorkflowHandleWithFirstExecutionRunId<typeof fineTuneOnly>;
export type RolloutHandle = WorkflowHandleWithFirstExecutionRunId<typeof rolloutOnly>;

export class WorkerRig {
  readonly server: TemporalServer;
  readonly data: string;
  readonly trainerUrl: string;
  readonly #driver: Worker;
  readonly #driving: Promise<void>;
  readonly #workers = new Map<WorkerName, ChildProcess>();

  private constructor(server: TemporalServer, data: string, trainerUrl: string, driver: Worker) {
    this.server = server;
    this.data = data;
    this.trainerUrl = trainerUrl;
    this.#driver = driver;
    this.#driving = driver.run();
  }

  static async start(): Promise<WorkerRig> {
    const workflowsPath = fileURLToPath(new URL('./fixtures/one-activity.ts', import.meta.url));
    const workflowBundle = await bundleWorkflowCode({ workflowsPath, logger: new DefaultLogger('ERROR') });
    const server = await TemporalServer.start({ workflowBundle });
    const driver = await Worker.create({ connection: server.connection, taskQueue: DRIVER_QUEUE, workflowBundle });
    const data = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-workers-'));
    return new WorkerRig(server, data, `http://127.0.0.1:${await freePort()}`, driver);
  }

  async stop(): Promise<void> {
    for (const name of this.#workers.keys()) await this.end(name, 'SIGTERM');
    this.#driver.shutdown();
    await this.#driving;
    await this.server.stop();
    await rm(this.data, { recursive: true, force: true });
  }

  /** Starts a worker process and waits for its `ready` message. */
  async startWorker(name: WorkerName): Promise<ChildProcess> {
    const log = await open(this.#logFile(name), 'a');
    const child = spawn(process.execPath, ['--import', 'tsx', path.join(repoRoot, 'workers', `${name}.ts`)], {
      cwd: repoRoot,
      env: {
        ...process.env,
        TEMPORAL_ADDRESS: this.server.address,
        TERMINAL_RSI_DATA: this.data,
        TERMINAL_RSI_TRAINER_URL: this.trainerUrl,
        // The trainer then logs every request.
        TERMINAL_RSI_LOG_LEVEL: 'debug',
        // Few at a time, so that a rollout is still at work when a signal or a command arrives.
        TERMINAL_RSI_SAMPLER_SLOTS: '8',
      },
      stdio: ['ignore', log.fd, log.fd, 'ipc'],
    });
    await log.close();
    this.#workers.set(name, child);
    const ended = once(child, 'exit').then(async () => {
      throw new Error(`${name} ended before it was ready:\n${await this.log(name)}`);
    });
    await Promise.race([once(child, 'message'), ended]);
    ended.catch(() => undefined);
    return child;
  }

  /** Signals a worker and waits for its end. @returns its exit status, or the signal that ended it */
  async end(name: WorkerName, signal: NodeJS.Signals): Promise<number | NodeJS.Signals> {
    const child = this.#workers.get(name);
    if (!child) throw new Error(`${name} was never started`);
    if (child.exitCode === null && child.signalCode === null) {
      child.kill(signal);
      await once(child, 'exit');
    }
    return child.signalCode ?? child.exitCode ?? 0;
  }

  async log(name: WorkerName): Promise<string> {
    return await readFile(this.#logFile(name), 'utf8');
  }
  #logFile(name: WorkerName): string {
    return path.join(this.data, `${name}.log`);
  }

  /** Process id of the trainer that answers now. */
  async trainerPid(): Promise<number> {
    return ((await (await fetch(`${this.trainerUrl}/health`)).json()) as { pid: number }).pid;
  }

  /** Fine-tunes the tiny base policy on random tokens: `steps` optimizer steps of a fraction of a second. Equal inputs, equal result. */
  async fineTune(runKey: string, steps: number): Promise<FineTuneHandle> {
    const store = new ArtifactStore(path.join(this.data, 'artifacts'));
    const sequencesPerStep = 8;
    const input: FineTuneActivityInput = {
      key: { runKey, stage: 'RSR-1', purpose: 'fine-tune' },
      runSeed: 1,
      actor: await this.#policy(store),
      examples: [await store.putJsonLines('tokens', randomEpisodes(steps * sequencesPerStep))],
      epochs: 1,
      sequencesPerStep,
      learningRate: 1e-4,
    };
    return await this.server.client.workflow.start<typeof fineTuneOnly>('fineTuneOnly', {
      taskQueue: DRIVER_QUEUE,
      workflowId: `fine-tune-${runKey}`,
      args: [input],
    });
  }

  /** Rolls out `samples` episodes of each of the first `tasks` training tasks. */
  async rollout(runKey: string, tasks: number, samples: number): Promise<RolloutHandle> {
    const store = new ArtifactStore(path.join(this.data, 'artifacts'));
    const { rollout, seed } = profiles.smoke;
    const input: RolloutInput = {
      key: { runKey, stage: 'RSR-1', purpose: 'rollout' },
      chunk: 0,
      runSeed: seed,
      policy: await this.#policy(store),
      sandbox: 'embedded',
      temperature: 1,
      rollout,
      episodes: listTraining()
        .slice(0, tasks)
        .flatMap((task) => Array.from({ length: samples }, (_, sample) => ({ task, harness: 'shell' as const, sample }))),
    };
    return await this.server.client.workflow.start<typeof rolloutOnly>('rolloutOnly', {
      taskQueue: DRIVER_QUEUE,
      workflowId: `rollout-${runKey}`,
      args: [input],
    });
  }

  async #policy(store: ArtifactStore): Promise<ArtifactRef> {
    return await store.putDirectory('policy', path.join(repoRoot, 'models', 'tiny-base'));
  }

  /** The one pending activity of a driver workflow, or undefined between its attempts' worlds. */
  async pending(workflowId: string): Promise<temporal.api.workflow.v1.IPendingActivityInfo | undefined> {
    const { pendingActivities } = await this.server.client.workflowService.describeWorkflowExecution({
      namespace: 'default',
      execution: { workflowId },
    });
    return pendingActivities?.[0];
  }

  /** Polls the pending activity until `reached`; a workflow that ends before that throws. */
  async until(
    workflowId: string,
    what: string,
    reached: (activity: temporal.api.workflow.v1.IPendingActivityInfo, details: Readonly<Record<string, unknown>>) => boolean,
  ): Promise<void> {
    for (;;) {
      const activity = await this.pending(workflowId);
      if (activity && reached(activity, heartbeatDetails(activity))) return;
      const { status } = await this.server.client.workflow.getHandle(workflowId).describe();
      if (status.name !== 'RUNNING') throw new Error(`${workflowId} is ${status.name} before ${what}`);
      await sleep(50);
    }
  }
}

function heartbeatDetails({ heartbeatDetails: details }: temporal.api.workflow.v1.IPendingActivityInfo): Record<string, unknown> {
  const payload = details?.payloads?.[0];
  return payload ? (defaultPayloadConverter.fromPayload<Record<string, unknown> | null>(payload) ?? {}) : {};
}

function randomEpisodes(count: number): EpisodeTokens[] {
  const random = new Random(7);
  return Array.from({ length: count }, (_, index) => {
    const tokens = Array.from({ length: 96 }, () => 10 + random.int(VOCABULARY - 10));
    const turnIds = tokens.map((_, position) => (position < 32 ? -1 : 0));
    return { episodeId: `e${index}`, tokens, turnIds, logprobs: tokens.map(() => 0) };
  });
}
