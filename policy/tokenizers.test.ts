/**
 * Token ids against Hugging Face's tokenizers (PyPI), the library that made these files: for our own tokenizer, SmolLM2's, and tokenizers
 * trained there with the settings of well-known models.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, describe, it } from 'node:test';
import { corpus } from '../tests/fixtures/tokenizer-corpus.ts';
import { smolLm2Directory, smolLm2Python } from '../tests/smollm2.ts';
import { byteAlphabet, type TokenizerJson } from './bpe.ts';
import { frameWriter } from './codec/frames.ts';
import { createTokenizer } from './tokenizer.ts';

const BYTE_LEVEL = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false };
const split = (pattern: string): object => ({
  type: 'Sequence',
  pretokenizers: [{ type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated', invert: false }, BYTE_LEVEL],
});
const frame = (parts: object): object => ({
  version: '1.0',
  truncation: null,
  padding: null,
  added_tokens: [],
  normalizer: null,
  post_processor: null,
  pre_tokenizer: null,
  decoder: BYTE_LEVEL,
  model: { type: 'BPE' },
  ...parts,
});
/** How the families that we run cut text into words; vocabularies are trained. */
const TRAINED: Readonly<Record<string, object>> = {
  'GPT-2': frame({ pre_tokenizer: { ...BYTE_LEVEL, use_regex: true } }),
  'Qwen 2 and 3': frame({
    normalizer: { type: 'NFC' },
    pre_tokenizer: split(
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    ),
  }),
  'Llama 3': frame({
    pre_tokenizer: split(
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    ),
    model: { type: 'BPE', ignore_merges: true },
  }),
  'Llama 2 and Mistral, with byte fallback': frame({
    normalizer: {
      type: 'Sequence',
      normalizers: [
        { type: 'Prepend', prepend: '▁' },
        { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
      ],
    },
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
        { type: 'ByteFallback' },
        { type: 'Fuse' },
        { type: 'Strip', content: ' ', start: 1, stop: 0 },
      ],
    },
    model: { type: 'BPE', byte_fallback: true, fuse_unk: true },
  }),
};

const [python, smol] = [await smolLm2Python(), await smolLm2Directory()];

describe('token ids beside PyPI tokenizers', { skip: 'skip' in smol ? smol.skip : false }, async () => {
  if ('skip' in python || 'skip' in smol) return;
  const scratch = mkdtempSync(join(tmpdir(), 'tokenizers-'));
  after(() => rmSync(scratch, { recursive: true }));
  const files = {
    'the base policy': join(import.meta.dirname, '../models/tiny-base/tokenizer.json'),
    SmolLM2: join(smol.directory, 'tokenizer.json'),
  };
  const request = join(scratch, 'request.json');
  const trained = Object.values(TRAINED);
  writeFileSync(request, JSON.stringify({ texts: corpus, files: Object.values(files), trained, alphabet: byteAlphabet() }));
  const program = join(import.meta.dirname, '../tests/tokenizers/reference.py');
  const answers = JSON.parse(await python.runFile(program, request, scratch)) as readonly {
    readonly file: string;
    readonly texts: readonly string[];
    readonly plain: readonly number[][];
    readonly marked: readonly number[][];
  }[];
  [...Object.keys(files), ...Object.keys(TRAINED)].forEach((name, i) => {
    const { file, texts, plain, marked } = answers[i] as (typeof answers)[number];
    const tokenizer = createTokenizer(JSON.parse(readFileSync(file, 'utf8')) as TokenizerJson, basename(file));
    const differing = (expected: readonly number[][], encode: (text: string) => number[]): string[] =>
      texts.filter((text, t) => encode(text).join() !== (expected[t] as number[]).join());
    it(`${name}: text that is never an added token`, () => {
      assert.deepEqual(
        differing(plain, (text) => tokenizer.encode(text)),
        [],
      );
    });
    it(`${name}: text with added tokens`, () => {
      const write = frameWriter(tokenizer);
      assert.deepEqual(
        differing(marked, (text) => write([text], [])),
        [],
      );
      assert.ok(marked.flat().some((id) => [...tokenizer.added.values()].includes(id)));
    });
    it(`${name}: comes back as it was`, () => {
      for (const text of texts)
        assert.equal(tokenizer.decode(tokenizer.encode(text)), name.startsWith('Qwen') ? text.normalize('NFC') : text);
    });
  });
});
