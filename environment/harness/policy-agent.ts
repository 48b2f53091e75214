/**
 * The trained policy as an agent. Token-in, token-out: token ids and log-probabilities are recorded where they were sampled
 * (token-record.ts), and each request extends the one before.
 */
import type { EpisodeCodec, Sampler } from '../types.ts';
import type { Agent, EpisodeLimits, Reply } from './agent.ts';
import { TokenRecord } from './token-record.ts';
import { tokenConversation } from './token-conversation.ts';

export interface PolicyAgentOptions {
  readonly sampler: Sampler;
  /** SHA-256 of the policy artifact. */
  readonly policy: string;
  readonly codec: EpisodeCodec;
  readonly limits: Pick<EpisodeLimits, 'maxTokensPerTurn' | 'observationTokens'>;
  /** The policy's context in tokens. */
  readonly contextLength: number;
  readonly temperature: number;
  /** Seed of a turn's uniforms (unsigned 32 bit). */
  readonly turnSeed: (turn: number) => number;
  /** Shown to the agent in the prompt (guided re-runs); never part of training examples. */
  readonly runbook?: string;
}

/** Replies throw InfrastructureError (sampler), the signal's reason, or Error when the sampler breaks its contract. */
export function policyAgent(options: PolicyAgentOptions): Agent {
  const { sampler, policy, codec, limits, contextLength, temperature } = options;
  const stops = codec.stopTokens ?? [codec.endOfTurn];
  return {
    name: `policy:${policy}`,
    open({ episodeId, harness }) {
      const record = new TokenRecord();
      const sample = async (turn: number, signal?: AbortSignal): Promise<Reply> => {
        const room = contextLength - record.length;
        const maxTokens = Math.min(limits.maxTokensPerTurn, room);
        const result = await sampler.sample(
          {
            ...{ sessionId: episodeId, policy, tokens: [...record.tokens], seed: options.turnSeed(turn), maxTokens, temperature },
            ...(codec.stopTokens ? { stopTokens: codec.stopTokens } : {}),
          },
          signal,
        );
        const ended = result.stopReason === 'end-of-turn' || result.stopReason === 'stop-token';
        checkSample(result.tokens, { ended, maxTokens, stops, turn });
        record.appendAgent(turn, result.tokens, result.logprobs);
        const full = result.stopReason === 'context' || (result.stopReason === 'max-tokens' && maxTokens === room);
        const text = codec.decode(result.tokens);
        return {
          text,
          ...(codec.action ? { action: codec.action(harness, text) } : {}),
          ...(ended ? {} : { stop: full ? 'context' : 'output-length' }),
        };
      };
      return tokenConversation({
        ...{ record, codec, harness, episodeId, contextLength, sample, observationTokens: limits.observationTokens },
        ...(options.runbook === undefined ? {} : { runbook: options.runbook }),
        close: () => sampler.endSession(episodeId),
      });
    },
  };
}

function checkSample(
  tokens: readonly number[],
  { ended, maxTokens, stops, turn }: { ended: boolean; maxTokens: number; stops: readonly number[]; turn: number },
): void {
  if (tokens.length === 0 || tokens.length > maxTokens)
    throw new Error(`turn ${turn}: the sampler returned ${tokens.length} tokens; expected 1 to ${maxTokens}`);
  const first = tokens.findIndex((token) => stops.includes(token));
  if (first !== (ended ? tokens.length - 1 : -1)) {
    throw new Error(
      `turn ${turn}: end-of-turn is at position ${first} of ${tokens.length} sampled tokens; expected ${ended ? 'it to be the last token' : 'none'}`,
    );
  }
}
