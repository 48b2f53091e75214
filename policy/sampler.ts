/**
 * Continuous batching: requests join and leave between any two steps, each computed in its session's slot of the key-value
 * cache, and every step computes all slots.
 *
 * Invariants:
 *  1. Shapes are fixed, and what is fed to a slot, in which pieces, depends on its own requests alone (sampler-session.ts). So
 *     the same requests with the same seeds give the same bits whatever the other slots do.
 *  2. A session with a request is either in the schedule, with a slot, or in the queue, without one (sampler-slots.ts).
 *  3. A request that is refused changes nothing; one that fails or is cancelled ends its session.
 */
import { UserError } from '../environment/errors.ts';
import type { SampleRequest, SampleResult } from '../environment/types.ts';
import { stopTokens } from './model-config.ts';
import type { DecodeOutput } from './sampler-draw.ts';
import { SampleTimeoutError, SamplerBusyError, SessionLostError } from './sampler-errors.ts';
import { Job } from './sampler-job.ts';
import { SamplerMetrics } from './sampler-metrics.ts';
import type { RequestEnd, SamplerStatistics } from './sampler-metrics.ts';
import { SamplerNetwork } from './sampler-network.ts';
import type { SamplerWeights } from './sampler-network.ts';
import { checkSampleRequest } from './sampler-request.ts';
import { Schedule } from './sampler-schedule.ts';
import type { Planned } from './sampler-schedule.ts';
import type { Session } from './sampler-session.ts';
import { Slots } from './sampler-slots.ts';
import type { SlotOptions } from './sampler-slots.ts';

export const DEFAULT_SLOTS = 48;

export interface PolicySamplerOptions extends Partial<SlotOptions> {
  /** Requests that may wait for a slot; one more is refused. */
  readonly queueLimit?: number;
  /** Milliseconds without a request after which an episode that was not ended counts as dead; its policy may be dropped then. */
  readonly abandonedAfterMs?: number;
}
export interface SampleOptions {
  readonly signal?: AbortSignal | undefined;
  /** true: the session must be known; false: it starts anew; undefined: whichever is the case. */
  readonly continued?: boolean | undefined;
}

export class PolicySampler {
  readonly #network: SamplerNetwork;
  readonly #endOfTurn: readonly number[];
  readonly #queueLimit: number;
  readonly #abandonedAfterMs: number;
  readonly #slots: Slots;
  readonly #jobs = new Map<Session, Job>();
  readonly #schedule: Schedule<Session>;
  readonly #metrics = new SamplerMetrics();
  #running = false;
  #closed = false;

  constructor(weights: SamplerWeights, options: PolicySamplerOptions = {}) {
    const { slots = DEFAULT_SLOTS, idleLimitMs = 10_000, parkedTokens = 4_000_000 } = options;
    this.#network = new SamplerNetwork(weights, slots);
    this.#schedule = new Schedule(this.#network.prefillRows, this.#network.prefillTokens);
    this.#slots = new Slots({ slots, idleLimitMs, parkedTokens });
    this.#endOfTurn = stopTokens(weights.config);
    this.#queueLimit = options.queueLimit ?? 1024;
    this.#abandonedAfterMs = options.abandonedAfterMs ?? 300_000;
  }

