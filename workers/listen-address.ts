/**
 * Where a worker listens for people and for Prometheus. Off unless asked for: nothing here has a password, so an address that
 * other machines can reach has to be named by whoever wants it.
 */
import { UserError } from '../environment/errors.ts';

export interface ListenAddress {
  readonly host: string;
  /** 1 to 65535: fixed, so that links stay valid when the worker starts again. */
  readonly port: number;
}

/** The status server: TERMINAL_RSI_STATUS_ADDRESS. */
export const statusAddress = (): ListenAddress | undefined => listenAddress('TERMINAL_RSI_STATUS_ADDRESS');
/** The Prometheus endpoint: TERMINAL_RSI_METRICS_ADDRESS. */
export const metricsAddress = (): ListenAddress | undefined => listenAddress('TERMINAL_RSI_METRICS_ADDRESS');

/**
 * Reads `host:port`, or a port alone, which means this machine only.
 * @returns undefined when the variable is unset or empty. @throws UserError when it is anything else
 */
function listenAddress(variable: string): ListenAddress | undefined {
  const text = process.env[variable];
  if (text === undefined || text === '') return undefined;
  const match = /^(?:(\[[0-9a-fA-F:]+\]|[^:[\]/\s]*):)?(\d{1,5})$/.exec(text);
  const port = Number(match?.[2]);
  if (!match || port < 1 || port > 65_535)
    throw new UserError(`${variable}: got ${JSON.stringify(text)}, expected a port or host:port such as 127.0.0.1:7310`);
  return { host: match[1]?.replace(/^\[|\]$/g, '') || '127.0.0.1', port };
}

/** `127.0.0.1:7310`, `[::1]:7310` */
export function addressText({ host, port }: ListenAddress): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/** The address as a person on this machine types it into a browser. */
export function addressUrl({ host, port }: ListenAddress): string {
  const everywhere = host === '0.0.0.0' || host === '::';
  return `http://${addressText({ host: everywhere ? 'localhost' : host, port })}`;
}

export function isLoopback({ host }: ListenAddress): boolean {
  return host === 'localhost' || host === '::1' || host.startsWith('127.');
}
