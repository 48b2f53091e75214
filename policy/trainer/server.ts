/**
 * The trainer's HTTP server. Sampling and training share one thread: training calls run one after the other, and sampling
 * steps run between them.
 */
import { timingSafeEqual } from 'node:crypto';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Logger } from 'pino';
import { storageError, UserError } from '../../environment/errors.ts';
import { ArtifactError } from '../../records/artifacts.ts';
import { NumericalError } from '../errors.ts';
import { SampleTimeoutError, SamplerBusyError, SessionLostError, SessionPrefixError } from '../sampler-errors.ts';
import type { SamplerPool } from '../sampler-pool.ts';
import { engineMode, fallbacks } from '../engine/mode.ts';
import { device } from '../tensorflow.ts';
import { tensorflowThreads } from '../tensorflow-environment.ts';
import { TrainerLostError } from './errors.ts';
import type { LocalTrainer } from './local.ts';
import {
  decode,
  encode,
  forwardBackwardSchema,
  forwardSchema,
  loadSchema,
  optimStepSchema,
  parseBody,
  sampleSchema,
  saveSchema,
  statusOf,
} from './protocol.ts';
import type { ErrorCode } from './protocol.ts';

/** A micro-batch of 4096 tokens with four arrays of floats is about 400 kB. */
const MAX_BODY_BYTES = 64 * 1024 * 1024;

export interface TrainerServerOptions {
  readonly trainer: LocalTrainer;
  readonly samplers: SamplerPool;
  readonly logger: Logger;
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  readonly token?: string | undefined;
}
export interface RunningServer {
  readonly port: number;
  /** Takes no new calls and resolves when the current training call is done. */
  close(): Promise<void>;
}

/** @throws UserError when it would listen beyond this machine without a token, or when the port is taken */
export async function startTrainerServer(options: TrainerServerOptions): Promise<RunningServer> {
  if (!['127.0.0.1', '::1', 'localhost'].includes(options.host) && !options.token) {
    throw new UserError(`trainer host '${options.host}' is reachable from other machines: set TERMINAL_RSI_TRAINER_TOKEN`);
  }
  const started = Date.now();
  const server = http.createServer((request, response) => void handle(options, started, request, response));
  // Idle connections stay open: closing them would race with a client's next request.
  server.keepAliveTimeout = 0;
  server.requestTimeout = 0;
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) =>
      reject(new UserError(`trainer cannot listen on ${options.host}:${options.port}: ${error.message}`, { cause: error })),
    );
    server.listen(options.port, options.host, resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    close: async () => {
      server.close();
      await options.trainer.settled();
      server.closeAllConnections();
      options.samplers.close();
    },
  };
}

async function handle(
  options: TrainerServerOptions,
  started: number,
  request: http.IncomingMessage,
  response: http.ServerResponse,
): Promise<void> {
  const begin = performance.now();
  const path = new URL(request.url ?? '/', 'http://trainer').pathname;
  const route = `${request.method} ${path.replace(/^(\/v1\/(models|sessions)\/)[^/]+/, '$1:id')}`;
  try {
    if (!authorized(options.token, request.headers.authorization))
      return send(response, 401, errorBody('unauthorized', 'expected Authorization: Bearer TOKEN'));
    const gone = new AbortController();
    response.on('close', () => {
      if (!response.writableFinished) gone.abort(new Error('the client closed the connection'));
    });
    const id = decodeURIComponent(/^\/v1\/(?:models|sessions)\/([^/]+)/.exec(path)?.[1] ?? '');
    const answer = await dispatch(options, started, route, id, request, gone.signal);
    send(response, 200, answer);
    options.logger.debug({ route, ms: Math.round(performance.now() - begin) }, 'request');
  } catch (error) {
    const { code, message } = describe(error);
    if (code === 'internal') options.logger.error({ route, err: error }, 'request failed');
    else options.logger.warn({ route, code, message: message.slice(0, 300) }, 'request refused');
    if (error instanceof SamplerBusyError) response.setHeader('retry-after', error.retryAfterSeconds);
    send(response, statusOf[code], errorBody(code, message));
  }
}

