/**
 * Networks of sandboxes. Most have none. The others share a few bridges of ours, each with a /24 of TERMINAL_RSI_SUBNETS: a
 * network per task would use up the engine's address pools after some thirty tasks, and one for all ends at its 1,024 ports.
 * Containers on one bridge cannot reach each other.
 *
 * `public` bridges lead out. `allowlist` bridges lead nowhere but to their gateway, where this process's filtering proxy listens
 * (allowlist-proxy.ts), so they work only where the engine runs on this machine. A sandbox any of whose phases has an allow-list uses such a bridge
 * in all its phases, because what a container is told about name servers and proxies is settled when it is made.
 */
import { readFile } from 'node:fs/promises';
import type Docker from 'dockerode';
import { InfrastructureError, UserError } from '../errors.ts';
import type { AllowlistProxy } from './allowlist-proxy.ts';
import { isLocal } from './disk.ts';
import { Semaphore, statusOf } from './engine.ts';

export type BridgeKind = 'public' | 'allowlist';
export interface Bridge {
  readonly name: string;
  readonly gateway: string;
  /** Containers that it takes. */
  readonly capacity: number;
}

const label = 'terminal-rsi.network';
/** An unlikely corner of the private addresses: eight bridges. */
const defaultSubnets = '10.213.192.0/21';
/** Another bridge is made when the emptiest has this many containers. */
const crowded = 100;
/** Of a /24's 253 addresses; the rest is for containers that the engine has not yet let go. */
const fullestPart = 0.95;
/** A bridge without containers may be about to get its first. */
const restMs = 60_000;
const proxyPort = 3128;

export class BridgeNetworks {
  readonly #docker: Docker;
  readonly #subnets: readonly Subnet[];
  /** Chosen for a container that is not yet on it. */
  readonly #promised = new Map<string, number>();
  readonly #choosing = new Semaphore(1);

  constructor(docker: Docker, subnets = process.env['TERMINAL_RSI_SUBNETS'] || defaultSubnets) {
    this.#docker = docker;
    this.#subnets = subnets
      .split(/[\s,]+/)
      .filter((text) => text !== '')
      .flatMap(parseSubnets);
  }

