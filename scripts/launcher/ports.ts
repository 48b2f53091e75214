/** Free TCP ports on the loopback interface. */
import { createServer } from 'node:net';

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
