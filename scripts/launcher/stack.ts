/**
 * Brings up what a run needs (server, workers) or joins what is already up for the data folder, and takes down what it
 * started. The commands `start`, `up` and `start-run` differ only in what they do in between.
 */
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from '@temporalio/client';
import { UserError } from '../../environment/errors.ts';
import type { SandboxKind } from '../../environment/types.ts';
import { dataDirectory } from '../../records/paths.ts';
import { ensureSearchAttributes } from '../../workers/search-attributes.ts';
import { SERVER_STOP_MS, WORKER_STOP_MS } from '../../workers/stop-times.ts';
import { signalGroup, type SupervisedChild } from './child.ts';
import { connectClient, serverIsConfigured } from './connection.ts';
import { workerPorts } from './ports.ts';
import { startDevServer } from './server.ts';
import { stopTracing } from '../../workers/tracing.ts';
import { isAlive, readState, updateState } from './state.ts';
import type { WorkerPorts } from './state.ts';
import { gpuWorkerMarker, startWorkers, workerMarkers, workersReady } from './workers.ts';

export interface Stack {
  readonly data: string;
  readonly client: Client;
  readonly address: string;
  /** undefined for a server that is not ours. */
  readonly uiUrl?: string;
  readonly logs: string;
  /** Where the workers of this data folder listen; absent when another version started them. */
  readonly ports?: WorkerPorts;
  /** Whether this command started the workers, and so ends them. */
  readonly ownsWorkers: boolean;
  stop(): Promise<void>;
}

export interface Messages {
  readonly info: (message: string) => void;
  readonly warn: (message: string) => void;
}

export interface Needs {
  readonly sandbox: SandboxKind | undefined;
  /** The worker that trains and samples. */
  readonly gpu: boolean;
}

/** `onStarted` gets a function that ends at once what has been started so far, for a second Ctrl-C during start-up. */
export async function bringUp(
  messages: Messages,
  { sandbox, gpu }: Needs,
  signal: AbortSignal,
  onStarted: (kill: () => void) => void,
): Promise<Stack> {
  const data = dataDirectory();
  if (sandbox === 'docker') await ensureDockerImage(messages);
  const external = serverIsConfigured();
  const before = await readState(data);
  const kept = isAlive(before.launcher);
  if (external) messages.info('Connecting to the Temporal server of the environment …');
  else messages.info(kept ? 'Using the Temporal dev server of this data folder.' : 'Starting the Temporal dev server …');
  const launcher = { pid: process.pid, marker: path.basename(process.argv[1] ?? 'node') };
  // Before the server: a second command that starts now waits for ours.
  if (!kept) await updateState(data, ({ address: _, ...state }) => ({ ...state, launcher }));
  const server = external ? undefined : await startDevServer(data, messages.warn);
  const client = server?.client ?? (await connectClient(undefined, 15_000));
  const address = server?.address ?? process.env['TEMPORAL_ADDRESS'] ?? 'the configured server';
  const joined = kept && (server ? server.child === undefined : before.address === address);
  let { ports } = before;
  const children: SupervisedChild[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all(children.map((child) => child.stop(WORKER_STOP_MS)));
    await stopTracing();
    if (!joined) {
      await server?.child?.stop(SERVER_STOP_MS);
      await updateState(data, ({ workflowId, ports }) => ({
        ...(workflowId ? { workflowId } : {}),
        ...(ports ? { ports } : {}),
        workers: [],
      }));
    }
    // Last: a call that is being tried again when its connection is closed ends the process with an error that nobody can catch.
    await client.connection.close();
  };
  const kill = (): void => {
    for (const child of children) child.kill();
    server?.child?.kill();
  };
  onStarted(kill);
  try {
    if (external) await ensureSearchAttributes(client.connection, client.options.namespace);
    if (joined) {
      // None at all: they are only just being started.
      if (gpu && before.workers.length > 0 && !before.workers.some(({ marker }) => marker === gpuWorkerMarker)) {
        throw new UserError(
          `process ${before.launcher?.pid} keeps workers up for ${data} that neither train nor sample, because its job needs none; end it first, or set TERMINAL_RSI_DATA to another folder`,
        );
      }
      messages.info(`Using the workers that process ${before.launcher?.pid} keeps up for this data folder.`);
    } else {
      for (const orphan of before.workers.filter(isAlive)) {
        messages.warn(`ending a worker that an earlier start left behind (process ${orphan.pid})`);
        signalGroup(orphan.pid, 'SIGKILL');
      }
      // They hold the ports that the next ones are to have.
      for (const until = Date.now() + 2_000; before.workers.some(isAlive) && Date.now() < until;) await sleep(50);
      ports = await workerPorts(before.ports);
      const listening = ports;
      await updateState(data, (state) => ({ ...state, launcher, address, ports: listening, workers: [] }));
      messages.info('Starting the workers …');
      const pids = new Map<string, number>();
      children.push(
        ...startWorkers({
          data,
          gpu,
          address: server?.address,
          ports,
          warn: messages.warn,
          onStart: (pid, marker) => {
            pids.set(marker, pid);
            const workers = workerMarkers.flatMap((known) => (pids.has(known) ? [{ pid: pids.get(known) ?? 0, marker: known }] : []));
            void updateState(data, (state) => ({ ...state, workers })).catch((error: unknown) => messages.warn(String(error)));
          },
        }),
      );
      await workersReady(client, children, gpu, signal);
    }
    return {
      data,
      client,
      address,
      ...(server ? { uiUrl: server.uiUrl } : {}),
      logs: path.join(data, 'logs'),
      ...(ports ? { ports } : {}),
      ownsWorkers: !joined,
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function ensureDockerImage(messages: Messages): Promise<void> {
  // Loaded only here: who runs embedded needs no Docker client.
  const [{ default: Docker }, { ensureShellImage }] = await Promise.all([import('dockerode'), import('../docker-image.ts')]);
  messages.info('Looking for the Docker image of the built-in tasks …');
  await ensureShellImage(new Docker());
}
