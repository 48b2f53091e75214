/**
 * The Temporal test rig: a real dev server per test file, and after the tests a replay of every history that they made,
 * through JSON, as an exported history would be. A workflow that is not deterministic cannot pass any test.
 */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Client, Connection } from '@temporalio/client';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import { bundleWorkflowCode, DefaultLogger, NativeConnection, Runtime, Worker } from '@temporalio/worker';
import type { WorkflowBundle } from '@temporalio/worker';
import { repoRoot } from '../records/paths.ts';
import { SEARCH_ATTRIBUTES } from '../workflows/contract.ts';

export const workflowsPath = fileURLToPath(new URL('../workflows/index.ts', import.meta.url));

export class TemporalServer {
  readonly address: string;
  readonly client: Client;
  readonly connection: NativeConnection;
  /** Address of the Web UI; '' for a server started without one. */
  readonly uiUrl: string;
  readonly #child: ChildProcess;

  private constructor(address: string, uiUrl: string, client: Client, connection: NativeConnection, child: ChildProcess) {
    this.address = address;
    this.uiUrl = uiUrl;
    this.client = client;
    this.connection = connection;
    this.#child = child;
  }

  /** Starts a dev server on a free port and waits until it answers. Its database is in memory, which spares a third of the time. */
  static async start({ ui = false } = {}): Promise<TemporalServer> {
    quietRuntime();
    const port = await freePort();
    const uiPort = ui ? await freePort() : 0;
    const address = `127.0.0.1:${port}`;
    const uiUrl = ui ? `http://127.0.0.1:${uiPort}` : '';
    const display = ui ? ['--ui-port', String(uiPort), '--ui-disable-news-fetch'] : ['--headless'];
    const attributes = Object.entries(SEARCH_ATTRIBUTES).flatMap(([name, type]) => ['--search-attribute', `${name}=${type}`]);
    const child = spawn(
      path.join(repoRoot, '.cache/tools/temporal'),
      ['server', 'start-dev', ...display, '--ip', '127.0.0.1', '--port', String(port), ...attributes],
      { stdio: 'ignore' },
    );
    for (let tries = 0; ; tries++) {
      try {
        const client = new Client({ connection: await Connection.connect({ address, connectTimeout: '2s' }) });
        await client.workflowService.describeNamespace({ namespace: 'default' });
        return new TemporalServer(address, uiUrl, client, await NativeConnection.connect({ address }), child);
      } catch (error) {
        if (tries === 150 || child.exitCode !== null)
          throw new Error(`the Temporal dev server did not come up at ${address}`, { cause: error });
        await sleep(200);
      }
    }
  }

  /** Ids of all executions so far, oldest first. */
  async executions(): Promise<{ workflowId: string; runId: string; type: string }[]> {
    const found = [];
    for await (const { workflowId, runId, type, startTime } of this.client.workflow.list())
      found.push({ workflowId, runId, type, startTime });
    return found
      .sort((a, b) => a.startTime.getTime() - b.startTime.getTime())
      .map(({ workflowId, runId, type }) => ({ workflowId, runId, type }));
  }

  async stop(): Promise<void> {
    await this.connection.close();
    await this.client.connection.close();
    if (this.#child.exitCode === null) {
      this.#child.kill('SIGTERM');
      await once(this.#child, 'exit');
    }
  }
}

let bundle: Promise<WorkflowBundle> | undefined;
/** The workflows' bundle, made once per process. */
export function workflowBundle(): Promise<WorkflowBundle> {
  quietRuntime();
  return (bundle ??= bundleWorkflowCode({ workflowsPath, logger: new DefaultLogger('ERROR') }));
}

let quiet = false;
function quietRuntime(): void {
  if (quiet) return;
  quiet = true;
  Runtime.install({
    logger: new DefaultLogger('ERROR'),
    telemetryOptions: { logging: { filter: { core: 'ERROR', other: 'ERROR' } } },
    shutdownSignals: [],
  });
}

/**
 * Replays every history on the server, each one through JSON text.
 * @returns how many were replayed. Throws the first failure, with the workflow's id.
 */
export async function replayAll(server: TemporalServer): Promise<number> {
  const histories = [];
  for (const { workflowId, runId } of await server.executions()) {
    const history = await server.client.workflow.getHandle(workflowId, runId).fetchHistory();
    histories.push({ workflowId, history: JSON.parse(historyToJSON(history)) as unknown });
  }
  let replayed = 0;
  for await (const { workflowId, error } of Worker.runReplayHistories({ workflowBundle: await workflowBundle() }, histories)) {
    if (error) throw new Error(`history of ${workflowId} does not replay`, { cause: error });
    replayed++;
  }
  return replayed;
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}
