/**
 * Continuous batching: episodes come and go, each holding one slot of the key-value cache from its first request to its
 * end, and every step computes all slots.
 *
 * Invariants:
 *  1. Shapes are fixed, and what is fed to a slot, in which chunks, depends on its own requests alone. So the same
 *     requests with the same seeds give the same bits whatever the other slots do.
 *  2. A session's cache holds the first `fed` of its `seen` tokens; the last sampled token is fed with the next request.
 *  3. A slot is in exactly one place: in `#free`, or in one session.
 */
import { UserError } from '../environment/errors.ts';
import type { SampleRequest, SampleResult } from '../environment/types.ts';
import { Random } from '../method/seeds.ts';
import { drawToken } from './sampler-draw.ts';
import { SessionLostError, SessionPrefixError } from './sampler-errors.ts';
import { PREFILL_ROWS, PREFILL_TOKENS, SamplerNetwork } from './sampler-network.ts';
import type { SamplerWeights } from './sampler-network.ts';

export interface PolicySamplerOptions {
  readonly slots?: number;
  /** Milliseconds after which a session without a request loses its slot. */
  readonly idleLimitMs?: number;
}
export interface SampleOptions {
  readonly signal?: AbortSignal | undefined;
  /** true: the session must be known; false: it starts anew; undefined: whichever is the case. */
  readonly continued?: boolean | undefined;
}
/** Tokens sampled and fed since the start, and what is going on now. */
export interface SamplerStatistics {
  readonly slots: number;
  readonly busySlots: number;
  readonly queued: number;
  readonly sampledTokens: number;
  readonly fedTokens: number;
  /** Seconds spent computing. */
  readonly seconds: number;
}

interface Session {
  readonly id: string;
  readonly slot: number;
  readonly seen: number[];
  fed: number;
  job: Job | undefined;
  lastUsed: number;
}
interface Job {
  readonly request: SampleRequest;
  readonly random: Random;
  readonly result: { tokens: number[]; logprobs: number[] };
  readonly finish: (result: SampleResult) => void;
  readonly fail: (reason: Error) => void;
}

/** Prompts wait this many decode steps for company before a half-empty prefill is run; changes speed, never results. */
const PREFILL_PATIENCE = 3;
/** Fewer waiting tokens than this go through decode steps instead: a whole prefill would cost more. */
const PREFILL_MINIMUM = 3;

export class PolicySampler {
  readonly #network: SamplerNetwork;
  readonly #endOfTurn: number;
  readonly #idleLimitMs: number;
  readonly #free: number[];
  readonly #sessions = new Map<string, Session>();
  readonly #queue: Job[] = [];
  #running = false;
  #closed = false;
  #sincePrefill = 0;
  #sampledTokens = 0;
  #fedTokens = 0;
  #milliseconds = 0;

  constructor(weights: SamplerWeights, options: PolicySamplerOptions = {}) {
    const slots = options.slots ?? 48;
    this.#network = new SamplerNetwork(weights, slots);
    this.#endOfTurn = weights.config.eos_token_id;
    this.#idleLimitMs = options.idleLimitMs ?? 120_000;
    this.#free = Array.from({ length: slots }, (_, i) => slots - 1 - i);
  }

  /**
   * Samples one turn. Waits while all slots are taken.
   * @throws UserError for a bad request, SessionPrefixError, SessionLostError, or the signal's reason
   */
  sample(request: SampleRequest, options: SampleOptions = {}): Promise<SampleResult> {
    return new Promise((resolve, reject) => {
      this.#check(request);
      options.signal?.throwIfAborted();
      const known = this.#sessions.get(request.sessionId);
      if (known !== undefined && options.continued === false)
        this.#drop(known, new UserError(`session '${request.sessionId}' was started anew`));
      if (known === undefined && options.continued === true) {
        throw new SessionLostError(`session '${request.sessionId}' is not held by this sampler; start the episode again`);
      }
      const onAbort = (): void => this.#abort(job, options.signal?.reason as Error);
      const job: Job = {
        request,
        random: new Random(request.seed),
        result: { tokens: [], logprobs: [] },
        finish: (result) => {
          options.signal?.removeEventListener('abort', onAbort);
          resolve(result);
        },
        fail: (reason) => {
          options.signal?.removeEventListener('abort', onAbort);
          reject(reason);
        },
      };
      this.#attachOrQueue(job);
      options.signal?.addEventListener('abort', onAbort, { once: true });
      this.#wake();
    });
  }

