/**
 * The worker's own small web server, for people and supervisors: `GET /health`, and on the rollout worker the report folders of
 * the runs, so that the Temporal UI can link to them. Read only, and without a password: see workers/listen-address.ts.
 *
 *   GET /health                    workers/health.ts; 200, or 503 for a worker that should be started again
 *   GET /reports/<runKey>/         report.html of the run
 *   GET /reports/<runKey>/<file>   any file of the run's report folder
 *
 * A report that cannot be served or a port that is taken must not stop training: the server tries again, the worker goes on.
 */
import { createReadStream } from 'node:fs';
import { realpath, stat } from 'node:fs/promises';
import http from 'node:http';
import path from 'node:path';
import type { Health } from './health.ts';
import { httpStatus } from './health.ts';
import { addressText, addressUrl, isLoopback } from './listen-address.ts';
import type { ListenAddress } from './listen-address.ts';
import type { Logger } from './runtime.ts';

export interface StatusServerOptions {
  readonly address: ListenAddress;
  readonly logger: Logger;
  readonly health: () => Promise<Health>;
  /** Folder of the runs (`<data>/runs`), where this worker serves reports. */
  readonly runs?: string;
  readonly retryMs?: number;
}
export interface StatusServer {
  /** Resolves when the port is held for the first time. */
  readonly listening: Promise<void>;
  close(): void;
}

export function startStatusServer({ address, logger, health, runs, retryMs = 2_000 }: StatusServerOptions): StatusServer {
  const server = http.createServer((request, response) => {
    answer({ address, health, runs }, request, response).catch((error: unknown) => {
      logger.warn({ err: error, url: request.url }, 'status request failed');
      if (!response.headersSent) sendText(response, 500, 'internal error: see the log of the worker');
      response.destroy();
    });
  });
  let retry: NodeJS.Timeout | undefined;
  const listen = (): void => void server.listen({ host: address.host, port: address.port });
  const listening = new Promise<void>((resolve) => {
    server.on('listening', () => {
      if (!isLoopback(address))
        logger.warn({ address: addressText(address) }, 'status and reports can be read from other machines, without a password');
      logger.info({ url: addressUrl(address) }, 'status server listens');
      resolve();
    });
  });
  server.on('error', (error) => {
    logger.warn({ err: error, address: addressText(address) }, 'status server cannot listen; trying again');
    retry = setTimeout(listen, retryMs).unref();
  });
  listen();
  return {
    listening,
    close() {
      clearTimeout(retry);
      server.close();
      server.closeAllConnections();
    },
  };
}

type Served = Pick<StatusServerOptions, 'address' | 'health'> & { readonly runs: string | undefined };

async function answer({ address, health, runs }: Served, request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
  // A page from elsewhere must not read reports through a name that it lets point here (DNS rebinding).
  if (isLoopback(address) && !isLocalName(request.headers.host))
    return sendText(response, 403, `host ${request.headers.host ?? '(none)'} is not this machine`);
  if (request.method !== 'GET' && request.method !== 'HEAD') return sendText(response, 405, 'only GET');
  const { pathname } = new URL(request.url ?? '/', 'http://worker');
  if (pathname === '/health') {
    const found = await health();
    return send(response, httpStatus(found.status), 'application/json', `${JSON.stringify(found, null, 2)}\n`);
  }
  const report = /^\/reports\/([^/]+)(?:\/(.*))?$/.exec(pathname);
  if (report && runs !== undefined) return await sendReport(runs, report, pathname, response);
  sendText(response, 404, `nothing at ${pathname}. There is /health${runs === undefined ? '' : ' and /reports/<runKey>/'}`);
}

/** Sends a regular file of the run's report folder; whatever lies elsewhere, also by a link, is not found. */
async function sendReport(runs: string, [, key, rest]: RegExpExecArray, pathname: string, response: http.ServerResponse): Promise<void> {
  const [runKey, name] = [decoded(key), decoded(rest)];
  const missing = (): void => sendText(response, 404, `no such report file: ${pathname}. A report is written when its run ends.`);
  if (runKey === undefined || name === undefined || !/^[\w-]+$/.test(runKey)) return missing();
  const folder = path.join(await realpath(runs).catch(() => runs), runKey, 'report');
  if ((await realpath(folder).catch(() => undefined)) !== folder) return missing();
  if (rest === undefined) {
    response.writeHead(308, { location: `${pathname}/` }).end();
    return;
  }
  const file = await realpath(path.join(folder, name === '' ? 'report.html' : name)).catch(() => undefined);
  if (file === undefined || !file.startsWith(folder + path.sep)) return missing();
  const found = await stat(file);
  if (!found.isFile()) return missing();
  response.writeHead(200, {
    ...HEADERS,
    'content-type': CONTENT_TYPES[path.extname(file)] ?? 'application/octet-stream',
    'content-length': found.size,
  });
  if (response.req.method === 'HEAD') {
    response.end();
    return;
  }
  // A file may grow or shrink under the reader: never more than was announced.
  if (found.size === 0) response.end();
  else
    createReadStream(file, { end: found.size - 1 })
      .on('error', () => response.destroy())
      .pipe(response);
}

const HEADERS = { 'x-content-type-options': 'nosniff', 'cache-control': 'no-cache' };
const CONTENT_TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.json': 'application/json',
  '.jsonl': 'text/plain; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.css': 'text/css; charset=utf-8',
  '.md': 'text/plain; charset=utf-8',
  '.txt': 'text/plain; charset=utf-8',
};

/** undefined for what is not valid percent-encoding. A NUL byte would make the file system throw. */
function decoded(text: string | undefined): string | undefined {
  try {
    const result = decodeURIComponent(text ?? '');
    return result.includes('\0') ? undefined : result;
  } catch {
    return undefined;
  }
}

function isLocalName(host: string | undefined): boolean {
  return host !== undefined && /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?$/.test(host);
}

function sendText(response: http.ServerResponse, status: number, text: string): void {
  send(response, status, 'text/plain; charset=utf-8', `${text}\n`);
}
function send(response: http.ServerResponse, status: number, type: string, text: string): void {
  const body = Buffer.from(text);
  response.writeHead(status, { ...HEADERS, 'content-type': type, 'content-length': body.length });
  response.end(response.req.method === 'HEAD' ? undefined : body);
}
