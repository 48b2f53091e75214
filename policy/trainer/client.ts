/**
 * How workers talk to the trainer process: `HttpTrainer` for stage loops, `HttpSampler` for rollouts. What failed is told
 * by type: TrainerLostError and SessionLostError are worth a retry, UserError and NumericalError are not.
 */
import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { InfrastructureError, UserError } from '../../environment/errors.ts';
import type { SampleRequest, SampleResult, Sampler } from '../../environment/types.ts';
import { NumericalError } from '../errors.ts';
import { SampleTimeoutError, SamplerBusyError, SessionLostError, SessionPrefixError } from '../sampler-errors.ts';
import type { AdamSettings, LossSpec, LossSums, ModelRole, SequenceBatch, TrainerClient } from '../types.ts';
import { TrainerLostError } from './errors.ts';
import { decode, encode } from './protocol.ts';

/** How long a session's first request waits for a trainer that is being restarted. */
const RESTART_PATIENCE_MS = 20_000;
/** Where an overloaded server, or a proxy before it, does not say when to come again. */
const RETRY_AFTER_SECONDS = 1;
/** A sampler that answers nobody for so long hangs. One request alone may wait longer: behind other episodes, or for a slot. */
const SILENCE_MS = 600_000;

interface Exchange {
  readonly status: number;
  readonly text: string;
  readonly retryAfter: string | undefined;
}

class Connection {
  readonly #base: URL;
  readonly #agent = new http.Agent({ keepAlive: true, maxSockets: 512 });
  readonly #token = process.env['TERMINAL_RSI_TRAINER_TOKEN'];

