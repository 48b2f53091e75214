/** What `network_mode`, `allowed_hosts` and the deprecated `allow_internet` of task.toml mean, and which hosts may stand in an allowlist. */
import { isIP, isIPv4, isIPv6 } from 'node:net';
import { z } from 'zod';
import type { NetworkPolicy } from '../types.ts';

const label = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
const expected = 'expected a host name, *.suffix, an IP address or a CIDR block, without scheme, port and path';

/**
 * An entry of `allowed_hosts` in the form that is compared: small letters, no final dot, IPv6 compressed.
 * @throws Error that says what was expected
 */
export function normalizeHost(entry: string): string {
  const host = entry.trim().toLowerCase().replace(/\.+$/, '');
  if (host.includes('/')) return normalizeBlock(host);
  if (isIPv6(host) && !host.includes('%')) return compressed(host);
  const name = host.startsWith('*.') ? host.slice(2) : host;
  if (host.startsWith('*.') && isIP(name) !== 0) throw new Error(`${expected}; *. stands before a host name only`);
  if (!name.split('.').every((part) => label.test(part))) throw new Error(expected);
  return host;
}

function normalizeBlock(block: string): string {
  const [, address = '', length = ''] = /^([^/%]+)\/(\d{1,3})$/.exec(block) ?? [];
  const size = isIPv4(address) ? 32 : isIPv6(address) ? 128 : 0;
  const prefix = Number(length);
  if (size === 0 || prefix > size) throw new Error(expected);
  if ((addressBits(address) & ((1n << BigInt(size - prefix)) - 1n)) !== 0n)
    throw new Error(`${expected}; the address has bits behind the prefix of ${prefix}`);
  return `${size === 32 ? address : compressed(address)}/${prefix}`;
}

/** The shortest form, as RFC 5952 says. */
function compressed(address: string): string {
  return new URL(`http://[${address}]`).hostname.slice(1, -1);
}

function addressBits(address: string): bigint {
  if (isIPv4(address)) return address.split('.').reduce((bits, part) => (bits << 8n) | BigInt(part), 0n);
  const [head = '', tail] = compressed(address).split('::');
  const groups = (text: string | undefined): string[] => (text === undefined || text === '' ? [] : text.split(':'));
  const [before, after] = [groups(head), groups(tail)];
  const zeros = Array<string>(8 - before.length - after.length).fill('0');
  return [...before, ...zeros, ...after].reduce((bits, group) => (bits << 16n) | BigInt(`0x${group}`), 0n);
}

/** `network_mode` and `allowed_hosts` as they stand in `[environment]`, `[agent]` and `[verifier]`. */
export const networkShape = {
  network_mode: z.enum(['public', 'no-network', 'allowlist']).optional(),
  allowed_hosts: z
    .array(
      z.string().transform((entry, context) => {
        try {
          return normalizeHost(entry);
        } catch (error) {
          context.addIssue((error as Error).message);
          return z.NEVER;
        }
      }),
    )
    .optional(),
};
export interface NetworkToml {
  readonly network_mode?: 'public' | 'no-network' | 'allowlist' | undefined;
  readonly allowed_hosts?: string[] | undefined;
  readonly allow_internet?: boolean | undefined;
}

const onlyWithAllowlist = 'expected only with network_mode = "allowlist"';
/** For a phase, even an empty list without a mode is an error, as in Harbor; for an environment only a list that says something. */
export function checkPhaseNetwork({ network_mode: mode, allowed_hosts: hosts }: NetworkToml, context: z.RefinementCtx): void {
  if (hosts !== undefined && (mode === undefined || (mode !== 'allowlist' && hosts.length > 0)))
    context.addIssue({ code: 'custom', path: ['allowed_hosts'], message: onlyWithAllowlist });
}
export function checkEnvironmentNetwork({ network_mode: mode, allowed_hosts: hosts }: NetworkToml, context: z.RefinementCtx): void {
  if (mode !== 'allowlist' && hosts !== undefined && hosts.length > 0)
    context.addIssue({ code: 'custom', path: ['allowed_hosts'], message: onlyWithAllowlist });
}

/** The policy that the table names; undefined where it names none. */
export function networkPolicy({
  network_mode: mode,
  allowed_hosts: hosts,
  allow_internet: internet,
}: NetworkToml): NetworkPolicy | undefined {
  switch (mode) {
    case 'allowlist':
      return { mode, hosts: hosts ?? [] };
    case 'public':
      return { mode };
    case 'no-network':
      return { mode: 'none' };
    case undefined:
      return internet === undefined || hosts !== undefined ? undefined : { mode: internet ? 'public' : 'none' };
  }
}
