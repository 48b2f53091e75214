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
  const steps = exactSteps((json as { readonly pre_tokenizer?: unknown }).pre_tokenizer);
  const pre_tokenizer = steps.length > 1 ? { type: 'Sequence', pretokenizers: steps } : (steps[0] ?? null);
  return new Tokenizer({ ...json, pre_tokenizer }, {});
}

/** GPT-2's pattern, which `ByteLevel` stands for. */
const GPT2_WORDS = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const isolate = (pattern: string): object => ({ type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated', invert: false });

/**
 * The steps of a pre-tokenizer, with two of them as the original library does them. `Digits` means every character that Unicode calls a
 * number (½, ², Ⅷ), where this library takes ASCII digits only; and white space in the pattern of `ByteLevel` is Unicode's, not JavaScript's
 * (which counts U+FEFF and misses U+0085). Its `Split` has both right.
 */
function exactSteps(preTokenizer: unknown): unknown[] {
  if (preTokenizer === null || preTokenizer === undefined) return [];
  const step = preTokenizer as Readonly<Record<string, unknown>>;
  if (Array.isArray(step['pretokenizers'])) return step['pretokenizers'].flatMap(exactSteps);
  if (step['type'] === 'Digits') return [isolate(step['individual_digits'] === true ? '\\p{N}' : '\\p{N}+')];
  const exact = step['type'] === 'ByteLevel' && step['use_regex'] !== false && step['add_prefix_space'] !== true;
  return exact ? [isolate(GPT2_WORDS), { ...step, use_regex: false }] : [step];
}