  /**
   * Samples one turn. Waits while all slots are taken.
   * @throws UserError for a bad request, SessionPrefixError, SessionLostError, SamplerBusyError when too many wait (the session
   * is as before), SampleTimeoutError or the signal's reason (the session is over), NumericalError when the policy is broken
   */
  async sample(request: SampleRequest, { signal, continued }: SampleOptions = {}): Promise<SampleResult> {
    if (this.#closed) throw closed();
    checkSampleRequest(request, this.#network.config.vocab_size);
    signal?.throwIfAborted();
    const session = this.#open(request, continued);
    const job = new Job(request, signal, (reason) =>
      this.#end(session, reason, reason instanceof SampleTimeoutError ? 'timedOut' : 'cancelled'),
    );
    this.#jobs.set(session, job);
    this.#slots.occupy(session);
    if (session.seen.length >= this.#network.length) this.#finish(session, job, 'context');
    else if (session.slot !== undefined) this.#schedule.add(session);
    this.sweep();
    return await job.answer;
  }

  /** Ends the session; a request in flight fails. Unknown ids are ignored. */
  endSession(sessionId: string): void {
    const session = this.#slots.get(sessionId);
    if (session !== undefined) this.#end(session, new SessionLostError(`session '${sessionId}' was ended`), 'cancelled');
  }

  /** Nothing is asked, and the episodes that were not ended count as dead. */
  get unused(): boolean {
    const limit = Date.now() - this.#abandonedAfterMs;
    return this.#jobs.size === 0 && this.#slots.sessions.every((session) => session.lastUsed <= limit);
  }

  statistics(): SamplerStatistics {
    const { busy, queued, parked } = this.#slots;
    return { slots: this.#network.slots, busySlots: busy, active: this.#schedule.size, queued, parked, ...this.#metrics.snapshot() };
  }

  /** Gives free slots to those who wait. Also called on a timer, because idle sessions ripen by time. */
  sweep(): void {
    if (this.#closed) return;
    for (const session of this.#slots.admit()) this.#schedule.add(session);
    if (this.#running || this.#schedule.size === 0) return;
    this.#running = true;
    setImmediate(() => this.#loop());
  }

  /** Fails what is in flight and frees the weights and the cache. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const session of this.#slots.sessions) this.#end(session, closed(), 'failed');
    this.#network.dispose();
  }

  /** The request's session, with the request's tokens. */
  #open({ sessionId, tokens }: SampleRequest, continued: boolean | undefined): Session {
    const known = this.#slots.get(sessionId);
    if (known !== undefined && continued === false) this.#end(known, new UserError(`session '${sessionId}' was started anew`), 'cancelled');
    const session = this.#slots.session(sessionId, continued === true);
    if (session.busy) throw new UserError(`sample: session '${sessionId}' already has a request in flight`);
    const { queued } = this.#slots;
    if (session.slot === undefined && queued >= this.#queueLimit) {
      this.#metrics.ended('refused');
      const { slots } = this.#network;
      throw new SamplerBusyError(`${queued} requests wait for one of ${slots} slots, the limit`, this.#metrics.patience(queued, slots));
    }
    session.extend(tokens);
    return session;
  }

  /** The session is over, whatever it was doing. */
  #end(session: Session, reason: Error, end: RequestEnd): void {
    const job = this.#detach(session);
    this.#slots.remove(session);
    if (job !== undefined) this.#metrics.ended(end);
    job?.fail(reason);
    this.sweep();
  }

  /** Takes the session's request from it. */
  #detach(session: Session): Job | undefined {
    const job = this.#jobs.get(session);
    this.#jobs.delete(session);
    this.#schedule.remove(session);
    this.#slots.rest(session);
    return job;
  }

  #finish(session: Session, job: Job, stopReason: SampleResult['stopReason']): void {
    this.#detach(session);
    this.#metrics.answered(performance.now() - job.arrived);
    job.finish(stopReason);
  }

  /** One step, then the event loop's turn: HTTP requests and training calls get in between steps. */
  #loop(): void {
    this.#running = false;
    if (this.#closed) return;
    const start = performance.now();
    try {
      this.#prefill(this.#schedule.prefill());
      this.#decode(this.#schedule.decode());
    } catch (error) {
      for (const session of [...this.#schedule]) this.#end(session, error as Error, 'failed');
    }
    this.#metrics.computed(performance.now() - start);
    this.sweep();
  }

  #prefill(chunks: readonly Planned<Session>[]): void {
    if (chunks.length === 0) return;
    this.#network.prefill(
      chunks.map(({ session: { slot, fed, seen }, feed }) => ({ slot: slot!, position: fed, tokens: seen.slice(fed, feed.end) })),
    );
    for (const { session, feed } of chunks) this.#advance(session, feed.end);
  }

  #decode(rows: readonly Planned<Session>[]): void {
    if (rows.length === 0) return;
    const outputs = this.#network.decode(
      rows.map(({ session }) => ({
        ...{ slot: session.slot!, position: session.fed, token: session.seen[session.fed]! },
        // Greedy needs the weights in the right order only.
        temperature: this.#jobs.get(session)!.request.temperature || 1,
      })),
    );
    rows.forEach(({ session, feed }, i) => {
      this.#advance(session, feed.end);
      if (session.complete) this.#draw(session, this.#jobs.get(session)!, outputs[i]!);
    });
  }

  #advance(session: Session, end: number): void {
    this.#metrics.fed(end - session.fed);
    session.advance(end);
  }

  #draw(session: Session, job: Job, output: DecodeOutput): void {
    let token;
    try {
      token = job.draw(output);
    } catch (error) {
      // One row's broken numbers are no reason to fail the others.
      this.#end(session, error as Error, 'failed');
      return;
    }
    session.seen.push(token);
    this.#metrics.sampled();
    if (job.drawn === 1) this.#metrics.firstToken(performance.now() - job.arrived);
    if (this.#endOfTurn.includes(token)) this.#finish(session, job, 'end-of-turn');
    else if (job.request.stopTokens?.includes(token)) this.#finish(session, job, 'stop-token');
    else if (job.drawn >= job.request.maxTokens) this.#finish(session, job, 'max-tokens');
    else if (session.seen.length >= this.#network.length) this.#finish(session, job, 'context');
  }
}

function closed(): SessionLostError {
  return new SessionLostError('the sampler of this policy was closed');
}
