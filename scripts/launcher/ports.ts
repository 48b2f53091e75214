/** Free TCP ports on the loopback interface. */
import { createServer } from 'node:net';
import type { WorkerPorts } from './state.ts';

/**
 * `preferred` when it is free on 127.0.0.1 and not in `taken`, else a free port of the system's choice. Another process may
 * take the port before it is used; whoever binds it then fails and is started again with another one.
 */
export async function freePort(preferred: number, taken: readonly number[] = []): Promise<number> {
  if (!taken.includes(preferred) && (await tryListen(preferred)) !== undefined) return preferred;
  for (;;) {
    const port = await tryListen(0);
    if (port === undefined) throw new Error('no free TCP port on 127.0.0.1');
    if (!taken.includes(port)) return port;
  }
}

/** The first choice of a data folder that has none yet. */
const FIRST_CHOICE: WorkerPorts = { trainer: 7300, rolloutStatus: 7310, gpuStatus: 7311, rolloutMetrics: 7312, gpuMetrics: 7313 };

/** Ports for the workers: those of the last start where they are free, so that links to reports go on working. */
export async function workerPorts(last: WorkerPorts = FIRST_CHOICE): Promise<WorkerPorts> {
  const ports = { ...last };
  const taken: number[] = [];
  for (const name of Object.keys(FIRST_CHOICE) as (keyof WorkerPorts)[]) {
    ports[name] = await freePort(last[name], taken);
    taken.push(ports[name]);
  }
  return ports;
}

function tryListen(port: number): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE' || error.code === 'EACCES') resolve(undefined);
      else reject(error);
    });
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address ? address.port : undefined));
    });
  });
}
