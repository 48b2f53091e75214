/** What a sampler has done and how long requests waited, for `GET /health`. */

/** Tokens and requests since the policy was loaded, and what is going on now. */
export interface SamplerStatistics {
  readonly slots: number;
  /** Sessions with a place in the cache, those between two turns included. */
  readonly busySlots: number;
  /** Requests that are computed now. */
  readonly active: number;
  /** Requests that wait for a slot. */
  readonly queued: number;
  /** Sessions that are kept without a place in the cache. */
  readonly parked: number;
  readonly sampledTokens: number;
  /** Tokens of prompts and sampled tokens that went through the network, those fed again after parking included. */
  readonly fedTokens: number;
  readonly requests: Readonly<Record<RequestEnd, number>>;
  /** From a request's arrival to its first token, over the latest requests; undefined before the first. */
  readonly timeToFirstToken: Latency | undefined;
  /** Seconds spent computing. */
  readonly seconds: number;
  /** Sampled tokens per second of computing. */
  readonly tokensPerSecond: number;
}
/** In seconds. */
export interface Latency {
  readonly median: number;
  readonly p95: number;
  readonly max: number;
}
export type RequestEnd = 'answered' | 'refused' | 'timedOut' | 'cancelled' | 'failed';

/** Latencies that are remembered. */
const WINDOW = 512;

export class SamplerMetrics {
  #sampledTokens = 0;
  #fedTokens = 0;
  #milliseconds = 0;
  readonly #requests: Record<RequestEnd, number> = { answered: 0, refused: 0, timedOut: 0, cancelled: 0, failed: 0 };
  /** A ring of milliseconds. */
  readonly #first: number[] = [];
  #next = 0;
  /** Milliseconds of a whole request, smoothed. */
  #request = 0;

  sampled(): void {
    this.#sampledTokens++;
  }
  fed(tokens: number): void {
    this.#fedTokens += tokens;
  }
  computed(milliseconds: number): void {
    this.#milliseconds += milliseconds;
  }
  firstToken(milliseconds: number): void {
    this.#first[this.#next] = milliseconds;
    this.#next = (this.#next + 1) % WINDOW;
  }
  answered(milliseconds: number): void {
    this.ended('answered');
    this.#request += (milliseconds - this.#request) / Math.min(this.#requests.answered, 20);
  }
  ended(end: RequestEnd): void {
    this.#requests[end]++;
  }

  /** Seconds until `waiting` requests before a new one are done, `slots` at a time; 1 to 30. */
  patience(waiting: number, slots: number): number {
    return Math.min(30, Math.max(1, Math.ceil(((waiting / slots) * this.#request) / 1000)));
  }

  snapshot(): Omit<SamplerStatistics, 'slots' | 'busySlots' | 'active' | 'queued' | 'parked'> {
    const seconds = this.#milliseconds / 1000;
    return {
      ...{ sampledTokens: this.#sampledTokens, fedTokens: this.#fedTokens, seconds },
      tokensPerSecond: seconds > 0 ? this.#sampledTokens / seconds : 0,
      requests: { ...this.#requests },
      timeToFirstToken: this.#timeToFirstToken(),
    };
  }

  #timeToFirstToken(): Latency | undefined {
    const sorted = this.#first.toSorted((a, b) => a - b).map((milliseconds) => milliseconds / 1000);
    const at = (share: number): number => sorted[Math.floor(share * (sorted.length - 1))]!;
    return sorted.length === 0 ? undefined : { median: at(0.5), p95: at(0.95), max: at(1) };
  }
}
