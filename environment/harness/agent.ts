/**
 * Agents: who writes the replies. The trained policy (policy-agent.ts), a script of replies (scripted-agent.ts), any OpenAI-compatible
 * endpoint (endpoint-agent.ts). What a reply does to a sandbox is the harness's business (session.ts); the loop between the two is interact.ts.
 */
import type { EpisodeTokens, HarnessName } from '../types.ts';
import type { TokenUsage } from '../trial/types.ts';

/** The part of a run's `rollout` configuration that bounds an episode. */
export interface EpisodeLimits {
  readonly maxTurns: number;
  readonly maxTokensPerTurn: number;
  readonly observationTokens: number;
  readonly commandTimeoutSec: number;
}

export interface Agent {
  /** As in EpisodeRecord: `policy:<sha256>`, `replay`, `model:<name>` … */
  readonly name: string;
  /** A new conversation, of one episode. Throws UserError where the agent cannot use the harness. */
  open(episode: { readonly episodeId: string; readonly harness: HarnessName }): Conversation;
}

export interface Conversation {
  /**
   * Gives the agent an instruction, uncut: what opens the conversation, or the next step's. It waits for a reply then.
   * @returns false where there is no room for a reply any more
   */
  instruct(text: string): boolean;
  /**
   * The agent's next reply.
   * @param turn counts from 0 over the conversation
   * @throws InfrastructureError, UserError, TaskError, or the signal's reason
   */
  reply(turn: number, signal?: AbortSignal): Promise<Reply>;
  /**
   * Shows what came of the reply, cut to what the agent may read at once.
   * @returns false where there is no room for it and another reply; it is not taken in then
   */
  observe(text: string): boolean;
  /** What the conversation has cost so far. */
  account(): Account;
  /** No reply is asked for any more. Never throws. */
  close(): Promise<void>;
}

export interface Reply {
  /** What the agent wrote. */
  readonly text: string;
  /** What of it is to be executed, where that is not all of it: a model puts its command into a fence. */
  readonly action?: string;
  /** Why it is not to be executed: it ended without end-of-turn. */
  readonly stop?: 'output-length' | 'context';
}

export interface Account {
  readonly agentTokens: number;
  readonly totalTokens: number;
  /** Where every token's id and log-probability is known. */
  readonly tokens?: EpisodeTokens;
  /** What an endpoint reported. */
  readonly usage?: TokenUsage;
}
