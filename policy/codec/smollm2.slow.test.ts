/** The codec of a real chat model, SmolLM2-135M-Instruct, against PyPI tokenizers: an episode's ids are those of its text. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { smolLm2Directory, smolLm2Python } from '../../tests/smollm2.ts';
import { loadCodec } from '../codec.ts';
import { loadTokenizer } from '../tokenizer.ts';

const [model, python] = [await smolLm2Directory(), await smolLm2Python()];
const skip = 'skip' in model ? model.skip : 'skip' in python ? python.skip : false;

describe('an episode of SmolLM2', { skip }, () => {
  it('has the ids that another tokenizer gives for the whole conversation, and ends its turns with <|im_end|>', async () => {
    if ('skip' in model || 'skip' in python) return;
    const codec = loadCodec(model.directory);
    const tokens = [
      ...codec.prompt('shell', 'Sort names.txt into sorted.txt. 🎉', '1. Look\n   $ ls'),
      ...codec.reply('shell', 'sort names.txt > sorted.txt'),
      ...codec.observation('  two  spaces\n\n\tnaïve 漢字\r\n[exit 2]\n', 1000),
      ...codec.reply('shell', 'exit'),
    ];
    const text = loadTokenizer(model.directory).decode(tokens);
    assert.match(text, /^<\|im_start\|>system\nYou solve .*<\|im_end\|>\n<\|im_start\|>user\nSort names/s);
    const program = `import json, sys, tokenizers
print(json.dumps(tokenizers.Tokenizer.from_file(sys.argv[1]).encode(sys.argv[2], add_special_tokens=False).ids))`;
    assert.deepEqual(tokens, JSON.parse(await python.run(program, join(model.directory, 'tokenizer.json'), text)));
    assert.deepEqual(codec.stopTokens, [2]);
  });
});
