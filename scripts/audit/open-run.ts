/** A run of this data folder for auditing or exporting: finds the Temporal server, and starts that of the data folder where none runs. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { UserError } from '../../environment/errors.ts';
import { openDataFolder } from '../../records/audit/data-source.ts';
import type { AuditSource } from '../../records/audit/source.ts';
import { dataDirectory } from '../../records/paths.ts';
import { connectClient, serverIsConfigured } from '../launcher/connection.ts';
import { startDevServer } from '../launcher/server.ts';
import { updateState } from '../launcher/state.ts';

/**
 * With TEMPORAL_* set: that server. Else the launcher's, which is started for as long as the source is open if it is down.
 * Throws UserError for a run that is not in the data folder. A server that does not answer is no error: the ledger has histories too.
 */
export async function openRun(run: string, tell: (message: string) => void): Promise<AuditSource> {
  const data = dataDirectory();
  if (serverIsConfigured()) {
    const client = await connectClient(undefined, 5_000).catch((error: unknown) => error as Error);
    if (client instanceof Error) return await openDataFolder(data, run, client.message);
    const source = await openDataFolder(data, run, client);
    return { ...source, close: () => client.connection.close() };
  }
  if (!existsSync(path.join(data, 'temporal', 'temporal.db'))) return await openDataFolder(data, run, `${data} has no Temporal database`);
  // Before a server is started: a wrong name is told at once.
  await openDataFolder(data, run, 'not asked yet');
  let server: Awaited<ReturnType<typeof startDevServer>>;
  try {
    server = await startDevServer(data, tell);
  } catch (error) {
    if (error instanceof UserError) return await openDataFolder(data, run, error.message);
    throw error;
  }
  if (server.child) tell('Started the Temporal dev server of the data folder for this command.');
  const close = async (): Promise<void> => {
    await server.client.connection.close();
    if (!server.child) return;
    await server.child.stop(15_000);
    await updateState(data, ({ server: _, ...state }) => state);
  };
  try {
    return { ...(await openDataFolder(data, run, server.client)), close };
  } catch (error) {
    await close();
    throw error;
  }
}
