/**
 * What one step computes: at most one prefill, and one decode step of every session that has a token to feed.
 *
 * Prefills go round: the sessions that have waited longest since their last chunk come first, and among those the request
 * that came first. So a prompt of n chunks is done after at most n·⌈waiting / rows⌉ prefills, however long or short the
 * others are and however many come after it. Decode steps wait for one prefill at most.
 */
import type { Feed } from './sampler-session.ts';

export interface Schedulable {
  next(chunk: number): Feed;
}
export interface Planned<T> {
  readonly session: T;
  readonly feed: Feed;
}

/** Prompts wait this many decode steps for company before a half-empty prefill is run; changes speed, never results. */
const PREFILL_PATIENCE = 3;

export class Schedule<T extends Schedulable> {
  readonly #rows: number;
  readonly #chunk: number;
  #sincePrefill = 0;
  /** Those with a request, whoever was served last at the end. */
  readonly #turn = new Set<T>();

  /** @param rows chunks of one prefill, of `chunk` tokens at most */
  constructor(rows: number, chunk: number) {
    this.#rows = rows;
    this.#chunk = chunk;
  }

  get size(): number {
    return this.#turn.size;
  }
  /** From now on the session takes part. */
  add(session: T): void {
    this.#turn.add(session);
  }
  remove(session: T): void {
    this.#turn.delete(session);
  }
  [Symbol.iterator](): Iterator<T> {
    return this.#turn[Symbol.iterator]();
  }

  /** The chunks of this step's prefill, of different sessions; none when it is better to wait for more. Call once a step. */
  prefill(): readonly Planned<T>[] {
    const waiting: Planned<T>[] = [];
    let ready = 0;
    for (const session of this.#turn) {
      const feed = session.next(this.#chunk);
      if (feed.kind === 'decode') ready++;
      else if (waiting.length < this.#rows) waiting.push({ session, feed });
    }
    const due = waiting.length === this.#rows || (waiting.length > 0 && (ready === 0 || this.#sincePrefill >= PREFILL_PATIENCE));
    this.#sincePrefill = due ? 0 : this.#sincePrefill + 1;
    if (!due) return [];
    for (const { session } of waiting) {
      this.#turn.delete(session);
      this.#turn.add(session);
    }
    return waiting;
  }

  /** The rows of this step's decode, which may follow a prefill of the same sessions. */
  decode(): readonly Planned<T>[] {
    const rows: Planned<T>[] = [];
    for (const session of this.#turn) {
      const feed = session.next(this.#chunk);
      if (feed.kind === 'decode') rows.push({ session, feed });
    }
    return rows;
  }
}
