/**
 * Continuous batching: requests join and leave between any two steps, each computed in its session's slot of the key-value
 * cache, and every step computes all slots.
 *
 * Invariants:
 *  1. Shapes are fixed, and what is fed to a slot, in which pieces, depends on its own requests alone (sampler-session.ts). So
 *     the same requests with the same seeds give the same bits whatever the other slots do.
 *  2. A session is in exactly one place: with a request in the schedule (and a slot) or in the queue (without one); without a
 *     request idle (a slot) or parked (none).
 *  3. A slot is in exactly one place: free, or one session's. Nobody takes one past those who wait for it.
 */
import { UserError } from '../environment/errors.ts';
import type { SampleRequest, SampleResult } from '../environment/types.ts';
import { Random } from '../method/seeds.ts';
import { stopTokens } from './model-config.ts';
import { drawToken } from './sampler-draw.ts';
import type { DecodeOutput } from './sampler-draw.ts';
import { SampleTimeoutError, SamplerBusyError, SessionLostError } from './sampler-errors.ts';
import { SamplerMetrics } from './sampler-metrics.ts';
import type { RequestEnd, SamplerStatistics } from './sampler-metrics.ts';
import { SamplerNetwork } from './sampler-network.ts';
import type { SamplerWeights } from './sampler-network.ts';
import { checkSampleRequest } from './sampler-request.ts';
import { Schedule } from './sampler-schedule.ts';
import { Session } from './sampler-session.ts';

export interface PolicySamplerOptions {
  readonly slots?: number;
  /** Requests that may wait for a slot; one more is refused. */
  readonly queueLimit?: number;
  /** Milliseconds after which a session without a request gives its slot to one that waits. */
  readonly idleLimitMs?: number;
  /** Tokens of sessions without a slot that are remembered; beyond it the longest unused are lost. */
  readonly parkedTokens?: number;
  /** Milliseconds without a request after which an episode that was not ended counts as dead; its policy may be dropped then. */
  readonly abandonedAfterMs?: number;
}
export interface SampleOptions {
  readonly signal?: AbortSignal | undefined;
  /** true: the session must be known; false: it starts anew; undefined: whichever is the case. */
  readonly continued?: boolean | undefined;
}

/** A request that is not answered yet. */
interface Job {
  readonly request: SampleRequest;
  readonly random: Random;
  readonly arrived: number;
  readonly tokens: number[];
  readonly logprobs: number[];
  readonly policyLogprobs: number[];
  readonly resolve: (result: SampleResult) => void;
  /** Counts the end, and rejects. */
  readonly fail: (reason: Error, end: RequestEnd) => void;
  /** Stops the clock and no longer listens for the abort. */
  readonly release: () => void;
}

export class PolicySampler {
  readonly #network: SamplerNetwork;
  readonly #endOfTurn: readonly number[];
  readonly #queueLimit: number;
  readonly #idleLimitMs: number;
  readonly #parkedTokens: number;
  readonly #abandonedAfterMs: number;
  readonly #free: number[];
  readonly #sessions = new Map<string, Session>();
  readonly #jobs = new Map<Session, Job>();
  readonly #queue = new Set<Session>();
  readonly #schedule: Schedule<Session>;
  readonly #metrics = new SamplerMetrics();
  #running = false;
  #closed = false;

  constructor(weights: SamplerWeights, options: PolicySamplerOptions = {}) {
    const slots = options.slots ?? 48;
    this.#network = new SamplerNetwork(weights, slots);
    this.#schedule = new Schedule(this.#network.prefillRows, this.#network.prefillTokens);
    this.#endOfTurn = stopTokens(weights.config);
    this.#queueLimit = options.queueLimit ?? 1024;
    this.#idleLimitMs = options.idleLimitMs ?? 30_000;
    this.#parkedTokens = options.parkedTokens ?? 4_000_000;
    this.#abandonedAfterMs = options.abandonedAfterMs ?? 300_000;
    this.#free = Array.from({ length: slots }, (_, i) => slots - 1 - i);
  }

