/** One request until it is answered: its generator, the tokens drawn so far, its time limit and its abort signal. */
import type { SampleRequest, SampleResult } from '../environment/types.ts';
import { Random } from '../method/seeds.ts';
import { drawToken } from './sampler-draw.ts';
import type { DecodeOutput } from './sampler-draw.ts';
import { SampleTimeoutError } from './sampler-errors.ts';

export class Job {
  readonly request: SampleRequest;
  /** Milliseconds of performance.now(). */
  readonly arrived = performance.now();
  readonly answer: Promise<SampleResult>;
  readonly #random: Random;
  readonly #tokens: number[] = [];
  readonly #logprobs: number[] = [];
  readonly #policyLogprobs: number[] = [];
  #resolve!: (result: SampleResult) => void;
  #reject!: (reason: Error) => void;
  #release: () => void;

  /** `onEnd` is called when the time limit passes or the signal is aborted; it is to call `fail`. */
  constructor(request: SampleRequest, signal: AbortSignal | undefined, onEnd: (reason: Error) => void) {
    this.request = request;
    this.#random = new Random(request.seed);
    this.answer = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    const { sessionId, timeoutMs } = request;
    const onTime = (): void => {
      const text = `session '${sessionId}': ${this.#tokens.length} tokens after ${timeoutMs} ms, the request's time limit`;
      onEnd(new SampleTimeoutError(text));
    };
    const onAbort = (): void => onEnd(signal!.reason as Error);
    const clock = timeoutMs === undefined ? undefined : setTimeout(onTime, timeoutMs);
    signal?.addEventListener('abort', onAbort, { once: true });
    this.#release = () => {
      clearTimeout(clock);
      signal?.removeEventListener('abort', onAbort);
    };
  }

  /** Number of tokens drawn. */
  get drawn(): number {
    return this.#tokens.length;
  }

  /**
   * Draws the next token and returns it. One uniform a token, also where greedy does not look at it.
   * @throws NumericalError when the policy's output is not finite
   */
  draw(output: DecodeOutput): number {
    const { token, logprob, policyLogprob } = drawToken(output, this.request, this.#random.next());
    this.#tokens.push(token);
    this.#logprobs.push(logprob);
    this.#policyLogprobs.push(policyLogprob);
    return token;
  }

  finish(stopReason: SampleResult['stopReason']): void {
    this.#release();
    this.#resolve({ tokens: this.#tokens, logprobs: this.#logprobs, policyLogprobs: this.#policyLogprobs, stopReason });
  }
  fail(reason: Error): void {
    this.#release();
    this.#reject(reason);
  }
}
