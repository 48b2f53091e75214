/**
 * The Temporal dev server of a data folder: one process with its Web UI, its history in `<data>/temporal/temporal.db`. One
 * that already runs for this folder is used again.
 */
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import type { Client } from '@temporalio/client';
import proto, { type temporal } from '@temporalio/proto';
import { UserError } from '../../environment/errors.ts';
import { repoRoot } from '../../records/paths.ts';
import { logTail, SupervisedChild } from './child.ts';
import { connectClient } from './connection.ts';
import { freePort } from './ports.ts';
import { isAlive, readState, updateState } from './state.ts';

/** The dev server's own default is 24 hours; runs are to be audited months later. */
const RETENTION_DAYS = 365;

/** Search attribute → type (`Keyword`, `Int`, `Double`, …). */
export type SearchAttributes = Readonly<Record<string, string>>;

export interface DevServer {
  readonly address: string;
  readonly uiUrl: string;
  readonly client: Client;
  /** Set when this command started it. */
  readonly child?: SupervisedChild;
  /** Process id of one that was running already. */
  readonly foundPid?: number;
}

/** Starts the dev server, or finds the one that runs for `data`, and waits until it answers. */
export async function startDevServer(data: string, attributes: SearchAttributes, warn: (message: string) => void): Promise<DevServer> {
  const { server } = await readState(data);
  if (isAlive(server)) {
    const client = await connectClient(server.address, 30_000);
    return { address: server.address, uiUrl: server.uiUrl, client, foundPid: server.pid };
  }
  const binary = path.join(repoRoot, '.cache', 'tools', 'temporal');
  if (!existsSync(binary))
    throw new UserError(`the Temporal CLI is missing at ${binary}; run \`npm run setup\`, or set TEMPORAL_ADDRESS to a server of yours`);
  const database = path.join(data, 'temporal', 'temporal.db');
  await mkdir(path.dirname(database), { recursive: true });
  const port = await freePort(7233);
  const uiPort = await freePort(8233, [port]);
  const address = `127.0.0.1:${port}`;
  const uiUrl = `http://127.0.0.1:${uiPort}`;
  const logFile = path.join(data, 'logs', 'temporal-server.log');
  const child = new SupervisedChild({
    name: 'Temporal dev server',
    command: binary,
    args: [
      ...['server', 'start-dev', '--ip', '127.0.0.1', '--port', String(port), '--ui-port', String(uiPort)],
      ...['--db-filename', database, '--ui-disable-news-fetch', '--log-level', 'warn', '--log-format', 'json'],
      ...Object.entries(attributes).flatMap(([name, type]) => ['--search-attribute', `${name}=${type}`]),
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
    await prepareNamespace(client, attributes);
    return { address, uiUrl, client, child };
  } catch (error) {
    await child.stop(5_000);
    throw new UserError(
      `the Temporal dev server did not come up: ${error instanceof Error ? error.message : String(error)}\n${await logTail(logFile, 5)}`,
    );
  }
}

async function prepareNamespace(client: Client, attributes: SearchAttributes): Promise<void> {
  const { namespace } = client.options;
  await client.workflowService.updateNamespace({
    namespace,
    config: { workflowExecutionRetentionTtl: { seconds: RETENTION_DAYS * 24 * 3600 } as never }, // Long in the type; the encoder takes a number
  });
  await ensureSearchAttributes(client, attributes);
}

/** Registers the search attributes that the namespace lacks. Throws UserError when the server does not allow it. */
export async function ensureSearchAttributes(client: Client, attributes: SearchAttributes): Promise<void> {
  const { namespace } = client.options;
  const operator = client.connection.operatorService;
  try {
    const { customAttributes } = await operator.listSearchAttributes({ namespace });
    const missing = Object.entries(attributes).filter(([name]) => !(name in customAttributes));
    if (missing.length === 0) return;
    await operator.addSearchAttributes({
      namespace,
      searchAttributes: Object.fromEntries(missing.map(([name, type]) => [name, indexedType(type)])),
    });
  } catch (error) {
    const list = Object.entries(attributes).map(([name, type]) => `${name}=${type}`);
    throw new UserError(
      `cannot register search attributes in namespace ${namespace}: ${error instanceof Error ? error.message : String(error)}. Have an operator add: ${list.join(', ')}`,
    );
  }
}

/** `KeywordList` → INDEXED_VALUE_TYPE_KEYWORD_LIST. */
function indexedType(type: string): temporal.api.enums.v1.IndexedValueType {
  const name = `INDEXED_VALUE_TYPE_${type.replace(/(?<=[a-z])(?=[A-Z])/g, '_').toUpperCase()}`;
  const value = (proto.temporal.api.enums.v1.IndexedValueType as unknown as Record<string, number | undefined>)[name];
  if (value === undefined) throw new TypeError(`search attribute type ${JSON.stringify(type)} is unknown`);
  return value;
}
