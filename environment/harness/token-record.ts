/**
 * The token record of one episode: a single sequence that only grows. Token ids and log-probabilities are taken over where
 * they were sampled; nothing is ever tokenized again for training, because a text that is tokenized again need not give the same tokens.
 */
import type { EpisodeTokens } from '../types.ts';

export class TokenRecord {
  readonly #tokens: number[] = [];
  readonly #turnIds: number[] = [];
  readonly #logprobs: number[] = [];
  #agentTokens = 0;

  get tokens(): readonly number[] {
    return this.#tokens;
  }

  get length(): number {
    return this.#tokens.length;
  }

  get agentTokens(): number {
    return this.#agentTokens;
  }

  /** Prompt or observation tokens: read by the agent, never trained on. */
  appendContext(tokens: readonly number[]): void {
    for (const token of tokens) this.#append(token, -1, 0);
  }

  /** @throws Error when the arrays' lengths differ or a log-probability is not one */
  appendAgent(turn: number, tokens: readonly number[], logprobs: readonly number[]): void {
    if (tokens.length !== logprobs.length)
      throw new Error(`turn ${turn}: ${tokens.length} sampled tokens but ${logprobs.length} log-probabilities; expected equal lengths`);
    tokens.forEach((token, index) => {
      const logprob = logprobs[index] ?? Number.NaN;
      // Rounding in the sampler may lift log 1 a little above 0.
      if (!(logprob <= 1e-4)) throw new Error(`turn ${turn}: log-probability ${logprob} of token ${index}; expected a number <= 0`);
      this.#append(token, turn, logprob);
    });
    this.#agentTokens += tokens.length;
  }

  finish(episodeId: string): EpisodeTokens {
    return { episodeId, tokens: [...this.#tokens], turnIds: [...this.#turnIds], logprobs: [...this.#logprobs] };
  }

  #append(token: number, turn: number, logprob: number): void {
    if (!Number.isInteger(token) || token < 0)
      throw new Error(`token ${token} at position ${this.#tokens.length}; expected an integer >= 0`);
    this.#tokens.push(token);
    this.#turnIds.push(turn);
    this.#logprobs.push(logprob);
  }
}
