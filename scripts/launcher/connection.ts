/** Connecting to Temporal: settings from @temporalio/envconfig, or the address of the dev server that the launcher started. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, Connection } from '@temporalio/client';
import { loadClientConnectConfig } from '@temporalio/envconfig';
import { UserError } from '../../environment/errors.ts';
import { startTracing } from '../../workers/tracing.ts';

/** True when the environment names a server: then that one is used and none is started. */
export function serverIsConfigured(): boolean {
  return Boolean(process.env['TEMPORAL_ADDRESS'] ?? process.env['TEMPORAL_PROFILE']);
}

/**
 * A client. With `address`: the launcher's own dev server, whatever a profile on this machine says; without: what the
 * TEMPORAL_* variables and the Temporal configuration file say. Tries for `patienceMs`, then throws UserError.
 */
export async function connectClient(address: string | undefined, patienceMs: number): Promise<Client> {
  const config = address === undefined ? loadClientConnectConfig() : { connectionOptions: { address }, namespace: 'default' };
  const deadline = Date.now() + patienceMs;
  for (;;) {
    try {
      const connection = await Connection.connect({ ...config.connectionOptions, connectTimeout: '3s' });
      const tracing = await startTracing('terminal-rsi-launcher');
      const interceptors = tracing ? { workflow: [tracing.client] } : {};
      return new Client({ connection, namespace: config.namespace ?? 'default', interceptors });
    } catch (error) {
      if (Date.now() > deadline) {
        throw new UserError(
          `no Temporal server answers at ${config.connectionOptions.address ?? 'localhost:7233'} (${error instanceof Error ? error.message : String(error)}). ` +
            'Start one, correct TEMPORAL_ADDRESS, or unset it to let this command start its own.',
        );
      }
      await sleep(250);
    }
  }
}
