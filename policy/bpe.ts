/**
 * Trains a byte-level BPE tokenizer (Sennrich et al. 2016; GPT-2's byte alphabet) and writes it as Hugging Face's `tokenizer.json`.
 * Deterministic: the same corpus gives the same file. Text is cut into words by the same library that later encodes, so training and
 * use cannot disagree.
 */
import { UserError } from '../environment/errors.ts';
import { createLibraryTokenizer } from './tokenizer-library.ts';

/** What we read and write of `tokenizer.json`; foreign files hold more. */
export interface TokenizerJson {
  readonly version: string;
  readonly truncation: null;
  readonly padding: null;
  readonly added_tokens: readonly AddedTokenJson[];
  readonly normalizer: unknown;
  readonly pre_tokenizer: unknown;
  readonly post_processor: unknown;
  readonly decoder: unknown;
  readonly model: BpeJson;
}
export interface AddedTokenJson {
  readonly id: number;
  readonly content: string;
  readonly single_word: boolean;
  readonly lstrip: boolean;
  readonly rstrip: boolean;
  readonly normalized: boolean;
  readonly special: boolean;
}
export interface BpeJson {
  readonly type: string;
  readonly vocab: Readonly<Record<string, number>>;
  readonly merges: readonly (readonly [string, string] | string)[];
  readonly [field: string]: unknown;
}

/**
 * GPT-2's pattern for terminal text: a word with its leading space; digits one by one, so that numbers share their parts; a run of
 * punctuation with its leading space; each line end alone; other white space, leaving its last space to the word that follows.
 */
const WORD_PATTERN = ' ?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+|\\r?\\n|[^\\S\\r\\n]+(?!\\S)|\\s+';

/** A pair that occurs once teaches nothing that its parts do not. */
const MINIMUM_COUNT = 2;

/** GPT-2's printable stand-in for every byte: bytes that are visible characters stand for themselves, the others move to 256 and up. */
export function byteAlphabet(): string[] {
  const visible = (byte: number): boolean => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(visible(byte) ? byte : next++));
}

/**
 * Learns merges until the vocabulary has `vocabSize` entries (or no pair occurs twice): `specialTokens` first, from id 0, then the 256
 * bytes, then the merges by count, ties to the older parts. Throws UserError where `vocabSize` has no room for the first two.
 */
export function trainTokenizer(corpus: readonly string[], vocabSize: number, specialTokens: readonly string[]): TokenizerJson {
  const alphabet = byteAlphabet().sort();
  const vocabulary = [...specialTokens, ...alphabet];
  if (vocabSize < vocabulary.length) {
    throw new UserError(
      `vocabulary size ${vocabSize}: expected at least ${vocabulary.length} (${specialTokens.length} special tokens and 256 bytes)`,
    );
  }
  const ids = new Map(vocabulary.map((token, id) => [token, id]));
  const words = countWords(corpus, tokenizerJson([], [], specialTokens), ids);
  const merges: [string, string][] = [];
  const counts = pairCounts(words);
  while (vocabulary.length < vocabSize) {
    const best = mostFrequent(counts);
    if (best === undefined) break;
    const [left, right] = best;
    const merged = vocabulary.length;
    const pair: [string, string] = [vocabulary[left] as string, vocabulary[right] as string];
    vocabulary.push(pair.join(''));
    merges.push(pair);
    for (const word of words) applyMerge(word, left, right, merged, counts);
  }
  return tokenizerJson(vocabulary, merges, specialTokens);
}

/** A distinct word of the corpus: its current token ids and how often it occurs. */
interface Word {
  ids: number[];
  readonly count: number;
}

function countWords(corpus: readonly string[], empty: TokenizerJson, ids: ReadonlyMap<string, number>): Word[] {
  const split = createLibraryTokenizer(empty).pre_tokenizer;
  if (split === null) throw new Error('tokenizer without a pre-tokenizer');
  const counts = new Map<string, number>();
  for (const text of corpus) for (const word of split(text)) counts.set(word, (counts.get(word) ?? 0) + 1);
  return [...counts].map(([word, count]) => ({ ids: Array.from(word, (byte) => ids.get(byte) as number), count }));
}

/** Pairs as one number: ids stay far below 2^20. */
const PAIR_BASE = 2 ** 20;

type PairCounts = Map<number, number>;

function pairCounts(words: readonly Word[]): PairCounts {
  const counts: PairCounts = new Map();
  for (const word of words) addPairs(word, word.count, counts);
  return counts;
}

function addPairs(word: Word, amount: number, counts: PairCounts): void {
  for (let i = 0; i + 1 < word.ids.length; i++) {
    const pair = (word.ids[i] as number) * PAIR_BASE + (word.ids[i + 1] as number);
    const count = (counts.get(pair) ?? 0) + amount;
    if (count === 0) counts.delete(pair);
    else counts.set(pair, count);
  }
}

function mostFrequent(counts: PairCounts): [number, number] | undefined {
  let best = -1;
  let bestCount = MINIMUM_COUNT - 1;
  for (const [pair, count] of counts) {
    if (count > bestCount || (count === bestCount && best >= 0 && pair < best)) [best, bestCount] = [pair, count];
  }
  return best < 0 ? undefined : [Math.floor(best / PAIR_BASE), best % PAIR_BASE];
}

/** Replaces the pair by `merged` in the word, left to right, and keeps the counts right. */
function applyMerge(word: Word, left: number, right: number, merged: number, counts: PairCounts): void {
  const { ids } = word;
  if (!ids.some((id, i) => id === left && ids[i + 1] === right)) return;
  addPairs(word, -word.count, counts);
  const next: number[] = [];
  for (let i = 0; i < ids.length; i++) {
    if (ids[i] === left && ids[i + 1] === right) {
      next.push(merged);
      i++;
    } else next.push(ids[i] as number);
  }
  word.ids = next;
  addPairs(word, word.count, counts);
}

function tokenizerJson(
  vocabulary: readonly string[],
  merges: readonly [string, string][],
  specialTokens: readonly string[],
): TokenizerJson {
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: specialTokens.map((content, id) => ({
      id,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: null,
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex: WORD_PATTERN }, behavior: 'Isolated', invert: false },
        { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false },
      ],
    },
    post_processor: null,
    decoder: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: Object.fromEntries(vocabulary.map((token, id) => [token, id])),
      merges,
    },
  };
}
