/** What an allow-list lets a sandbox reach: host names, `*.suffix`, addresses, CIDR blocks, `*` for all that is public. */
import type { LookupAddress } from 'node:dns';
import { BlockList, isIP } from 'node:net';

export type Resolve = (host: string) => Promise<readonly LookupAddress[]>;

/** What the proxy answers itself: an HTTP status and a sentence. */
export class Refusal extends Error {
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
