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
export function createLibraryTokenizer(json: object): LibraryTokenizer {
  const { Tokenizer } = library as unknown as { readonly Tokenizer: new (json: object, config: object) => LibraryTokenizer };
  return new Tokenizer(json, {});
}
