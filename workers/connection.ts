/**
 * The workers' connection: settings from @temporalio/envconfig (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_PROFILE,
 * a configuration file …). Registers the run's search attributes where the server lacks them, because a workflow that
 * sets an unknown one is stuck.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { loadClientConnectConfig } from '@temporalio/envconfig';
// CommonJS whose export names Node's static analysis does not find.
import proto from '@temporalio/proto';
import { NativeConnection } from '@temporalio/worker';
import { UserError } from '../environment/errors.ts';
import { SEARCH_ATTRIBUTES } from '../workflows/contract.ts';
import type { Logger } from './runtime.ts';

export interface WorkerConnection {
  readonly connection: NativeConnection;
  readonly namespace: string;
}

/** Waits for a server that is still starting. Throws UserError with the address after `patienceMs`. */
export async function connect(logger: Logger, patienceMs = 60_000): Promise<WorkerConnection> {
  const config = loadClientConnectConfig();
  const namespace = config.namespace ?? 'default';
  const address = config.connectionOptions.address ?? 'localhost:7233';
  const deadline = Date.now() + patienceMs;
  for (let attempt = 1; ; attempt++) {
    try {
      const connection = await NativeConnection.connect(config.connectionOptions);
      await ensureSearchAttributes(connection, namespace);
      return { connection, namespace };
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      if (error instanceof UserError) throw error;
      if (Date.now() > deadline)
        throw new UserError(`no Temporal server answers at ${address}, namespace ${namespace}: ${why}. Set TEMPORAL_ADDRESS or start one.`);
      if (attempt % 10 === 1) logger.info({ address, why }, 'waiting for the Temporal server');
      await sleep(500);
    }
  }
}

const { IndexedValueType } = proto.temporal.api.enums.v1;
const TYPES = {
  Keyword: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
  Double: IndexedValueType.INDEXED_VALUE_TYPE_DOUBLE,
};

/** Idempotent. Throws UserError when the server does not let us: an operator has to add them then. */
export async function ensureSearchAttributes(connection: NativeConnection, namespace: string): Promise<void> {
  const operator = connection.operatorService;
  const missing = async (): Promise<[string, keyof typeof TYPES][]> => {
    const { customAttributes } = await operator.listSearchAttributes({ namespace });
    return Object.entries(SEARCH_ATTRIBUTES).filter(([name]) => !(name in customAttributes));
  };
  const lacking = await missing();
  if (lacking.length === 0) return;
  try {
    await operator.addSearchAttributes({
      namespace,
      searchAttributes: Object.fromEntries(lacking.map(([name, type]) => [name, TYPES[type]])),
    });
  } catch (error) {
    // The other worker may have been faster.
    if ((await missing()).length === 0) return;
    const list = Object.entries(SEARCH_ATTRIBUTES).map(([name, type]) => `${name}=${type}`);
    const why = error instanceof Error ? error.message : String(error);
    throw new UserError(`cannot register search attributes in namespace ${namespace}: ${why}. Have an operator add ${list.join(', ')}.`);
  }
}
