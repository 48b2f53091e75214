/**
 * The Temporal test rig: a real dev server per test file. `stop()` replays every history that the tests made, and a test
 * file that does not stop its server fails: a workflow that is not deterministic cannot pass any test.
 */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, Connection } from '@temporalio/client';
import { NativeConnection, Worker } from '@temporalio/worker';
import { repoRoot } from '../records/paths.ts';
import { GPU_TASK_QUEUE, SEARCH_ATTRIBUTES, TASK_QUEUE } from '../workflows/contract.ts';
import type { GpuActivities, RolloutActivities } from '../workflows/contract.ts';
import { fetchHistories, quietRuntime, replayHistories, workflowBundle } from './replay.ts';
import { freePort } from './free-port.ts';

export interface ServerOptions {
  /** With the Web UI. */
  readonly ui?: boolean;
  /** Database file; in memory without it, which spares a third of the time. */
  readonly database?: string;
  /** Bundle to replay with, for tests that run workflows of their own; default: that of today's workflows. */
  readonly workflowBundle?: { readonly code: string };
}

export class TemporalServer {
  readonly address: string;
  readonly client: Client;
  readonly connection: NativeConnection;
  /** Address of the Web UI; '' for a server started without one. */
  readonly uiUrl: string;
  readonly #child: ChildProcess;
  readonly #options: ServerOptions;
  #stopped = false;

  private constructor(
    address: string,
    uiUrl: string,
    client: Client,
    connection: NativeConnection,
    child: ChildProcess,
    options: ServerOptions,
  ) {
    this.address = address;
    this.uiUrl = uiUrl;
    this.client = client;
    this.connection = connection;
    this.#child = child;
    this.#options = options;
    // Neither the server nor its connections may keep alive a test process that forgot them: it must come to this check.
    child.unref();
    process.once('exit', () => {
      if (this.#stopped) return;
      child.kill('SIGKILL');
      process.stderr.write('a TemporalServer was not stopped: its histories were not replayed\n');
      process.exitCode = 1;
    });
  }

  /** Starts a dev server on a free port and waits until it answers. */
  static async start(options: ServerOptions = {}): Promise<TemporalServer> {
    quietRuntime();
    const { ui = false, database } = options;
    const port = await freePort();
    const uiPort = ui ? await freePort() : 0;
    const address = `127.0.0.1:${port}`;
    const uiUrl = ui ? `http://127.0.0.1:${uiPort}` : '';
    const display = ui ? ['--ui-port', String(uiPort), '--ui-disable-news-fetch'] : ['--headless'];
    const storage = database === undefined ? [] : ['--db-filename', database];
    const attributes = Object.entries(SEARCH_ATTRIBUTES).flatMap(([name, type]) => ['--search-attribute', `${name}=${type}`]);
    const child = spawn(
      path.join(repoRoot, '.cache/tools/temporal'),
      ['server', 'start-dev', ...display, '--ip', '127.0.0.1', '--port', String(port), ...storage, ...attributes],
      { stdio: 'ignore' },
    );
    for (let tries = 0; ; tries++) {
      try {
        const client = new Client({ connection: await Connection.connect({ address, connectTimeout: '2s' }) });
        await client.workflowService.describeNamespace({ namespace: 'default' });
        return new TemporalServer(address, uiUrl, client, await NativeConnection.connect({ address }), child, options);
      } catch (error) {
        if (tries === 150 || child.exitCode !== null)
          throw new Error(`the Temporal dev server did not come up at ${address}`, { cause: error });
        await sleep(200);
      }
    }
  }

  /** Ids of all executions so far, oldest first. */
  async executions(): Promise<{ workflowId: string; runId: string; type: string }[]> {
    return (await fetchHistories(this.client)).map(({ workflowId, runId, type }) => ({ workflowId, runId, type }));
  }

  /**
   * Replays every history and ends the server.
   * @returns how many were replayed. Throws when one does not replay; the server has ended even then.
   */
  async stop(): Promise<number> {
    this.#stopped = true;
    try {
      return await replayHistories(await fetchHistories(this.client), this.#options);
    } finally {
      await this.connection.close();
      await this.client.connection.close();
      if (this.#child.exitCode === null) {
        this.#child.ref();
        this.#child.kill('SIGTERM');
        await once(this.#child, 'exit');
      }
    }
  }
}

/** Workers for both queues with activities of the test's own, for as long as `during` runs. */
export async function withWorkers<T>(
  { connection }: Pick<TemporalServer, 'connection'>,
  activities: { rollout: RolloutActivities; gpu: GpuActivities },
  during: () => Promise<T>,
): Promise<T> {
  const { rollout, gpu } = activities;
  const worker = await Worker.create({ connection, taskQueue: TASK_QUEUE, workflowBundle: await workflowBundle(), activities: rollout });
  const gpuWorker = await Worker.create({ connection, taskQueue: GPU_TASK_QUEUE, activities: gpu });
  return await worker.runUntil(gpuWorker.runUntil(during));
}
