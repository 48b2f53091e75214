/**
 * The one place that knows how an episode is laid out in tokens: prompt, reply, observation, reply, … in one append-only sequence. Policies
 * that we train from scratch have special tokens for the parts (codec/markers.ts), models from elsewhere a chat template (codec/chat.ts).
 */
import { join } from 'node:path';
import { UserError } from '../environment/errors.ts';
import type { EpisodeCodec } from '../environment/types.ts';
import { readChatTemplate } from './chat-template.ts';
import { chatCodec, readStopTokens } from './codec/chat.ts';
import { LAYOUT_MARKERS, markerCodec } from './codec/markers.ts';
import { loadTokenizer } from './tokenizer.ts';

/**
 * The codec of a policy directory: that of our markers where its tokenizer has them, else that of its chat template. Throws UserError where it
 * has neither, and for files that cannot be read.
 */
export function loadCodec(policyDirectory: string): EpisodeCodec {
  const tokenizer = loadTokenizer(policyDirectory);
  const place = join(policyDirectory, 'tokenizer.json');
  const missing = LAYOUT_MARKERS.filter((marker) => tokenizer.special(marker) === undefined);
  if (missing.length === 0) return markerCodec(tokenizer, place);
  const template = readChatTemplate(policyDirectory);
  if (template) return chatCodec(tokenizer, template, readStopTokens(policyDirectory, tokenizer));
  throw new UserError(
    `${policyDirectory}: no layout for episodes. Expected a chat template (chat_template.jinja, or chat_template in tokenizer_config.json), or ` +
      `the special tokens of our own layout in ${place}, of which ${missing.join(' ')} ${missing.length === 1 ? 'is' : 'are'} missing`,
  );
}