async function dispatch(
  { trainer, samplers }: TrainerServerOptions,
  started: number,
  route: string,
  id: string,
  request: http.IncomingMessage,
  signal: AbortSignal,
): Promise<unknown> {
  switch (route) {
    case 'GET /health':
      return health(trainer, samplers, started);
    case 'POST /v1/sample': {
      const { continued, ...sample } = parseBody(sampleSchema, 'sample', await body(request));
      return samplers.sample(sample, { signal, continued });
    }
    case 'DELETE /v1/sessions/:id':
      samplers.endSession(id);
      return {};
    case 'POST /v1/models':
      return { handle: await trainer.load(parseBody(loadSchema, 'load', await body(request))) };
    case 'POST /v1/models/:id/forward': {
      const { output, batch } = parseBody(forwardSchema, 'forward', await body(request));
      return { values: await trainer.forward(id, output, batch) };
    }
    case 'POST /v1/models/:id/forward-backward': {
      const { loss, batch } = parseBody(forwardBackwardSchema, 'forwardBackward', await body(request));
      return trainer.forwardBackward(id, loss, batch);
    }
    case 'POST /v1/models/:id/optim-step':
      return trainer.optimStep(id, parseBody(optimStepSchema, 'optimStep', await body(request)));
    case 'POST /v1/models/:id/save':
      await trainer.save(id, parseBody(saveSchema, 'save', await body(request)));
      return {};
    case 'DELETE /v1/models/:id':
      await trainer.release(id);
      return {};
    default:
      throw new NotFound(`no such endpoint: ${route}`);
  }
}

class NotFound extends Error {}

function health(trainer: LocalTrainer, samplers: SamplerPool, started: number): unknown {
  const policies = samplers.statistics();
  const all = Object.values(policies);
  const seconds = all.reduce((sum, one) => sum + one.seconds, 0);
  const sampled = all.reduce((sum, one) => sum + one.sampledTokens, 0);
  return {
    status: 'ok',
    pid: process.pid,
    node: process.version,
    device: device(),
    engine: { mode: engineMode(), fallbacks: fallbacks() },
    threads: tensorflowThreads,
    samplerSlots: samplers.slots,
    upSeconds: (Date.now() - started) / 1000,
    rssBytes: process.memoryUsage.rss(),
    models: trainer.handles(),
    policies,
    tokensPerSecond: seconds > 0 ? sampled / seconds : 0,
  };
}

function describe(error: unknown): { code: ErrorCode; message: string } {
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof SessionLostError) return { code: 'session-lost', message };
  if (error instanceof SessionPrefixError) return { code: 'session-prefix', message };
  if (error instanceof SamplerBusyError) return { code: 'sampler-busy', message };
  if (error instanceof SampleTimeoutError) return { code: 'sample-timeout', message };
  if (error instanceof TrainerLostError) return { code: 'unknown-handle', message };
  if (error instanceof NumericalError) return { code: 'numerical', message };
  if (error instanceof NotFound) return { code: 'not-found', message };
  if (error instanceof UserError || error instanceof ArtifactError) return { code: 'bad-request', message };
  const failing = storageError(error);
  if (failing) return { code: 'storage', message: failing.message };
  return { code: 'internal', message };
}

async function body(request: http.IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_BODY_BYTES) throw new UserError(`the body is larger than ${MAX_BODY_BYTES} bytes`);
    chunks.push(chunk);
  }
  try {
    return decode(Buffer.concat(chunks).toString('utf8'));
  } catch (cause) {
    throw new UserError(`the body is not JSON: ${(cause as Error).message}`, { cause });
  }
}

function authorized(token: string | undefined, header: string | undefined): boolean {
  if (!token) return true;
  const expected = Buffer.from(`Bearer ${token}`);
  const given = Buffer.from(header ?? '');
  return given.length === expected.length && timingSafeEqual(given, expected);
}
function errorBody(code: ErrorCode, message: string): unknown {
  return { error: { code, message } };
}
function send(response: http.ServerResponse, status: number, answer: unknown): void {
  if (response.destroyed || response.headersSent) return;
  const payload = Buffer.from(encode(answer));
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': payload.length }).end(payload);
}
