/**
 * Who has a slot of the key-value cache. More episodes than slots are possible: while one waits for its commands, its slot may
 * go to a session that has a request, and it is fed again when it comes back (sampler-session.ts). What was asked first gets a
 * slot first.
 *
 * Invariants:
 *  1. A slot is in exactly one place: free, or one session's.
 *  2. A session without a request is idle (it has a slot) or parked (it has none); one with a request has a slot or waits in
 *     the queue. Nobody takes a slot past those who wait.
 */
import { SessionLostError } from './sampler-errors.ts';
import { Session } from './sampler-session.ts';

export interface SlotOptions {
  readonly slots: number;
  /** Milliseconds after which a session without a request gives its slot to one that waits. */
  readonly idleLimitMs: number;
  /** Tokens of parked sessions that are remembered; beyond it the longest unused are lost. */
  readonly parkedTokens: number;
}

export class Slots {
  readonly #options: SlotOptions;
  readonly #free: number[];
  readonly #sessions = new Map<string, Session>();
  readonly #queue = new Set<Session>();

  constructor(options: SlotOptions) {
    this.#options = options;
    this.#free = Array.from({ length: options.slots }, (_, i) => i);
  }

  get queued(): number {
    return this.#queue.size;
  }
  /** Slots of sessions, idle ones included. */
  get busy(): number {
    return this.#options.slots - this.#free.length;
  }
  get parked(): number {
    return this.#sessions.size - this.busy - this.#queue.size;
  }
  get sessions(): readonly Session[] {
    return [...this.#sessions.values()];
  }
  get(id: string): Session | undefined {
    return this.#sessions.get(id);
  }

  /** The session of this id, which may be new. @throws SessionLostError when it must be `known` and is not */
  session(id: string, known: boolean): Session {
    const session = this.#sessions.get(id);
    if (session === undefined && known) throw new SessionLostError(`session '${id}' is not held by this sampler; start the episode again`);
    return session ?? new Session(id);
  }

  /** The session has a request: it keeps its slot, or waits for one. */
  occupy(session: Session): void {
    this.#sessions.set(session.id, session);
    session.busy = true;
    if (session.slot === undefined) this.#queue.add(session);
  }

  /** The session has no request any more. */
  rest(session: Session): void {
    session.busy = false;
    session.lastUsed = Date.now();
    this.#queue.delete(session);
  }

  /** The session is over. */
  remove(session: Session): void {
    this.#sessions.delete(session.id);
    this.#queue.delete(session);
    this.#release(session);
  }

  /** Gives slots to those who wait, in the order of their arrival, and returns who got one. */
  admit(): Session[] {
    const admitted: Session[] = [];
    for (const session of this.#queue) {
      if (this.#free.length === 0) this.#parkIdle();
      if (this.#free.length === 0) break;
      // The lowest: the network leaves out what lies behind the slots in use.
      const slot = Math.min(...this.#free);
      this.#free.splice(this.#free.indexOf(slot), 1);
      this.#queue.delete(session);
      session.slot = slot;
      admitted.push(session);
    }
    return admitted;
  }

  #release(session: Session): void {
    const slot = session.park();
    if (slot !== undefined) this.#free.push(slot);
  }

  /** Parks the session that has idled longest, if that is beyond the limit. */
  #parkIdle(): void {
    const limit = Date.now() - this.#options.idleLimitMs;
    let oldest: Session | undefined;
    for (const session of this.#sessions.values()) {
      if (session.slot === undefined || session.busy || session.lastUsed > limit) continue;
      if (oldest === undefined || session.lastUsed < oldest.lastUsed) oldest = session;
    }
    if (oldest === undefined) return;
    this.#release(oldest);
    this.#forget();
  }

  /** Keeps the memory of parked sessions within its limit. */
  #forget(): void {
    const parked = this.sessions.filter((session) => session.slot === undefined && !session.busy);
    parked.sort((a, b) => b.lastUsed - a.lastUsed);
    let tokens = 0;
    for (const session of parked) {
      tokens += session.seen.length;
      if (tokens > this.#options.parkedTokens) this.#sessions.delete(session.id);
    }
  }
}
