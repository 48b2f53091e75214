/**
 * The layout of Hugging Face chat models: their own template (policy/chat-template.ts) around what the harness says.
 *
 *     prompt       system: how the harness works; user: instruction [and runbook], the form of a reply; opening of the assistant's turn
 *     reply        text, end of turn
 *     observation  what follows an end of turn; user: text; opening of the assistant's turn
 *
 * Token ids are those that transformers gives for the same conversation, with two exceptions. Special tokens written in a content stay text:
 * a task or a program's output cannot end a turn or speak for another role. And replies stand as they were sampled, also where the template
 * would rewrite them once they are past.
 */
import { join } from 'node:path';
import { UserError } from '../../environment/errors.ts';
import { commandsIn, inFence } from '../../environment/harness/chat-reply.ts';
import { explainHarness, taskMessage } from '../../environment/harness/prompts.ts';
import type { EpisodeCodec } from '../../environment/types.ts';
import { readJson, type ChatTemplate } from '../chat-template.ts';
import type { PolicyTokenizer } from '../tokenizer.ts';
import { chatLayout } from './chat-layout.ts';
import { frameWriter, specialPattern, type Frame, type Slot } from './frames.ts';

const AS_IS: Slot = { trimStart: false, trimEnd: false };

/**
 * The codec of a policy with a chat template. `stopTokens` end a turn beside the template's own end of turn.
 * Throws UserError where the template cannot be used or ends a turn with ordinary text.
 */
export function chatCodec(tokenizer: PolicyTokenizer, template: ChatTemplate, stopTokens: readonly number[]): EpisodeCodec {
  const { opening, between, systemRole } = chatLayout(template);
  const write = frameWriter(tokenizer);
  const { endOfTurn, following } = splitEndOfTurn(between, tokenizer, template.place);
  // Some templates open the agent's reasoning themselves; its replies then begin within it.
  const last = opening.at(-1);
  const inThought = typeof last === 'string' && /<think>\s*$/.test(last);
  const stops = [...new Set([endOfTurn, ...stopTokens])];
  return {
    endOfTurn,
    stopTokens: stops,
    prompt(harness, instruction, runbook) {
      const task = taskMessage(harness, instruction, runbook);
      const explanation = explainHarness(harness);
      return write(opening, systemRole ? [explanation, task] : [`${explanation}\n\n${task}`]);
    },
    observation: (text, maxTokens) => write(following, [text], maxTokens),
    reply: (harness, text) => [...write([inThought ? '\n</think>\n\n' : '', AS_IS], [inFence(harness, text)]), endOfTurn],
    decode: (tokens) => tokenizer.decode(stops.includes(tokens.at(-1) ?? -1) ? tokens.slice(0, -1) : tokens),
    action: (harness, text) => commandsIn(harness, inThought ? `<think>${text}` : text),
  };
}

/** `eos_token_id` of config.json and generation_config.json and `eos_token` of tokenizer_config.json: models name their ends of turn in any of them. */
export function readStopTokens(directory: string, tokenizer: PolicyTokenizer): number[] {
  const named = ['generation_config.json', 'config.json'].flatMap((file) => {
    const ids = [readJson(join(directory, file))['eos_token_id'] ?? []].flat();
    const wrong = ids.find((id) => !Number.isInteger(id) || (id as number) < 0 || (id as number) >= tokenizer.vocabSize);
    if (wrong !== undefined)
      throw new UserError(
        `${join(directory, file)}: eos_token_id ${JSON.stringify(wrong)}, expected token ids below ${tokenizer.vocabSize}`,
      );
    return ids as number[];
  });
  const token = readJson(join(directory, 'tokenizer_config.json'))['eos_token'];
  const content = typeof token === 'object' && token !== null ? (token as { content?: unknown }).content : token;
  const id = typeof content === 'string' ? tokenizer.special(content) : undefined;
  return [...new Set([...named, ...(id === undefined ? [] : [id])])];
}

/** Takes the end of turn, which the agent gives itself, off the beginning of what follows it. */
function splitEndOfTurn(between: Frame, tokenizer: PolicyTokenizer, place: string): { endOfTurn: number; following: Frame } {
  const [literal, ...rest] = between as [string, ...Frame];
  // Some templates set a space before it, which a model does not write.
  const [space = '', token = '', ...after] = literal.split(specialPattern(tokenizer));
  const endOfTurn = tokenizer.special(token);
  if (space.trim() !== '' || endOfTurn === undefined) {
    throw new UserError(
      `${place}: ${JSON.stringify(literal)} follows an assistant's message, expected a special token of tokenizer.json that ends its turn`,
    );
  }
  return { endOfTurn, following: [after.join(''), ...rest] };
}