  /**
   * Samples one turn. Waits while all slots are taken.
   * @throws UserError for a bad request, SessionPrefixError, SessionLostError, SamplerBusyError when too many wait (the session
   * is as before), SampleTimeoutError or the signal's reason (the session is over), NumericalError when the policy is broken
   */
  async sample(request: SampleRequest, options: SampleOptions = {}): Promise<SampleResult> {
    if (this.#closed) throw new SessionLostError('the sampler of this policy was closed');
    checkSampleRequest(request, this.#network.config.vocab_size);
    options.signal?.throwIfAborted();
    const session = this.#open(request, options.continued);
    return await new Promise<SampleResult>((resolve, reject) => {
      const onAbort = (): void => this.#end(session, options.signal?.reason as Error, 'cancelled');
      const { timeoutMs } = request;
      const onTime = (): void => {
        const text = `session '${session.id}': ${job.tokens.length} tokens after ${timeoutMs} ms, the request's time limit`;
        this.#end(session, new SampleTimeoutError(text), 'timedOut');
      };
      const clock = timeoutMs === undefined ? undefined : setTimeout(onTime, timeoutMs);
      options.signal?.addEventListener('abort', onAbort, { once: true });
      const job: Job = {
        ...{ request, random: new Random(request.seed), arrived: performance.now() },
        ...{ tokens: [], logprobs: [], policyLogprobs: [], resolve },
        fail: (reason, end) => {
          this.#metrics.requests[end]++;
          reject(reason);
        },
        release: () => {
          clearTimeout(clock);
          options.signal?.removeEventListener('abort', onAbort);
        },
      };
      this.#jobs.set(session, job);
      if (session.seen.length >= this.#network.length) this.#finish(session, job, 'context');
      else if (session.slot !== undefined) this.#schedule.add(session);
      else this.#queue.add(session);
      this.sweep();
    });
  }

  /** Ends the session; a request in flight fails. Unknown ids are ignored. */
  endSession(sessionId: string): void {
    const session = this.#sessions.get(sessionId);
    if (session !== undefined) this.#end(session, new SessionLostError(`session '${sessionId}' was ended`), 'cancelled');
  }

  /** Nothing is asked, and the episodes that were not ended count as dead. */
  get unused(): boolean {
    const limit = Date.now() - this.#abandonedAfterMs;
    return this.#jobs.size === 0 && [...this.#sessions.values()].every((session) => session.lastUsed <= limit);
  }

  statistics(): SamplerStatistics {
    const { slots } = this.#network;
    const { sampledTokens, fedTokens, milliseconds, requests } = this.#metrics;
    const busySlots = slots - this.#free.length;
    return {
      ...{ slots, busySlots, active: this.#schedule.size, queued: this.#queue.size },
      parked: this.#sessions.size - busySlots - this.#queue.size,
      ...{ sampledTokens, fedTokens, requests: { ...requests } },
      timeToFirstToken: this.#metrics.timeToFirstToken(),
      seconds: milliseconds / 1000,
    };
  }

  /** Fails what is in flight and frees the weights and the cache. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const session of [...this.#sessions.values()])
      this.#end(session, new SessionLostError('the sampler of this policy was closed'), 'failed');
    this.#network.dispose();
  }

  /** The request's session, with the request's tokens. Throws before anything is changed. */
  #open(request: SampleRequest, continued: boolean | undefined): Session {
    const { sessionId } = request;
    let session = this.#sessions.get(sessionId);
    if (session !== undefined && continued === false) {
      this.#end(session, new UserError(`session '${sessionId}' was started anew`), 'cancelled');
      session = undefined;
    }
    if (session === undefined && continued === true)
      throw new SessionLostError(`session '${sessionId}' is not held by this sampler; start the episode again`);
    if (session !== undefined && this.#jobs.has(session))
      throw new UserError(`sample: session '${sessionId}' already has a request in flight`);
    session ??= new Session(sessionId);
    if (session.slot === undefined && this.#queue.size >= this.#queueLimit) {
      this.#metrics.requests.refused++;
      throw new SamplerBusyError(
        `${this.#queue.size} requests wait for one of ${this.#network.slots} slots, the limit`,
        this.#metrics.patience(this.#queue.size, this.#network.slots),
      );
    }
    session.extend(request.tokens);
    this.#sessions.set(sessionId, session);
    return session;
  }

  /** The session is over, whatever it was doing. */
  #end(session: Session, reason: Error, end: RequestEnd): void {
    if (this.#sessions.get(session.id) !== session) return;
    this.#sessions.delete(session.id);
    const job = this.#detach(session);
    const slot = session.park();
    if (slot !== undefined) this.#free.push(slot);
    job?.fail(reason, end);
    this.sweep();
  }

  /** Takes the session's request from it. */
  #detach(session: Session): Job | undefined {
    const job = this.#jobs.get(session);
    job?.release();
    this.#jobs.delete(session);
    this.#queue.delete(session);
    this.#schedule.remove(session);
    session.lastUsed = Date.now();
    return job;
  }

  #finish(session: Session, job: Job, stopReason: SampleResult['stopReason']): void {
    this.#detach(session);
    this.#metrics.answered(performance.now() - job.arrived);
    const { tokens, logprobs, policyLogprobs } = job;
    job.resolve({ tokens, logprobs, policyLogprobs, stopReason });
  }

  /** Gives slots to those who wait, in the order of their arrival. Also called on a timer, because idle sessions ripen by time. */
  sweep(): void {
    for (const session of this.#queue) {
      if (this.#closed) break;
      const slot = this.#free.pop() ?? this.#parkIdle();
      if (slot === undefined) break;
      this.#queue.delete(session);
      session.slot = slot;
      this.#schedule.add(session);
    }
    if (this.#running || this.#closed || this.#schedule.size === 0) return;
    this.#running = true;
    setImmediate(() => this.#loop());
  }

  /** The slot of the session that has idled longest beyond the limit, or undefined. */
  #parkIdle(): number | undefined {
    const limit = Date.now() - this.#idleLimitMs;
    let oldest: Session | undefined;
    for (const session of this.#sessions.values()) {
      if (session.slot === undefined || this.#jobs.has(session) || session.lastUsed > limit) continue;
      if (oldest === undefined || session.lastUsed < oldest.lastUsed) oldest = session;
    }
    const slot = oldest?.park();
    if (slot !== undefined) this.#forget();
    return slot;
  }

  /** Keeps the memory of parked sessions within its limit. */
  #forget(): void {
    const parked = [...this.#sessions.values()].filter((session) => session.slot === undefined && !this.#jobs.has(session));
    parked.sort((a, b) => b.lastUsed - a.lastUsed);
    let tokens = 0;
    for (const session of parked) {
      tokens += session.seen.length;
      if (tokens > this.#parkedTokens) this.#sessions.delete(session.id);
    }
  }

  /** One step, then the event loop's turn: HTTP requests and training calls get in between steps. */
  #loop(): void {
    this.#running = false;
    if (this.#closed || this.#schedule.size === 0) return;
    const start = performance.now();
    try {
      this.#step();
    } catch (error) {
      for (const session of [...this.#schedule]) this.#end(session, error as Error, 'failed');
    }
    this.#metrics.milliseconds += performance.now() - start;
    this.sweep();
  }

  #step(): void {
    const chunks = this.#schedule.prefill();
    if (chunks.length > 0) {
      this.#network.prefill(
        chunks.map(({ session, feed }) => ({
          slot: session.slot!,
          position: session.fed,
          tokens: session.seen.slice(session.fed, feed.end),
        })),
      );
      for (const { session, feed } of chunks) this.#advance(session, feed.end);
    }
    const rows = this.#schedule.decode();
    if (rows.length === 0) return;
    const outputs = this.#network.decode(
      rows.map(({ session }) => ({
        ...{ slot: session.slot!, position: session.fed, token: session.seen[session.fed]! },
        temperature: this.#jobs.get(session)!.request.temperature || 1,
      })),
    );
    rows.forEach(({ session, feed }, i) => {
      this.#advance(session, feed.end);
      if (session.complete) this.#draw(session, this.#jobs.get(session)!, outputs[i]!);
    });
  }

  #advance(session: Session, end: number): void {
    this.#metrics.fedTokens += end - session.fed;
    session.advance(end);
  }

  #draw(session: Session, job: Job, output: DecodeOutput): void {
    const { request, tokens } = job;
    let draw;
    try {
      draw = drawToken(output, request, job.random.next());
    } catch (error) {
      this.#end(session, error as Error, 'failed');
      return;
    }
    tokens.push(draw.token);
    job.logprobs.push(draw.logprob);
    job.policyLogprobs.push(draw.policyLogprob);
    session.seen.push(draw.token);
    this.#metrics.sampledTokens += 1;
    if (tokens.length === 1) this.#metrics.firstToken(performance.now() - job.arrived);
    if (this.#endOfTurn.includes(draw.token)) this.#finish(session, job, 'end-of-turn');
    else if (request.stopTokens?.includes(draw.token)) this.#finish(session, job, 'stop-token');
    else if (tokens.length >= request.maxTokens) this.#finish(session, job, 'max-tokens');
    else if (session.seen.length >= this.#network.length) this.#finish(session, job, 'context');
  }
}
