/**
 * The one place that knows how an episode is laid out in tokens:
 *
 *     prompt       <|bos|> (<|shell|>, <|script|> or <|terminus|>) [<|runbook|> text] <|task|> instruction <|agent|>
 *     reply        text <|end|>
 *     observation  <|obs|> text <|agent|>
 *
 * An episode is prompt, reply, observation, reply, … in one append-only sequence.
 */
import { join } from 'node:path';
import { UserError } from '../environment/errors.ts';
import type { EpisodeCodec, HarnessName } from '../environment/types.ts';
import { loadTokenizer, type PolicyTokenizer } from './tokenizer.ts';

/** What stands for the middle of an observation that was cut. */
const ELISION = '\n...\n';

/**
 * The codec of a policy directory. Throws UserError if its tokenizer lacks one of the layout's markers; `<|terminus|>` is asked for only by the
 * prompt of that harness, because policies that never saw it lack it.
 */
export function loadCodec(policyDirectory: string): EpisodeCodec {
  return createCodec(loadTokenizer(policyDirectory), join(policyDirectory, 'tokenizer.json'));
}

/** The codec over a tokenizer. `place` names it in errors. */
export function createCodec(tokenizer: PolicyTokenizer, place: string): EpisodeCodec {
  const marker = (content: string): number => {
    const id = tokenizer.special(content);
    if (id === undefined) throw new UserError(`${place}: special token ${content} is missing, expected it among added_tokens`);
    return id;
  };
  const [bos, runbookMarker, task, agent, obs, end] = ['<|bos|>', '<|runbook|>', '<|task|>', '<|agent|>', '<|obs|>', '<|end|>'].map(
    marker,
  ) as [number, number, number, number, number, number];
  const [shell, script] = [marker('<|shell|>'), marker('<|script|>')];
  const harnessMarker = (harness: HarnessName): number => (harness === 'terminus' ? marker('<|terminus|>') : { shell, script }[harness]);
  const elision = tokenizer.encode(ELISION);
  return {
    endOfTurn: end,
    prompt: (harness, instruction, runbook) => [
      bos,
      harnessMarker(harness),
      ...(runbook === undefined ? [] : [runbookMarker, ...tokenizer.encode(runbook)]),
      task,
      ...tokenizer.encode(instruction),
      agent,
    ],
    observation: (text, maxTokens) => [obs, ...cutMiddle(tokenizer.encode(text), maxTokens, elision), agent],
    reply: (text) => [...tokenizer.encode(text), end],
    decode: (tokens) => tokenizer.decode(tokens.at(-1) === end ? tokens.slice(0, -1) : tokens),
  };
}

/** At most `maximum` tokens: the beginning and the end, where a terminal's output says most, around an elision mark. */
function cutMiddle(tokens: readonly number[], maximum: number, elision: readonly number[]): readonly number[] {
  if (tokens.length <= maximum) return tokens;
  const kept = maximum - elision.length;
  if (kept < 2) return tokens.slice(0, maximum);
  const head = Math.ceil(kept / 2);
  return [...tokens.slice(0, head), ...elision, ...tokens.slice(tokens.length - (kept - head))];
}