  constructor(baseUrl: string) {
    this.#base = new URL(baseUrl);
    if (this.#base.protocol !== 'http:') throw new UserError(`trainer address '${baseUrl}': expected http://host:port`);
  }

  /** @throws the typed error that the answer names, TrainerLostError when there is no answer, or the signal's reason */
  async call(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<unknown> {
    signal?.throwIfAborted();
    const { status, text, retryAfter } = await this.#exchange(method, path, body, signal);
    // A proxy's answer has no body of ours.
    if (status === 429 || status === 503)
      throw new SamplerBusyError(`${method} ${path}: ${status}, ${text.slice(0, 300)}`, retryAfterSeconds(retryAfter));
    const answer = decodeAnswer(text, path);
    if (status < 300) return answer;
    const { code, message } = (answer as { error?: { code?: string; message?: string } }).error ?? {};
    const what = message ?? `trainer answered ${status} to ${method} ${path}`;
    switch (code) {
      case 'session-lost':
        throw new SessionLostError(what);
      case 'session-prefix':
        throw new SessionPrefixError(what);
      case 'sample-timeout':
        throw new SampleTimeoutError(what);
      case 'numerical':
        throw new NumericalError(what);
      case 'unknown-handle':
        throw new TrainerLostError(what);
      case 'storage':
        throw new InfrastructureError(what);
      default:
        throw status >= 500 ? new TrainerLostError(what) : new UserError(what);
    }
  }

  #exchange(method: string, path: string, body: unknown, signal: AbortSignal | undefined): Promise<Exchange> {
    return new Promise((resolve, reject) => {
      const payload = body === undefined ? undefined : Buffer.from(encode(body));
      const lost = (cause: Error): void => {
        if (signal?.aborted) reject(signal.reason as Error);
        else reject(new TrainerLostError(`trainer at ${this.#base.origin}: ${method} ${path} got no answer (${cause.message})`, { cause }));
      };
      const request = http.request(
        new URL(path, this.#base),
        {
          method,
          agent: this.#agent,
          ...(signal && { signal }),
          headers: {
            ...(payload && { 'content-type': 'application/json', 'content-length': payload.length }),
            ...(this.#token && { authorization: `Bearer ${this.#token}` }),
          },
        },
        (response) => {
          const chunks: Buffer[] = [];
          response.on('data', (chunk: Buffer) => chunks.push(chunk));
          response.on('error', lost);
          response.on('end', () =>
            resolve({
              status: response.statusCode ?? 0,
              text: Buffer.concat(chunks).toString('utf8'),
              retryAfter: response.headers['retry-after'],
            }),
          );
        },
      );
      request.on('error', lost);
      request.end(payload);
    });
  }
}

/** Seconds, or the HTTP date of RFC 9110; at least 0.1 and at most a minute. */
function retryAfterSeconds(header: string | undefined): number {
  if (header === undefined) return RETRY_AFTER_SECONDS;
  const seconds = /^\d+$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
  return Number.isNaN(seconds) ? RETRY_AFTER_SECONDS : Math.min(60, Math.max(0.1, seconds));
}

function decodeAnswer(text: string, path: string): unknown {
  try {
    return decode(text);
  } catch (cause) {
    throw new InfrastructureError(`trainer's answer to ${path} is not JSON: '${text.slice(0, 100)}'`, { cause });
  }
}

/** Training over HTTP. */
export class HttpTrainer implements TrainerClient {
  readonly #connection: Connection;
  constructor(baseUrl: string) {
    this.#connection = new Connection(baseUrl);
  }
  async load(request: { role: ModelRole; directory: string; optimizer?: string }): Promise<string> {
    return ((await this.#connection.call('POST', '/v1/models', request)) as { handle: string }).handle;
  }
  async forward(handle: string, output: 'logprobs' | 'values', batch: SequenceBatch): Promise<number[]> {
    return ((await this.#connection.call('POST', `/v1/models/${handle}/forward`, { output, batch })) as { values: number[] }).values;
  }
  async forwardBackward(handle: string, loss: LossSpec, batch: SequenceBatch): Promise<LossSums> {
    return (await this.#connection.call('POST', `/v1/models/${handle}/forward-backward`, { loss, batch })) as LossSums;
  }
  async optimStep(handle: string, adam: AdamSettings): Promise<{ gradientNorm: number; step: number }> {
    return (await this.#connection.call('POST', `/v1/models/${handle}/optim-step`, adam)) as { gradientNorm: number; step: number };
  }
  async save(handle: string, request: { directory: string; optimizer?: string }): Promise<void> {
    await this.#connection.call('POST', `/v1/models/${handle}/save`, request);
  }
  async release(handle: string): Promise<void> {
    await this.#connection.call('DELETE', `/v1/models/${handle}`);
  }
}

/** Sampling over HTTP. Remembers which sessions were answered before, so that a restarted trainer is noticed. */
export class HttpSampler implements Sampler {
  readonly #connection: Connection;
  readonly #answered = new Set<string>();
  readonly #silenceMs: number;
  #lastAnswer = 0;
  constructor(baseUrl: string, { silenceMs = SILENCE_MS }: { readonly silenceMs?: number } = {}) {
    this.#connection = new Connection(baseUrl);
    this.#silenceMs = silenceMs;
  }

  /**
   * Comes again where the sampler is busy, as late as it says.
   * @throws what the sampler throws; InfrastructureError when it answers nobody any more (an episode's own clock does not run while it waits)
   */
  async sample(request: SampleRequest, outer?: AbortSignal): Promise<SampleResult> {
    const silent = new AbortController();
    const started = performance.now();
    const watch = setInterval(() => {
      if (performance.now() - Math.max(started, this.#lastAnswer) < this.#silenceMs) return;
      silent.abort(new InfrastructureError(`the sampler has answered no request for ${this.#silenceMs / 1000} s`));
    }, this.#silenceMs / 100);
    try {
      return await this.#sample(request, outer ? AbortSignal.any([outer, silent.signal]) : silent.signal);
    } finally {
      clearInterval(watch);
    }
  }

  async #sample(request: SampleRequest, signal: AbortSignal): Promise<SampleResult> {
    const continued = this.#answered.has(request.sessionId);
    const started = Date.now();
    let { timeoutMs } = request;
    for (;;) {
      try {
        const body = { ...request, timeoutMs, continued };
        const result = (await this.#connection.call('POST', '/v1/sample', body, signal)) as SampleResult;
        this.#answered.add(request.sessionId);
        this.#lastAnswer = performance.now();
        return result;
      } catch (error) {
        if (continued && error instanceof TrainerLostError) {
          this.#answered.delete(request.sessionId);
          throw new SessionLostError(`session '${request.sessionId}': ${error.message}`, { cause: error });
        }
        if (error instanceof SessionLostError || error instanceof SampleTimeoutError) this.#answered.delete(request.sessionId);
        if (error instanceof SamplerBusyError) {
          await pause(error.retryAfterSeconds * 1000, signal);
          timeoutMs = timeLeft(request, Date.now() - started);
          continue;
        }
        if (!refused(error) || Date.now() > started + RESTART_PATIENCE_MS) throw error;
        await pause(250, signal);
      }
    }
  }

  async endSession(sessionId: string): Promise<void> {
    this.#answered.delete(sessionId);
    // A trainer that is gone has no session to end, and one that idles too long is evicted.
    await this.#connection.call('DELETE', `/v1/sessions/${encodeURIComponent(sessionId)}`).catch(() => undefined);
  }
}

/** Of the request's time limit, which counts all tries together. */
function timeLeft({ sessionId, timeoutMs }: SampleRequest, elapsedMs: number): number | undefined {
  if (timeoutMs === undefined) return undefined;
  if (elapsedMs >= timeoutMs) throw new SampleTimeoutError(`session '${sessionId}': refused for ${timeoutMs} ms, the request's time limit`);
  return timeoutMs - elapsedMs;
}

/** @throws the signal's reason, which node's own timer would hide in an AbortError */
async function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  await sleep(milliseconds, undefined, { signal }).catch(() => signal.throwIfAborted());
}

function refused(error: unknown): boolean {
  return error instanceof TrainerLostError && (error.cause as NodeJS.ErrnoException | undefined)?.code === 'ECONNREFUSED';
}
