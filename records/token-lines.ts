/**
 * An episode's tokens turn by turn, for a file of JSON lines beside its trajectory. The lines hold every token of the sequence once: what
 * was added to the prompt since the turn before, and the reply. `prompt_tokens` says how many came before the reply, so a reader can check
 * that nothing is missing. Nothing is tokenized anew.
 */
import type { EpisodeTokens } from '../environment/types.ts';

export interface TurnTokens {
  readonly turn: number;
  /** Length of the whole sequence before the reply. */
  readonly prompt_tokens: number;
  /** What of it is new since the last reply: the prompt itself, or an observation. */
  readonly new_prompt_token_ids: readonly number[];
  readonly completion_token_ids: readonly number[];
  /** Natural logarithms; as many as `completion_token_ids`. 0 for replayed replies. */
  readonly logprobs: readonly number[];
}

/** @throws Error where arrays differ in length, or a turn is missing, doubled or out of order */
export function turnTokens({ episodeId, tokens, turnIds, logprobs }: EpisodeTokens): TurnTokens[] {
  if (tokens.length !== turnIds.length || tokens.length !== logprobs.length) {
    throw new Error(
      `tokens of episode ${episodeId}: ${tokens.length} tokens, ${turnIds.length} turn ids, ${logprobs.length} log-probabilities; expected equal numbers`,
    );
  }
  const lines: TurnTokens[] = [];
  for (let at = 0; at < tokens.length;) {
    let begin = at;
    while (begin < tokens.length && turnIds[begin] === -1) begin++;
    if (begin === tokens.length) break; // an observation that nobody answered
    let end = begin;
    while (end < tokens.length && turnIds[end] === turnIds[begin]) end++;
    if (turnIds[begin] !== lines.length)
      throw new Error(`tokens of episode ${episodeId}: turn ${turnIds[begin]} at position ${begin}; expected turn ${lines.length}`);
    lines.push({
      turn: lines.length,
      prompt_tokens: begin,
      new_prompt_token_ids: tokens.slice(at, begin),
      completion_token_ids: tokens.slice(begin, end),
      logprobs: logprobs.slice(begin, end),
    });
    at = end;
  }
  return lines;
}
