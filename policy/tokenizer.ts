/**
 * Text to token ids and back, for byte-level BPE tokenizers in Hugging Face's `tokenizer.json` (ours and, e.g., Qwen's).
 *
 * Text never becomes a special token: the library gets the file without its added tokens, so "<|end|>" in a task's output is
 * encoded as the characters it consists of. Special tokens enter a sequence by `special` alone.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../environment/errors.ts';
import { byteAlphabet, type TokenizerJson } from './bpe.ts';
import { createLibraryTokenizer } from './tokenizer-library.ts';

/** The markers of an episode's layout, see policy/codec.ts; ids 0 to 8 in tokenizers that we train. */
export const SPECIAL_TOKENS = [
  '<|pad|>',
  '<|bos|>',
  '<|shell|>',
  '<|script|>',
  '<|runbook|>',
  '<|task|>',
  '<|agent|>',
  '<|obs|>',
  '<|end|>',
] as const;

export interface PolicyTokenizer {
  /** Highest token id + 1. */
  readonly vocabSize: number;
  /** Ids of the text's bytes; never a special token. */
  encode(text: string): number[];
  /** The text of the ids. Special tokens appear as written; bytes that are not UTF-8 become U+FFFD. Throws for an id without a token. */
  decode(ids: readonly number[]): string;
  /** The id of a special token, e.g. `<|end|>`; undefined where the tokenizer has none of that name. */
  special(content: string): number | undefined;
  /** All of them, the ordinary tokens among added_tokens too, by what they are written as. */
  readonly added: ReadonlyMap<string, number>;
}

/** Reads `tokenizer.json` of a policy directory. Throws UserError with the path, what was found and what was expected. */
export function loadTokenizer(policyDirectory: string): PolicyTokenizer {
  const path = join(policyDirectory, 'tokenizer.json');
  let json: TokenizerJson;
  try {
    json = JSON.parse(readFileSync(path, 'utf8')) as TokenizerJson;
  } catch (error) {
    throw new UserError(`${path}: ${(error as Error).message}, expected a Hugging Face tokenizer`);
  }
  return createTokenizer(json, path);
}

/** A tokenizer from the parsed file. `place` names it in errors. */
export function createTokenizer(json: TokenizerJson, place: string): PolicyTokenizer {
  if (json.model?.type !== 'BPE' || !mentionsByteLevel(json.decoder)) {
    throw new UserError(
      `${place}: model ${JSON.stringify(json.model?.type)}, decoder ${JSON.stringify(json.decoder)}, expected byte-level BPE`,
    );
  }
  const special = new Map(json.added_tokens.map((token) => [token.content, token.id]));
  const vocab = Object.fromEntries(Object.entries(json.model.vocab).filter(([token]) => !special.has(token)));
  const library = createLibraryTokenizer({ ...json, added_tokens: [], post_processor: null, model: { ...json.model, vocab } });
  const bytes = tokenBytes(json, vocab);
  return {
    vocabSize: bytes.length,
    encode: (text) => (text === '' ? [] : library.encode(text, { add_special_tokens: false }).ids),
    decode: (ids) =>
      Buffer.concat(
        ids.map((id) => {
          const found = bytes[id];
          if (found === undefined) throw new Error(`token ${id}: not in ${place} (0 to ${bytes.length - 1})`);
          return found;
        }),
      ).toString('utf8'),
    special: (content) => special.get(content),
    added: special,
  };
}

/** By id: the bytes that a token stands for. */
function tokenBytes(json: TokenizerJson, vocab: Readonly<Record<string, number>>): Buffer[] {
  const byteOf = new Map(byteAlphabet().map((character, byte) => [character, byte]));
  const bytes: Buffer[] = [];
  for (const [token, id] of Object.entries(vocab)) {
    bytes[id] = Buffer.from(Array.from(token, (character) => byteOf.get(character) ?? [...Buffer.from(character, 'utf8')]).flat());
  }
  for (const { content, id } of json.added_tokens) bytes[id] = Buffer.from(content, 'utf8');
  return bytes;
}

function mentionsByteLevel(decoder: unknown): boolean {
  const { type, decoders } = (decoder ?? {}) as { type?: string; decoders?: unknown[] };
  return type === 'ByteLevel' || (decoders ?? []).some(mentionsByteLevel);
}
