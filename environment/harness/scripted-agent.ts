/**
 * Agents whose replies are known beforehand: `nop` (says at once that it is done) and `replay` (of a list of commands or of a stored
 * trajectory, replay.ts). With a codec their tokens are recorded as if the policy had written them, with log-probabilities 0.
 */
import type { EpisodeCodec, HarnessName } from '../types.ts';
import type { Agent, Conversation, EpisodeLimits } from './agent.ts';
import { completeReply } from './terminus-protocol.ts';
import { tokenConversation } from './token-conversation.ts';
import { TokenRecord } from './token-record.ts';

export interface ScriptedAgentOptions {
  readonly name: 'oracle' | 'nop' | 'replay';
  /** One after another; after the last one the agent says that it is done. */
  readonly replies: readonly string[];
  /** Without one no tokens are recorded and no context limit applies. */
  readonly codec?: EpisodeCodec;
  readonly limits?: Pick<EpisodeLimits, 'observationTokens'>;
  readonly contextLength?: number;
  readonly runbook?: string;
}

export function scriptedAgent(options: ScriptedAgentOptions): Agent {
  const { name, replies, codec, limits, contextLength = Infinity } = options;
  return {
    name,
    open({ episodeId, harness }) {
      const text = (turn: number): string => replies[turn] ?? (harness === 'terminus' ? completeReply : 'exit');
      if (!codec) return wordless(text);
      const record = new TokenRecord();
      return tokenConversation({
        ...{ record, codec, harness, episodeId, contextLength, observationTokens: limits?.observationTokens ?? Infinity },
        ...(options.runbook === undefined ? {} : { runbook: options.runbook }),
        sample: (turn) => {
          const tokens = codec.reply(harness, text(turn));
          const logprobs = tokens.map(() => 0);
          record.appendAgent(turn, tokens, logprobs);
          return Promise.resolve({ text: text(turn) });
        },
        close: () => Promise.resolve(),
      });
    },
  };
}

/** Replies of a harness that run these commands, one a turn (`shell`) or all in one reply (`script`). */
export function commandReplies(harness: HarnessName, commands: readonly string[]): string[] {
  if (harness === 'shell') return [...commands, 'exit'];
  if (harness !== 'script') throw new Error(`a list of commands cannot be replayed in the harness ${harness}, which takes keystrokes`);
  if (commands.some((command) => command.includes('\n')))
    throw new Error('a command of several lines cannot be replayed in the script harness, which runs one command a line');
  return [[...commands, 'exit'].join('\n')];
}

function wordless(text: (turn: number) => string): Conversation {
  return {
    instruct: () => true,
    reply: (turn) => Promise.resolve({ text: text(turn) }),
    observe: () => true,
    account: () => ({ agentTokens: 0, totalTokens: 0 }),
    close: () => Promise.resolve(),
  };
}
