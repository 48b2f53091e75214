/**
 * The parts of @huggingface/tokenizers that we use, with types. Its own declarations import each other without file extensions, which
 * NodeNext resolution cannot follow, so that everything would silently become `any`.
 */
import * as library from '@huggingface/tokenizers';

export interface LibraryTokenizer {
  encode(text: string, options: { add_special_tokens: boolean }): { readonly ids: number[] };
  /** Cuts a text into words, each in the byte alphabet; null where tokenizer.json has no pre-tokenizer. */
  readonly pre_tokenizer: ((text: string) => string[]) | null;
}

/** A tokenizer from the parsed tokenizer.json (and an empty tokenizer_config.json). */
export function createLibraryTokenizer(json: { readonly pre_tokenizer: unknown }): LibraryTokenizer {
  const { Tokenizer } = library as unknown as { readonly Tokenizer: new (json: object, config: object) => LibraryTokenizer };
  return new Tokenizer({ ...json, pre_tokenizer: withUnicodeDigits(json.pre_tokenizer) }, {});
}

/** The library's `Digits` knows ASCII digits only; in the format it means every character that Unicode calls a number (½, ², Ⅷ). */
function withUnicodeDigits(preTokenizer: unknown): unknown {
  const { type, individual_digits, pretokenizers, ...rest } = (preTokenizer ?? {}) as Readonly<Record<string, unknown>>;
  if (Array.isArray(pretokenizers)) return { ...rest, type, pretokenizers: pretokenizers.map(withUnicodeDigits) };
  if (type !== 'Digits') return preTokenizer;
  return { type: 'Split', pattern: { Regex: individual_digits === true ? '\\p{N}' : '\\p{N}+' }, behavior: 'Isolated', invert: false };
}