  /**
   * The bridge for one more container. It counts as taken until `settle`.
   * @throws InfrastructureError of type NetworkPoolExhaustedError where all are full
   */
  acquire(kind: BridgeKind): Promise<Bridge> {
    return this.#choosing.run(async () => {
      const bridge = (await this.#choose(kind)) ?? ((await this.sweep({ restMs: 0 })) > 0 ? await this.#choose(kind) : undefined);
      if (!bridge)
        throw new InfrastructureError(
          `no room for one more container with a network: all ${this.#subnets.length} subnets of TERMINAL_RSI_SUBNETS are full or taken by others`,
          { type: 'NetworkPoolExhaustedError' },
        );
      this.#promised.set(bridge.name, (this.#promised.get(bridge.name) ?? 0) + 1);
      return bridge;
    });
  }

  /** The container is on its bridge, or will never be. */
  settle({ name }: Bridge): void {
    const left = (this.#promised.get(name) ?? 1) - 1;
    if (left > 0) this.#promised.set(name, left);
    else this.#promised.delete(name);
  }

  /** Removes our bridges that no container uses. Returns how many. */
  async sweep({ restMs: rest = restMs }: { readonly restMs?: number } = {}): Promise<number> {
    const bridges = await this.#list();
    if (bridges.length === 0) return 0;
    const counts = await this.#counts();
    let removed = 0;
    for (const { Id, Name, Created } of bridges) {
      if ((counts.get(Name) ?? 0) > 0 || this.#promised.has(Name) || Date.now() - Date.parse(Created) < rest) continue;
      try {
        await this.#docker.getNetwork(Id).remove();
        removed++;
      } catch (error) {
        // In use after all, or removed by another process.
        if (![403, 404, 409].includes(statusOf(error) ?? 0)) throw error;
      }
    }
    return removed;
  }

  async #choose(kind: BridgeKind): Promise<Bridge | undefined> {
    const [bridges, counts] = await Promise.all([this.#list(), this.#counts()]);
    const load = (name: string): number => (counts.get(name) ?? 0) + (this.#promised.get(name) ?? 0);
    const [emptiest] = bridges
      .filter(({ Labels }) => Labels?.[label] === kind)
      .flatMap(({ Name }) => this.#subnets.filter((subnet) => nameOf(kind, subnet) === Name))
      .map((subnet) => bridgeOf(kind, subnet))
      .sort((a, b) => load(a.name) - load(b.name));
    if (emptiest && load(emptiest.name) < Math.min(crowded, emptiest.capacity)) return emptiest;
    const made = await this.#make(kind, new Set(bridges.map(({ Name }) => Name)));
    if (made) return made;
    return emptiest && load(emptiest.name) < emptiest.capacity ? emptiest : undefined;
  }

  /** One more bridge on a subnet that nobody uses, or undefined. */
  async #make(kind: BridgeKind, taken: ReadonlySet<string>): Promise<Bridge | undefined> {
    const routed = isLocal(this.#docker) ? await hostRoutes() : [];
    for (const subnet of this.#subnets) {
      if (taken.has(nameOf('public', subnet)) || taken.has(nameOf('allowlist', subnet))) continue;
      if (routed.some((route) => overlap(route, subnet))) continue;
      const bridge = bridgeOf(kind, subnet);
      try {
        await this.#docker.createNetwork({
          Name: bridge.name,
          Driver: 'bridge',
          CheckDuplicate: true,
          Internal: kind === 'allowlist',
          IPAM: { Driver: 'default', Config: [{ Subnet: `${text(subnet.first)}/${subnet.bits}`, Gateway: bridge.gateway }] },
          Options: { 'com.docker.network.bridge.enable_icc': 'false' },
          Labels: { [label]: kind },
        });
        return bridge;
      } catch (error) {
        // Another process made the same one: it serves as well.
        if (statusOf(error) === 409) return bridge;
        if (!/overlap|conflicts with network/i.test((error as Error).message)) throw error;
      }
    }
    return undefined;
  }

  async #list(): Promise<Docker.NetworkInspectInfo[]> {
    return await this.#docker.listNetworks({ filters: { label: [label] } });
  }

  /** Containers, running or not, by network. */
  async #counts(): Promise<Map<string, number>> {
    const counts = new Map<string, number>();
    for (const { NetworkSettings } of await this.#docker.listContainers({ all: true }))
      for (const name of Object.keys(NetworkSettings.Networks)) counts.set(name, (counts.get(name) ?? 0) + 1);
    return counts;
  }
}

/** Makes the proxy listen at a bridge's gateway. @returns its port @throws UserError where the gateway is not an address of this machine */
export async function listenAtGateway(proxy: AllowlistProxy, { gateway }: Bridge): Promise<number> {
  try {
    return await proxy.listen(gateway, proxyPort);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRNOTAVAIL') throw error;
    throw new UserError(
      `a network with an allow-list needs the Docker engine on this machine; its bridge's gateway ${gateway} is not here`,
    );
  }
}

interface Subnet {
  /** First address as a number, and the prefix's length. */
  readonly first: number;
  readonly bits: number;
}

/** A block as subnets of at most 256 addresses. @throws UserError */
function parseSubnets(block: string): Subnet[] {
  const [, address = '', length = ''] = /^(\d+\.\d+\.\d+\.\d+)\/(\d+)$/.exec(block) ?? [];
  const bits = Number(length);
  const first = number(address);
  if (first === undefined || !(bits >= 8 && bits <= 29) || first % 2 ** (32 - bits) !== 0)
    throw new UserError(
      `TERMINAL_RSI_SUBNETS: got ${block}, expected blocks of IPv4 addresses between /8 and /29 such as ${defaultSubnets}`,
    );
  if (bits >= 24) return [{ first, bits }];
  return Array.from({ length: Math.min(64, 2 ** (24 - bits)) }, (_, index) => ({ first: first + 256 * index, bits: 24 }));
}

function nameOf(kind: BridgeKind, { first, bits }: Subnet): string {
  return `terminal-rsi-${kind}-${text(first)}-${bits}`;
}
function bridgeOf(kind: BridgeKind, subnet: Subnet): Bridge {
  // Without the network's own, the broadcast and the gateway's address.
  const addresses = 2 ** (32 - subnet.bits) - 3;
  return { name: nameOf(kind, subnet), gateway: text(subnet.first + 1), capacity: Math.ceil(addresses * fullestPart) };
}

/** The machine's own routes but for the default one: a bridge on one of them would cut it off. */
async function hostRoutes(): Promise<Subnet[]> {
  const table = await readFile('/proc/net/route', 'utf8').catch(() => '');
  return table
    .split('\n')
    .slice(1)
    .map((line) => line.split('\t'))
    .filter((fields) => fields.length > 7 && fields[7] !== '00000000')
    .map(([, destination = '', , , , , , mask = '']) => ({ first: hex(destination), bits: ones(hex(mask)) }));
}

function overlap(one: Subnet, other: Subnet): boolean {
  const bits = Math.min(one.bits, other.bits);
  return Math.floor(one.first / 2 ** (32 - bits)) === Math.floor(other.first / 2 ** (32 - bits));
}

/** Of the kernel's table: little-endian. */
function hex(word: string): number {
  return Buffer.from(word, 'hex').readUInt32LE();
}
function ones(mask: number): number {
  return mask.toString(2).replaceAll('0', '').length;
}
function number(address: string): number | undefined {
  const parts = address.split('.').map(Number);
  return parts.length === 4 && parts.every((part) => part <= 255) ? parts.reduce((sum, part) => sum * 256 + part, 0) : undefined;
}
function text(address: number): string {
  return [24, 16, 8, 0].map((shift) => Math.floor(address / 2 ** shift) % 256).join('.');
}
