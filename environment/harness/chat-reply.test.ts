/** What is executed of the replies of chat models. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { commandsIn, inFence } from './chat-reply.ts';

const shell: readonly (readonly [name: string, reply: string, command: string])[] = [
  ['a plain line', 'ls -la', 'ls -la'],
  ['a plain command of several lines', 'for i in 1 2; do\n  echo $i\ndone', 'for i in 1 2; do\n  echo $i\ndone'],
  ['a fence with words around it', 'I look first.\n\n```bash\nls -la\n```\nThis lists them.', 'ls -la'],
  ['the first of several fences', '```\ncd src\n```\nthen\n```sh\nls\n```', 'cd src'],
  ['a fence that is not closed', 'So:\n```bash\nls\nwc -l a', 'ls\nwc -l a'],
  ['a fence in a list, without its indentation', '1. Look:\n   ```bash\n   ls\n     -la\n   ```', 'ls\n  -la'],
  ['a longer fence around a shorter one', '````bash\ncat <<E\n```\nE\n````', 'cat <<E\n```\nE'],
  ['an empty fence', '```bash\n```', ''],
  ['backticks around a line', ' `ls -la`\n', 'ls -la'],
  ['three backticks around a line', '```ls```', 'ls'],
  ['backticks within a command', 'echo `date` and `pwd`', 'echo `date` and `pwd`'],
  ['a prompt sign', '$ ls', 'ls'],
  ['a prompt sign in a fence, and none where a variable begins', '```\n$ echo $HOME\n```', 'echo $HOME'],
  ['what comes after thinking', '<think>\n```bash\nrm x\n```\n</think>\n\n```bash\nls\n```', 'ls'],
  ['nothing of a thought without an end', '<think>\n```bash\nrm x\n```', ''],
  ['a command that is about thinking', "grep '</think>' log", "grep '</think>' log"],
  ['exit', '```bash\nexit\n```', 'exit'],
];
describe('a chat model’s reply', () => {
  for (const [name, reply, command] of shell) {
    it(`gives ${name}`, () => assert.equal(commandsIn('shell', reply), command));
  }
  it('gives a script all its fences, without prompt signs', () => {
    assert.equal(commandsIn('script', 'First\n```bash\n$ cd src\n$ ls\n```\nthen\n```\nexit\n```'), 'cd src\nls\nexit');
    assert.equal(commandsIn('script', 'cd src\nls'), 'cd src\nls');
  });
  it('goes to terminus whole, but for the thinking', () => {
    assert.equal(commandsIn('terminus', '<think>{</think>{"plan": "```ls```"}'), '{"plan": "```ls```"}');
  });
  it('reads back what is written in a fence', () => {
    for (const text of ['ls', 'exit', 'a\n\nb', 'cat <<E\n```bash\nls\n```\n````\nE', '`ls`', '<think>x</think>', '']) {
      assert.equal(commandsIn('shell', inFence('shell', text)), text);
      assert.equal(commandsIn('script', inFence('script', text)), text);
    }
    assert.equal(inFence('terminus', '{}'), '{}');
  });
});
