/** A conversation that is one growing sequence of tokens, in the policy's layout (policy/codec.ts). */
import type { EpisodeCodec, HarnessName } from '../types.ts';
import type { Conversation, Reply } from './agent.ts';
import type { TokenRecord } from './token-record.ts';

export interface TokenConversationOptions {
  readonly record: TokenRecord;
  readonly codec: EpisodeCodec;
  readonly harness: HarnessName;
  readonly episodeId: string;
  readonly contextLength: number;
  readonly observationTokens: number;
  readonly runbook?: string;
  /** Gives the next reply and appends its tokens to the record. */
  sample(turn: number, signal?: AbortSignal): Promise<Reply>;
  close(): Promise<void>;
}

/** @throws UserError where the policy does not know the harness */
export function tokenConversation(options: TokenConversationOptions): Conversation {
  const { record, codec, harness, contextLength } = options;
  codec.prompt(harness, ''); // a policy without this harness is refused now, and not when a sandbox has been started
  const observe = (text: string, maxTokens: number): boolean => {
    const observed = codec.observation(text, maxTokens);
    // Without room for the observation and one more token there is no next turn.
    if (record.length + observed.length >= contextLength) return false;
    record.appendContext(observed);
    return true;
  };
  return {
    instruct(text) {
      if (record.length > 0) return observe(text, Infinity);
      record.appendContext(codec.prompt(harness, text, options.runbook));
      return record.length < contextLength;
    },
    async reply(turn, signal) {
      const reply = await options.sample(turn, signal);
      return reply.stop === undefined && record.length > contextLength ? { ...reply, stop: 'context' } : reply;
    },
    observe: (text) => observe(text, options.observationTokens),
    account: () => ({
      agentTokens: record.agentTokens,
      totalTokens: record.length,
      tokens: record.finish(options.episodeId),
    }),
    close: () => options.close(),
  };
}
