/**
 * Text to token ids and back, for BPE tokenizers in Hugging Face's `tokenizer.json` of the two kinds that can write every byte: byte-level
 * (ours, Qwen's, Llama 3's), whose alphabet stands for bytes, and with byte fallback (Llama 2's, Mistral's), where "▁" is a space and
 * characters without a token become tokens such as <0xE6>.
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
  const alphabet = alphabetOf(json, place);
  const special = new Map(json.added_tokens.map((token) => [token.content, token.id]));
  const vocab = Object.fromEntries(Object.entries(json.model.vocab).filter(([token]) => !special.has(token)));
  const library = createLibraryTokenizer({ ...json, added_tokens: [], post_processor: null, model: { ...json.model, vocab } });
  const bytes = tokenBytes(json, vocab, alphabet);
  // What the normalizer puts before every text.
  const prefix = decoderParts(json.decoder).some(({ type, content, start }) => type === 'Strip' && content === ' ' && start === 1)
    ? ' '
    : '';
  return {
    vocabSize: bytes.length,
    encode: (text) => (text === '' ? [] : library.encode(text, { add_special_tokens: false }).ids),
    decode: (ids) => {
      const parts = ids.map((id) => {
        const found = bytes[id];
        if (found === undefined) throw new Error(`token ${id}: not in ${place} (0 to ${bytes.length - 1})`);
        return found;
      });
      const text = Buffer.concat(parts).toString('utf8');
      return text.startsWith(prefix) ? text.slice(prefix.length) : text;
    },
    special: (content) => special.get(content),
    added: special,
  };
}

/** The bytes that a token of the vocabulary stands for. */
type Alphabet = (token: string) => Buffer;

/** Throws UserError unless every text can be encoded and comes back as it was. */
function alphabetOf(json: TokenizerJson, place: string): Alphabet {
  const types = decoderParts(json.decoder).map(({ type }) => type);
  if (json.model?.type === 'BPE' && types.includes('ByteLevel')) return byteLevel();
  const { prepend_scheme: scheme } = (json.pre_tokenizer ?? {}) as { prepend_scheme?: unknown };
  if (json.model?.type === 'BPE' && types.includes('ByteFallback') && json.model['byte_fallback'] === true) {
    if (scheme !== 'first') return byteFallback;
    throw new UserError(`${place}: pre_tokenizer.prepend_scheme is "first", expected a tokenizer that treats the parts of a text alike`);
  }
  throw new UserError(
    `${place}: model ${JSON.stringify(json.model?.type)}, decoder ${JSON.stringify(json.decoder)}, ` +
      'expected byte-level BPE, or BPE with byte fallback',
  );
}

function byteLevel(): Alphabet {
  const byteOf = new Map(byteAlphabet().map((character, byte) => [character, byte]));
  return (token) => Buffer.from(Array.from(token, (character) => byteOf.get(character) ?? [...Buffer.from(character, 'utf8')]).flat());
}

function byteFallback(token: string): Buffer {
  const byte = /^<0x([0-9A-F]{2})>$/.exec(token)?.[1];
  return byte === undefined ? Buffer.from(token.replaceAll('▁', ' '), 'utf8') : Buffer.of(parseInt(byte, 16));
}

/** By id: the bytes that a token stands for. */
function tokenBytes(json: TokenizerJson, vocab: Readonly<Record<string, number>>, alphabet: Alphabet): Buffer[] {
  const bytes: Buffer[] = [];
  for (const [token, id] of Object.entries(vocab)) bytes[id] = alphabet(token);
  for (const { content, id } of json.added_tokens) bytes[id] = Buffer.from(content, 'utf8');
  return bytes;
}

interface DecoderPart {
  readonly type?: unknown;
  readonly content?: unknown;
  readonly start?: unknown;
}
/** The decoder, or those that a `Sequence` lists. */
function decoderParts(decoder: unknown): readonly DecoderPart[] {
  const { decoders, ...part } = (decoder ?? {}) as DecoderPart & { readonly decoders?: readonly unknown[] };
  return [part, ...(decoders ?? []).flatMap(decoderParts)];
}
