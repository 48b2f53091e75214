/**
 * The layout of policies that we train from scratch, with a special token for each part:
 *
 *     prompt       <|bos|> (<|shell|>, <|script|> or <|terminus|>) [<|runbook|> text] <|task|> instruction <|agent|>
 *     reply        text <|end|>
 *     observation  <|obs|> text <|agent|>
 */
import { UserError } from '../../environment/errors.ts';
import type { EpisodeCodec, HarnessName } from '../../environment/types.ts';
import type { PolicyTokenizer } from '../tokenizer.ts';
import { cutMiddle } from './cut-middle.ts';

/** What every policy of this layout has; `<|terminus|>` is asked for only by that harness's prompt, because policies that never saw it lack it. */
export const LAYOUT_MARKERS = ['<|bos|>', '<|runbook|>', '<|task|>', '<|agent|>', '<|obs|>', '<|end|>', '<|shell|>', '<|script|>'] as const;

/** The codec over a tokenizer. `place` names it in errors. Throws UserError where it lacks one of the markers. */
export function markerCodec(tokenizer: PolicyTokenizer, place: string): EpisodeCodec {
  const marker = (content: string): number => {
    const id = tokenizer.special(content);
    if (id === undefined) throw new UserError(`${place}: special token ${content} is missing, expected it among added_tokens`);
    return id;
  };
  const [bos, runbookMarker, task, agent, obs, end, shell, script] = LAYOUT_MARKERS.map(marker) as [
    ...[number, number, number, number],
    ...[number, number, number, number],
  ];
  const harnessMarker = (harness: HarnessName): number => (harness === 'terminus' ? marker('<|terminus|>') : { shell, script }[harness]);
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
    observation: (text, maxTokens) => [obs, ...cutMiddle(tokenizer, tokenizer.encode(text), maxTokens), agent],
    reply: (_harness, text) => [...tokenizer.encode(text), end],
    decode: (tokens) => tokenizer.decode(tokens.at(-1) === end ? tokens.slice(0, -1) : tokens),
  };
}
