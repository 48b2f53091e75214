/**
 * One episode at the sampler: the tokens it has seen, how many of them its slot's cache holds, and what is fed next.
 *
 * Invariants:
 *  1. The cache holds the first `fed` of the `seen` tokens. While nothing is asked, the last one is not fed: its output is
 *     what the next token is drawn from.
 *  2. What is fed together is decided by the session's own requests alone, never by when it gets its turn: the bits of a
 *     cache depend on it.
 *  3. So a session that lost its slot can be fed again from the beginning, in the same pieces, and gives the same bits as if
 *     it had kept it. A sampled token is fed alone, because it was.
 */
import { SessionPrefixError } from './sampler-errors.ts';

/** The next tokens to feed: [fed, end), as one chunk of a prefill or as a single row of a decode step. */
export interface Feed {
  readonly kind: 'prefill' | 'decode';
  readonly end: number;
}

/** A request's stretch of `seen`: from `start`, the first token that was not fed before it, to `end`, where sampling began. */
interface Prompt {
  readonly start: number;
  readonly end: number;
}

/** Fewer waiting tokens than this go through decode steps instead: a whole prefill would cost more. */
const PREFILL_MINIMUM = 3;

export class Session {
  readonly id: string;
  readonly seen: number[] = [];
  /** undefined: not in the cache. */
  slot: number | undefined;
  fed = 0;
  /** A request is in flight. */
  busy = false;
  /** Milliseconds of Date.now() at the end of the last request. */
  lastUsed = 0;
  readonly #prompts: Prompt[] = [];
  /** The prompt that `fed` lies in or behind. */
  #current = 0;

  constructor(id: string) {
    this.id = id;
  }

  /**
   * Takes over a request's tokens.
   * @throws SessionPrefixError when they do not begin with what was seen; the session is as before then
   */
  extend(tokens: readonly number[]): void {
    const { seen } = this;
    const differs = seen.findIndex((token, i) => tokens[i] !== token);
    if (differs >= 0) {
      throw new SessionPrefixError(
        `sample: session '${this.id}' has seen ${seen.length} tokens, and tokens[${differs}] is ${tokens[differs]}, expected ${seen[differs]}`,
      );
    }
    this.#prompts.push({ start: Math.max(0, seen.length - 1), end: tokens.length });
    for (let i = seen.length; i < tokens.length; i++) seen.push(tokens[i]!);
    this.advance(this.fed);
  }

  /** What is fed next, in chunks of at most `chunk` tokens. Never the last token of a prompt in a prefill: its output is needed. */
  next(chunk: number): Feed {
    const prompt = this.#prompts[this.#current]!;
    const waiting = prompt.end - this.fed;
    if (waiting > PREFILL_MINIMUM) return { kind: 'prefill', end: Math.min(this.fed + chunk, prompt.end - 1) };
    return { kind: 'decode', end: this.fed + 1 };
  }

  /** `end` of the feed that was done. */
  advance(end: number): void {
    this.fed = end;
    while (this.#current + 1 < this.#prompts.length && this.#prompts[this.#current + 1]!.start <= end) this.#current++;
  }

  /** The next token can be drawn from the output of the last feed. */
  get complete(): boolean {
    return this.fed === this.seen.length;
  }

  /** Gives the slot back; the next request feeds everything again. */
  park(): number | undefined {
    const { slot } = this;
    this.slot = undefined;
    this.fed = 0;
    this.#current = 0;
    return slot;
  }
}
