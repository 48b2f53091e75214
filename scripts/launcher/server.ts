/**
 * The Temporal dev server of a data folder: one process with its Web UI, its history in `<data>/temporal/temporal.db`. One
 * that another launcher keeps up for this folder is used; one whose launcher is gone is replaced, because nobody would start
 * it again when it dies.
 */
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from '@temporalio/client';
import { UserError } from '../../environment/errors.ts';
import { repoRoot } from '../../records/paths.ts';
import { ensureSearchAttributes } from '../../workers/search-attributes.ts';
import { SEARCH_ATTRIBUTES } from '../../workflows/contract.ts';
import { logTail, signalProcess, SupervisedChild } from './child.ts';
import { connectClient } from './connection.ts';
import { freePort } from './ports.ts';
import { findProcesses, isAlive, readState, updateState, type LauncherState } from './state.ts';

/** The dev server's own default is 24 hours; runs are to be audited months later. */
const RETENTION_DAYS = 365;

/** The server writes its database all the time and needs no long goodbye. */
const END_MS = 3_000;

export interface DevServer {
  readonly address: string;
  readonly uiUrl: string;
  readonly client: Client;
  /** Set when this command started it. */
  readonly child?: SupervisedChild;
}

/** Starts the dev server, or finds the one that a living launcher keeps up for `data`, and waits until it answers. */
export async function startDevServer(data: string, warn: (message: string) => void): Promise<DevServer> {
  const kept = await keptServer(data);
  // It may be dead at this moment; its launcher starts it again on the same ports.
  if (kept) return { address: kept.address, uiUrl: kept.uiUrl, client: await connectClient(kept.address, 60_000) };
  const { server } = await readState(data);
  const binary = path.join(repoRoot, '.cache', 'tools', 'temporal');
  if (!existsSync(binary))
    throw new UserError(`the Temporal CLI is missing at ${binary}; run \`npm run setup\`, or set TEMPORAL_ADDRESS to a server of yours`);
  const database = path.join(data, 'temporal', 'temporal.db');
  await mkdir(path.dirname(database), { recursive: true });
  await endServersOf(database, warn);
  // The ports of the last one, where they are free: clients and links find it again.
  const port = await freePort(portOf(server?.address) ?? 7233);
  const uiPort = await freePort(portOf(server?.uiUrl) ?? 8233, [port]);
  const address = `127.0.0.1:${port}`;
  const uiUrl = `http://127.0.0.1:${uiPort}`;
  const logFile = path.join(data, 'logs', 'temporal-server.log');
  const child = new SupervisedChild({
    name: 'Temporal dev server',
    command: binary,
    args: [
      ...['server', 'start-dev', '--ip', '127.0.0.1', '--port', String(port), '--ui-port', String(uiPort)],
      ...['--db-filename', database, '--ui-disable-news-fetch', '--log-level', 'warn', '--log-format', 'json'],
      ...Object.entries(SEARCH_ATTRIBUTES).flatMap(([name, type]) => ['--search-attribute', `${name}=${type}`]),
    ],
    env: process.env,
    cwd: repoRoot,
    logFile,
    onCrash: warn,
    onStart: (pid) =>
      void updateState(data, (state) => ({ ...state, server: { pid, marker: database, address, uiUrl } })).catch((error: unknown) =>
        warn(String(error)),
      ),
  });
  child.start();
  try {
    const client = await connectClient(address, 60_000);
    await prepareNamespace(client);
    return { address, uiUrl, client, child };
  } catch (error) {
    await child.stop(5_000);
    throw new UserError(
      `the Temporal dev server did not come up: ${error instanceof Error ? error.message : String(error)}\n${await logTail(logFile, 5)}`,
    );
  }
}

/** The server that another, living launcher keeps up for `data`; one that is just coming up is waited for. */
async function keptServer(data: string): Promise<LauncherState['server']> {
  for (;;) {
    const { server, launcher, address } = await readState(data);
    if (!isAlive(launcher) || launcher.pid === process.pid) return undefined;
    // With an address of its own but no such server it uses somebody else's.
    if (address !== undefined) return address === server?.address ? server : undefined;
    await sleep(100);
  }
}

/** Ends servers that an earlier launcher left behind, recorded or not: two on one database would not know of each other. */
async function endServersOf(database: string, warn: (message: string) => void): Promise<void> {
  const marker = `--db-filename ${database}`;
  const left = findProcesses(marker);
  for (const pid of left) {
    warn(`ending a Temporal dev server that an earlier start left behind (process ${pid})`);
    signalProcess(pid, 'SIGTERM');
  }
  const deadline = Date.now() + END_MS;
  while (left.some((pid) => isAlive({ pid, marker }))) {
    if (Date.now() > deadline) for (const pid of left) signalProcess(pid, 'SIGKILL');
    await sleep(50);
  }
}

/** The port of `host:port` or of an address with a scheme. */
function portOf(address: string | undefined): number | undefined {
  const port = /:(\d+)$/.exec(address ?? '')?.[1];
  return port === undefined ? undefined : Number(port);
}

async function prepareNamespace(client: Client): Promise<void> {
  const { namespace } = client.options;
  await client.workflowService.updateNamespace({
    namespace,
    config: { workflowExecutionRetentionTtl: { seconds: RETENTION_DAYS * 24 * 3600 } as never }, // Long in the type; the encoder takes a number
  });
  await ensureSearchAttributes(client.connection, namespace);
}
