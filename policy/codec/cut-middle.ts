/** Cuts what an agent reads at once: the beginning and the end of a terminal's output say most. */
import type { PolicyTokenizer } from '../tokenizer.ts';

/** What stands for the middle that was cut. */
const ELISION = '\n...\n';

/** At most `maximum` of the tokens: their beginning and end around an elision mark, or their beginning alone where that has no room. */
export function cutMiddle(tokenizer: PolicyTokenizer, tokens: readonly number[], maximum: number): readonly number[] {
  if (tokens.length <= maximum) return tokens;
  const elision = tokenizer.encode(ELISION);
  const kept = maximum - elision.length;
  if (kept < 2) return tokens.slice(0, maximum);
  const head = Math.ceil(kept / 2);
  return [...tokens.slice(0, head), ...elision, ...tokens.slice(tokens.length - (kept - head))];
}
