/**
 * The way out of a sandbox with an allow-list: an HTTP proxy in this process (CONNECT and absolute-form requests), at the gateway of a
 * bridge that has no other way out. Each sandbox is known by its address on that bridge, which it cannot change without capabilities, so the lists of two
 * tasks do not mix.
 *
 * The proxy resolves names and connects itself, to the very address that it checked. A listed name may not lead to a private, local or
 * multicast address unless that address is listed too: else a name server could open the host's own network to a sandbox.
 */
import { lookup } from 'node:dns/promises';
import { createServer, request } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { HostRules, Refusal } from './host-rules.ts';
import type { Resolve } from './host-rules.ts';

/** A connection without a byte for this long is closed. */
const idleMs = 5 * 60_000;
const connectMs = 30_000;
/** At the same time from one address: a sandbox must not use up the worker's files. */
const mostConnections = 64;

/** One sandbox's way through the proxy. */
export interface Admission {
  /** Bytes that came and went, headers of requests not counted. */
  readonly bytes: number;
  /** From now on everything is refused; open connections are closed. */
  close(): void;
}

export class AllowlistProxy {
  readonly #admitted = new Map<string, Admitted>();
  readonly #servers = new Map<string, Promise<{ readonly server: Server; readonly port: number }>>();
  /** Open connections by the address that they come from. */
  readonly #connections = new Map<string, number>();
  readonly #resolve: Resolve;

  constructor(resolve: Resolve = (host) => lookup(host, { all: true })) {
    this.#resolve = resolve;
  }

