/**
 * The way out of a sandbox with an allow-list: an HTTP proxy in this process (CONNECT and absolute-form requests), at the gateway of a
 * bridge that has no other way out. Each sandbox is known by its address on that bridge, which it cannot change without capabilities, so the lists of two
 * tasks do not mix.
 *
 * The proxy resolves names and connects itself, to the very address that it checked. A listed name may not lead to a private, local or
 * multicast address unless that address is listed too: else a name server could open the host's own network to a sandbox.
 */
import { lookup } from 'node:dns/promises';
import type { LookupAddress } from 'node:dns';
import { createServer, request } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { BlockList, connect, isIP } from 'node:net';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/** A connection without a byte for this long is closed. */
const idleMs = 5 * 60_000;
const connectMs = 30_000;

export type Resolve = (host: string) => Promise<readonly LookupAddress[]>;

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
      server.on(
        'connect',
        (incoming: IncomingMessage, socket: Duplex, head: Buffer) => void this.#tunnel(incoming, socket as Socket, head),
      );
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

/** An answer of the proxy itself. */
class Refusal extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export class HostRules {
  readonly #names = new Set<string>();
  readonly #suffixes: string[] = [];
  readonly #addresses = new BlockList();
  readonly #any: boolean;

  constructor(hosts: readonly string[]) {
    this.#any = hosts.includes('*');
    for (const host of hosts.map((each) => each.toLowerCase())) {
      const [, base = '', bits] = /^([^/]*)(?:\/(\d+))?$/.exec(host) ?? [];
      const family = isIP(base);
      if (family === 0) {
        if (host.startsWith('*.')) this.#suffixes.push(host.slice(1));
        else this.#names.add(host);
      } else if (bits === undefined) this.#addresses.addAddress(base, type(family));
      else this.#addresses.addSubnet(base, Number(bits), type(family));
    }
  }

  /** The address under which a host may be reached. @throws Refusal naming the host */
  async address(asked: string, resolve: Resolve): Promise<string> {
    const host = asked
      .toLowerCase()
      .replace(/^\[|\]$/g, '')
      .replace(/\.$/, '');
    const family = isIP(host);
    const listed = (address: string): boolean => this.#addresses.check(address, type(isIP(address)));
    const open = (address: string): boolean => !isPrivate(address);
    if (family !== 0) {
      if (listed(host) || (this.#any && open(host))) return host;
      throw new Refusal(403, `${host} is not in the task's allow-list`);
    }
    const named = this.#any || this.#names.has(host) || this.#suffixes.some((suffix) => host.endsWith(suffix));
    // An address that is listed does not make the names that lead to it listed.
    if (!named) throw new Refusal(403, `${host} is not in the task's allow-list`);
    const found = await resolve(host).catch((error: Error) => {
      throw new Refusal(502, `${host} cannot be resolved: ${error.message}`);
    });
    const [first] = found.map(({ address }) => address).filter((address) => open(address) || listed(address));
    if (first === undefined) throw new Refusal(403, `${host} leads to a private address that is not in the task's allow-list`);
    return first;
  }
}

const privateBlocks = new BlockList();
for (const block of [
  '0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.168.0.0/16 198.18.0.0/15 224.0.0.0/3',
  '::/96 64:ff9b::/96 100::/64 2002::/16 fc00::/7 fe80::/10 ff00::/8',
].flatMap((blocks) => blocks.split(' '))) {
  const [base = '', bits] = block.split('/');
  privateBlocks.addSubnet(base, Number(bits), type(isIP(base)));
}
/** Of the host's own or a local network, or none at all. A BlockList sees IPv4 inside IPv6 as such. */
function isPrivate(address: string): boolean {
  return privateBlocks.check(address, type(isIP(address)));
}

function type(family: number): 'ipv4' | 'ipv6' {
  return family === 6 ? 'ipv6' : 'ipv4';
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
