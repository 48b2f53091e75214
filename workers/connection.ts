/**
 * The workers' connection: settings from @temporalio/envconfig (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_PROFILE,
 * a configuration file …). Registers the run's search attributes where the server lacks them, because a workflow that
 * sets an unknown one is stuck.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { loadClientConnectConfig } from '@temporalio/envconfig';
import { NativeConnection } from '@temporalio/worker';
import { UserError } from '../environment/errors.ts';
import type { Logger } from './runtime.ts';
import { ensureSearchAttributes } from './search-attributes.ts';

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
