/** A Docker engine that loses answers: a socket before the real one that breaks what a test tells it to break. */
import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Docker from 'dockerode';

export interface Fault {
  /** The request line, such as `POST /v1.41/containers/create?name=x HTTP/1.1`. */
  readonly on: RegExp;
  /** `lose`: the engine does its work, and the connection ends instead of the answer. `hang`: it does its work, and no answer comes. `refuse`: 500, and it never hears of it. */
  readonly how: 'lose' | 'hang' | 'refuse';
  readonly times: number;
}

export interface EngineProxy {
  readonly docker: Docker;
  /** What to break from now on. */
  faults: Fault[];
  /** The most requests of this kind that were waiting for their answer at the same time. */
  mostAtOnce(kind: RegExp): number;
  readonly requests: readonly string[];
  close(): Promise<void>;
}

/** @param engine the real engine's socket */
export async function startEngineProxy(engine = '/var/run/docker.sock'): Promise<EngineProxy> {
  const socketPath = path.join(tmpdir(), `terminal-rsi-engine-${randomUUID().slice(0, 8)}.sock`);
  const requests: string[] = [];
  const waiting = new Map<Socket, string>();
  const snapshots: string[][] = [];
  const left = new Map<Fault, number>();
  const proxy: EngineProxy = {
    docker: new Docker({ socketPath }),
    faults: [],
    requests,
    mostAtOnce: (kind) => Math.max(0, ...snapshots.map((lines) => lines.filter((line) => kind.test(line)).length)),
    async close() {
      server.close();
      for (const socket of sockets) socket.destroy();
      await rm(socketPath, { force: true });
    },
  };
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect({ path: engine });
    let broken: Fault['how'] | undefined;
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => socket.destroy()).on('close', () => sockets.delete(socket));
    }
    client.on('close', () => {
      waiting.delete(client);
      // An engine that lost its client would stop what it is doing.
      if (broken === undefined) upstream.destroy();
    });
    upstream.on('close', () => client.destroy());
    client.on('data', (chunk) => {
      const [line = ''] = chunk.toString('latin1').split('\r\n', 1);
      if (/^[A-Z]+ \S+ HTTP\/1\.1$/.test(line)) {
        requests.push(line);
        waiting.set(client, line);
        snapshots.push([...waiting.values()]);
        const fault = proxy.faults.find((each) => each.on.test(line) && (left.get(each) ?? each.times) > 0);
        if (fault) {
          left.set(fault, (left.get(fault) ?? fault.times) - 1);
          broken = fault.how;
        }
      }
      if (broken === 'refuse') {
        const body = '{"message":"Timeout waiting for systemd"}';
        client.end(
          `HTTP/1.1 500 Internal Server Error\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`,
        );
        return;
      }
      upstream.write(chunk);
    });
    upstream.on('data', (chunk) => {
      if (broken === 'lose') client.destroy();
      if (broken !== undefined) return;
      waiting.delete(client);
      client.write(chunk);
    });
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  return proxy;
}