  /** Frees the session's slot; a request in flight fails. Unknown ids are ignored. */
  endSession(sessionId: string): void {
    const session = this.#sessions.get(sessionId);
    if (session !== undefined) this.#drop(session, new SessionLostError(`session '${sessionId}' was ended`));
  }

  statistics(): SamplerStatistics {
    return {
      slots: this.#network.slots,
      busySlots: this.#sessions.size,
      queued: this.#queue.length,
      sampledTokens: this.#sampledTokens,
      fedTokens: this.#fedTokens,
      seconds: this.#milliseconds / 1000,
    };
  }
  /** Fails what is in flight and frees the weights and the cache. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    const reason = new SessionLostError('the sampler of this policy was closed');
    for (const session of [...this.#sessions.values()]) this.#drop(session, reason);
    for (const job of this.#queue.splice(0)) job.fail(reason);
    this.#network.dispose();
  }

  #check(request: SampleRequest): void {
    const { vocab_size } = this.#network.config;
    if (this.#closed) throw new SessionLostError('the sampler of this policy was closed');
    if (request.tokens.length === 0) throw new UserError('sample: tokens is empty, expected at least one token');
    const bad = request.tokens.findIndex((token) => !Number.isInteger(token) || token < 0 || token >= vocab_size);
    if (bad >= 0) throw new UserError(`sample: tokens[${bad}] is ${request.tokens[bad]}, expected an integer in 0..${vocab_size - 1}`);
    if (!(request.temperature > 0)) throw new UserError(`sample: temperature is ${request.temperature}, expected a number above 0`);
    if (!(Number.isInteger(request.maxTokens) && request.maxTokens >= 1))
      throw new UserError(`sample: maxTokens is ${request.maxTokens}, expected an integer above 0`);
  }

  #attachOrQueue(job: Job): void {
    const { sessionId, tokens } = job.request;
    let session = this.#sessions.get(sessionId);
    if (session === undefined) {
      const slot = this.#free.pop() ?? this.#evictIdle();
      if (slot === undefined) {
        this.#queue.push(job);
        return;
      }
      session = { id: sessionId, slot, seen: [], fed: 0, job: undefined, lastUsed: 0 };
      this.#sessions.set(sessionId, session);
    }
    if (session.job !== undefined) throw new UserError(`sample: session '${sessionId}' already has a request in flight`);
    const { seen } = session;
    const differs = seen.findIndex((token, i) => tokens[i] !== token);
    if (differs >= 0) {
      throw new SessionPrefixError(
        `sample: session '${sessionId}' has seen ${seen.length} tokens, and tokens[${differs}] is ${tokens[differs]}, expected ${seen[differs]}`,
      );
    }
    for (let i = seen.length; i < tokens.length; i++) seen.push(tokens[i]!);
    session.lastUsed = Date.now();
    if (seen.length >= this.#network.length) {
      job.finish({ tokens: [], logprobs: [], stopReason: 'context' });
      return;
    }
    session.job = job;
  }

  #abort(job: Job, reason: Error): void {
    const queued = this.#queue.indexOf(job);
    if (queued >= 0) this.#queue.splice(queued, 1);
    const session = this.#sessions.get(job.request.sessionId);
    if (session?.job === job) this.#drop(session, reason);
    else job.fail(reason);
  }

  #drop(session: Session, reason: Error): void {
    this.#sessions.delete(session.id);
    session.job?.fail(reason);
    session.job = undefined;
    this.#free.push(session.slot);
    this.#admit();
  }

  #admit(): void {
    while (this.#queue.length > 0 && this.#free.length > 0 && !this.#closed) {
      const job = this.#queue.shift()!;
      try {
        this.#attachOrQueue(job);
      } catch (error) {
        job.fail(error as Error);
      }
    }
    this.#wake();
  }

  /** The slot of the session that has idled longest beyond the limit, or undefined. */
  #evictIdle(): number | undefined {
    const limit = Date.now() - this.#idleLimitMs;
    let oldest: Session | undefined;
    for (const session of this.#sessions.values()) {
      if (session.job === undefined && session.lastUsed < limit && session.lastUsed < (oldest?.lastUsed ?? Infinity)) oldest = session;
    }
    if (oldest === undefined) return undefined;
    this.#sessions.delete(oldest.id);
    return oldest.slot;
  }

  /** Frees what idled too long; the server calls it on a timer so that queued requests cannot starve behind dead episodes. */
  sweep(): void {
    for (let slot = this.#evictIdle(); slot !== undefined; slot = this.#evictIdle()) this.#free.push(slot);
    this.#admit();
  }

  #wake(): void {
    if (this.#running || this.#closed) return;
    this.#running = true;
    setImmediate(() => this.#loop());
  }

  /** One step, then the event loop's turn: HTTP requests and training calls get in between steps. */
  #loop(): void {
    if (this.#closed) return;
    const active = [...this.#sessions.values()].filter((session) => session.job !== undefined);
    if (active.length === 0) {
      this.#running = false;
      return;
    }
    const start = performance.now();
    try {
      this.#step(active);
    } catch (error) {
      for (const session of active) this.#drop(session, error as Error);
    }
    this.#milliseconds += performance.now() - start;
    setImmediate(() => this.#loop());
  }

  #step(active: readonly Session[]): void {
    const waiting = active.filter((session) => session.seen.length - session.fed > PREFILL_MINIMUM);
    const ready = active.length - waiting.length;
    if (waiting.length >= PREFILL_ROWS || (waiting.length > 0 && (ready === 0 || this.#sincePrefill >= PREFILL_PATIENCE))) {
      this.#prefill(waiting.slice(0, PREFILL_ROWS));
      this.#sincePrefill = 0;
    } else {
      this.#sincePrefill += 1;
    }
    const rows = active.filter((session) => session.seen.length - session.fed <= PREFILL_MINIMUM);
    if (rows.length > 0) this.#decode(rows);
  }

  /** Feeds the next chunk of each session, but never the last token: its logits are needed, and decode gives them. */
  #prefill(sessions: readonly Session[]): void {
    const chunks = sessions.map((session) => {
      const end = Math.min(session.fed + PREFILL_TOKENS, session.seen.length - 1);
      return { slot: session.slot, position: session.fed, tokens: session.seen.slice(session.fed, end) };
    });
    this.#network.prefill(chunks);
    sessions.forEach((session, i) => {
      session.fed += chunks[i]!.tokens.length;
      this.#fedTokens += chunks[i]!.tokens.length;
    });
  }

  #decode(sessions: readonly Session[]): void {
    const logits = this.#network.decode(
      sessions.map((session) => ({ slot: session.slot, position: session.fed, token: session.seen[session.fed]! })),
    );
    sessions.forEach((session, i) => {
      session.fed += 1;
      this.#fedTokens += 1;
      if (session.fed === session.seen.length) this.#extend(session, session.job!, logits[i]!);
    });
  }

  #extend(session: Session, job: Job, logits: Float32Array): void {
    const { token, logprob } = drawToken(logits, job.request.temperature, job.random.next());
    job.result.tokens.push(token);
    job.result.logprobs.push(logprob);
    session.seen.push(token);
    this.#sampledTokens += 1;
    const stopReason =
      token === this.#endOfTurn
        ? 'end-of-turn'
        : job.result.tokens.length >= job.request.maxTokens
          ? 'max-tokens'
          : session.seen.length >= this.#network.length
            ? 'context'
            : undefined;
    if (stopReason === undefined) return;
    session.job = undefined;
    session.lastUsed = Date.now();
    job.finish({ ...job.result, stopReason });
  }
}
