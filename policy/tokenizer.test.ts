import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { trainTokenizer } from './bpe.ts';
import { createTokenizer, loadTokenizer, SPECIAL_TOKENS } from './tokenizer.ts';

const sentences = [
  'Count the lines of notes.txt and write the number to count.txt',
  'wc -l < notes.txt > count.txt\ngrep -c error app.log > errors.txt',
  'sort names.txt | uniq -c | sort -rn | head -n 3 > top.txt',
  'Find all files ending in .log and write their names to logs.txt',
];
// Twice, so that every pair may be merged.
const corpus = [...sentences, ...sentences];
const json = trainTokenizer(corpus, 330, SPECIAL_TOKENS);
const tokenizer = createTokenizer(json, 'test tokenizer');
const specialIds = new Set(SPECIAL_TOKENS.map((token) => tokenizer.special(token)));

describe('BPE training', () => {
  it('gives the same file for the same corpus', () => {
    assert.equal(JSON.stringify(trainTokenizer(corpus, 330, SPECIAL_TOKENS)), JSON.stringify(json));
  });
  it('fills the vocabulary: special tokens from 0, then bytes, then merges', () => {
    assert.equal(tokenizer.vocabSize, 330);
    assert.deepEqual(
      SPECIAL_TOKENS.map((token) => tokenizer.special(token)),
      [0, 1, 2, 3, 4, 5, 6, 7, 8],
    );
    assert.equal(json.model.merges.length, 330 - 9 - 256);
  });
  it('merges the most frequent pair first, ties to the lower ids', () => {
    // Counts: ab 4, bc 2, xy 2. After ab: xy 2 and ab+c 2, and x has a lower id than the new ab.
    const merges = trainTokenizer(['ab', 'ab', 'abc', 'abc', 'xy', 'xy'], 9 + 256 + 3, SPECIAL_TOKENS).model.merges;
    assert.deepEqual(merges, [
      ['a', 'b'],
      ['x', 'y'],
      ['ab', 'c'],
    ]);
  });
  it('stops when no pair occurs twice', () => {
    assert.equal(trainTokenizer(['ab cd'], 1000, SPECIAL_TOKENS).model.merges.length, 0);
  });
  it('refuses a vocabulary without room for the bytes', () => {
    assert.throws(() => trainTokenizer(corpus, 100, SPECIAL_TOKENS), { name: 'UserError', message: /100.*265/ });
  });
});

describe('tokenizer', () => {
  const hard = [
    '',
    ' ',
    'notes.txt',
    '  two  spaces\tand\ttabs  ',
    'line\r\nline\n\n\nend\n',
    '🎉 family 👨‍👩‍👧‍👦 flag 🇩🇪',
    '漢字とカナ 한국어 naïve café',
    '\u0000\u0001\u0002\u001b[31mred\u001b[0m\u007f\u0080\u00ff\ufffd',
    "it's 12345 + 0x1F == 'a' && ${HOME} || $(ls -la)",
    'a'.repeat(3000),
  ];
  for (const text of hard) {
    it(`round-trips ${JSON.stringify(text.slice(0, 24))}`, () => assert.equal(tokenizer.decode(tokenizer.encode(text)), text));
  }
  it('splits digits one by one and keeps a leading space with its word', () => {
    assert.equal(tokenizer.encode('2026').length, 4);
    const trained = createTokenizer(trainTokenizer(['the lines', 'the lines'], 400, SPECIAL_TOKENS), 'test tokenizer');
    assert.deepEqual(
      trained.encode('the lines').map((id) => trained.decode([id])),
      ['the', ' lines'],
    );
  });
  it('never makes a special token out of text', () => {
    for (const token of SPECIAL_TOKENS) {
      const ids = tokenizer.encode(`before ${token} after${token}`);
      assert.ok(!ids.some((id) => specialIds.has(id)), `${token} became ${ids.join()}`);
      assert.equal(tokenizer.decode(ids), `before ${token} after${token}`);
    }
  });
  it('names an unknown id', () => assert.throws(() => tokenizer.decode([330]), /token 330/));
  it('names the file that is missing or of another kind', () => {
    const directory = mkdtempSync(join(tmpdir(), 'tokenizer-'));
    try {
      assert.throws(() => loadTokenizer(directory), { name: 'UserError', message: /tokenizer\.json/ });
      writeFileSync(join(directory, 'tokenizer.json'), JSON.stringify({ ...json, model: { ...json.model, type: 'Unigram' } }));
      assert.throws(() => loadTokenizer(directory), { name: 'UserError', message: /Unigram.*byte-level BPE/ });
    } finally {
      rmSync(directory, { recursive: true });
    }
  });
});