  /** Listens at an address, from `port` upwards where that is taken (another process's proxy). Once per address. @returns the port */
  async listen(address: string, port: number): Promise<number> {
    let known = this.#servers.get(address);
    if (!known) {
      known = this.#listen(address, port);
      this.#servers.set(address, known);
      known.catch(() => this.#servers.delete(address));
    }
    return (await known).port;
  }

  /** Lets the sandbox at this address reach these hosts: names, `*.suffix`, addresses, CIDR blocks, `*`. Replaces what was admitted there. */
  admit(address: string, hosts: readonly string[]): Admission {
    this.#admitted.get(address)?.close();
    const admitted = new Admitted(hosts, () => {
      if (this.#admitted.get(address) === admitted) this.#admitted.delete(address);
    });
    this.#admitted.set(address, admitted);
    return admitted;
  }

  async close(): Promise<void> {
    for (const admitted of [...this.#admitted.values()]) admitted.close();
    const servers = await Promise.allSettled(this.#servers.values());
    this.#servers.clear();
    for (const result of servers) {
      if (result.status !== 'fulfilled') continue;
      result.value.server.close();
      result.value.server.closeAllConnections();
    }
  }

  async #listen(address: string, first: number): Promise<{ server: Server; port: number }> {
    for (let port = first; ; port++) {
      const server = createServer((incoming, outgoing) => void this.#forward(incoming, outgoing));
      server.requestTimeout = 0; // a large upload takes its time; what stands still is closed
      server
        .on('connection', (socket: Socket) => this.#limit(socket))
        .on('connect', (incoming, socket: Duplex, head: Buffer) => void this.#tunnel(incoming, socket as Socket, head))
        .on('error', () => undefined); // a connection that could not be taken, once it listens
      try {
        await new Promise<void>((resolve, reject) => {
          server.once('error', reject).listen(port, address, resolve);
        });
        server.unref();
        return { server, port: (server.address() as { port: number }).port };
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE' || port >= first + 100) throw error;
      }
    }
  }

  #limit(socket: Socket): void {
    const address = socket.remoteAddress ?? '';
    const open = (this.#connections.get(address) ?? 0) + 1;
    if (open > mostConnections) return void socket.destroy();
    this.#connections.set(address, open);
    socket.setTimeout(idleMs, () => socket.destroy());
    socket.on('close', () => {
      const left = (this.#connections.get(address) ?? 1) - 1;
      if (left > 0) this.#connections.set(address, left);
      else this.#connections.delete(address);
    });
  }

  /** What the sandbox of this connection may reach under this name. @throws Refusal */
  async #target(socket: Socket, host: string): Promise<{ readonly admitted: Admitted; readonly address: string }> {
    // An IPv4 address as a dual-stack socket writes it.
    const admitted = this.#admitted.get(socket.remoteAddress?.replace(/^::ffff:/, '') ?? '');
    if (!admitted) throw new Refusal(403, 'this sandbox has no network');
    return { admitted, address: await admitted.rules.address(host, this.#resolve) };
  }

  async #tunnel(incoming: IncomingMessage, client: Socket, head: Buffer): Promise<void> {
    client.on('error', () => client.destroy());
    try {
      const { hostname, port } = parse(`http://${incoming.url}`);
      const { admitted, address } = await this.#target(client, hostname);
      const upstream = await open(address, Number(/:(\d+)$/.exec(incoming.url ?? '')?.[1] ?? port));
      admitted.hold(client, { count: false });
      admitted.hold(upstream);
      client.write('HTTP/1.1 200 Connection established\r\n\r\n');
      if (head.length > 0) upstream.write(head);
      client.pipe(upstream).pipe(client);
      for (const [one, other] of [
        [client, upstream],
        [upstream, client],
      ] as const)
        one.on('close', () => other.destroy());
    } catch (error) {
      const { status, message } = refusalOf(error);
      client.end(`HTTP/1.1 ${status} Refused\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n${message}\n`);
    }
  }

  async #forward(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    try {
      const url = parse(incoming.url ?? '');
      if (url.protocol !== 'http:') throw new Refusal(400, `expected an absolute http:// address or CONNECT, got ${incoming.url}`);
      const { admitted, address } = await this.#target(incoming.socket, url.hostname);
      const headers = { ...incoming.headers };
      for (const name of ['proxy-connection', 'proxy-authorization', 'connection', 'keep-alive', 'te', 'trailer', 'upgrade'])
        delete headers[name];
      const upstream = request({
        host: address,
        port: url.port === '' ? 80 : Number(url.port),
        method: incoming.method,
        path: url.pathname + url.search,
        headers: { ...headers, host: url.host, connection: 'close' },
        agent: false,
        timeout: connectMs,
      });
      upstream.on('socket', (socket) => admitted.hold(socket));
      upstream.on('response', (response) => {
        upstream.setTimeout(idleMs);
        outgoing.writeHead(response.statusCode ?? 502, response.headers);
        response.pipe(outgoing);
        response.on('error', () => outgoing.destroy());
      });
      upstream.on('timeout', () => upstream.destroy(new Error('no answer in time')));
      upstream.on('error', (error) => refuse(outgoing, error));
      outgoing.on('close', () => upstream.destroy());
      incoming.pipe(upstream);
    } catch (error) {
      refuse(outgoing, error);
    }
  }
}

class Admitted implements Admission {
  readonly rules: HostRules;
  readonly #sockets = new Map<Socket, boolean>();
  readonly #onClose: () => void;
  #bytes = 0;

  constructor(hosts: readonly string[], onClose: () => void) {
    this.rules = new HostRules(hosts);
    this.#onClose = onClose;
  }

  get bytes(): number {
    return [...this.#sockets].reduce((sum, [socket, count]) => sum + (count ? moved(socket) : 0), this.#bytes);
  }

  /** Closes a connection with the admission, and counts it unless it is the other half of one that is counted. */
  hold(socket: Socket, { count = true } = {}): void {
    this.#sockets.set(socket, count);
    socket.on('close', () => {
      this.#sockets.delete(socket);
      if (count) this.#bytes += moved(socket);
    });
  }

  close(): void {
    for (const socket of this.#sockets.keys()) socket.destroy();
    this.#onClose();
  }
}

function moved(socket: Socket): number {
  return socket.bytesRead + socket.bytesWritten;
}

function parse(address: string): URL {
  try {
    return new URL(address);
  } catch {
    throw new Refusal(400, `${address.slice(0, 200)} is not an address`);
  }
}

function open(host: string, port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port });
    const onError = (error: Error): void => reject(error);
    socket.setTimeout(connectMs, () => socket.destroy(new Error('no answer in time')));
    socket.once('error', onError).once('connect', () => {
      socket.setTimeout(idleMs, () => socket.destroy());
      socket.off('error', onError).on('error', () => socket.destroy());
      resolve(socket);
    });
  });
}

function refusalOf(error: unknown): { readonly status: number; readonly message: string } {
  return error instanceof Refusal ? error : { status: 502, message: (error as Error).message };
}

function refuse(outgoing: ServerResponse, error: unknown): void {
  const { status, message } = refusalOf(error);
  if (outgoing.headersSent) return void outgoing.destroy();
  outgoing.writeHead(status, { 'content-type': 'text/plain' }).end(`${message}\n`);
}
