import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keepEvidence } from './evidence.ts';
import type { ObservedCommand } from './runbook.ts';

const episode = (...steps: [command: string, stdout: string][]): ObservedCommand[] =>
  steps.map(([command, stdout]) => ({ command, stdout, stderr: '', exitCode: 0 }));

test('a word that only an output showed keeps the command that showed it', () => {
  const observed = episode(['ls', 'a.cfg\nnote.txt\n'], ['cat note.txt', '9\n'], ["sed -i 's/size=.*/size=9/' a.cfg", '']);
  const instruction = 'Set size in a.cfg to the number in note.txt.';
  assert.deepEqual(keepEvidence(instruction, observed, [2]), [1, 2]);
});

test('a number that stands in a longer output by chance does not replace the note that meant it', () => {
  const observed = episode(['cat a.cfg', 'level=8\nmode=16\nsize=1\n'], ['cat note.txt', '1\n'], ["sed -i 's/mode=.*/mode=1/' a.cfg", '']);
  assert.deepEqual(keepEvidence('Set mode in a.cfg to the number in note.txt.', observed, [2]), [1, 2]);
});

test('a chain of pointers is kept whole, and a listing that happens to name a link is not taken for it', () => {
  const observed = episode(
    ['ls docs', 'jade.txt\nruby.txt\n'],
    ['cat docs/jade.txt', 'docs/ruby.txt\n'],
    ['cat docs/ruby.txt', 'lemon\n'],
    ['echo lemon > out.txt', ''],
  );
  const instruction = 'Start at docs/jade.txt: each file names the next one. Write the word in the last file to out.txt.';
  assert.deepEqual(keepEvidence(instruction, observed, [3]), [1, 2, 3]);
});

test('what the instruction names needs no evidence', () => {
  const observed = episode(['cat in.txt', 'river\n'], ['echo river >> in.txt', '']);
  assert.deepEqual(keepEvidence('Append the line river to in.txt.', observed, [1]), [1]);
});

test('what the agent made itself and then saw is not evidence', () => {
  const observed = episode(['mkdir scratch', ''], ['ls', 'in.txt\nscratch\n'], ['cp in.txt scratch/in.txt', '']);
  assert.deepEqual(keepEvidence('Copy in.txt somewhere.', observed, [0, 2]), [0, 2]);
});

test('written text that was concluded keeps what had been read, but not what failed or printed nothing', () => {
  const observed: ObservedCommand[] = [
    ...episode(['cat examples/1.in', 'b\na\n'], ['cat examples/1.out', 'a\nb\n']),
    { command: 'cat examples/3.in', stdout: '', stderr: 'No such file', exitCode: 1 },
    ...episode(['touch x', ''], [`echo 'sort "$1"' > run.sh`, '']),
  ];
  assert.deepEqual(keepEvidence('Write run.sh from the examples in examples: 1.in, 1.out.', observed, [4]), [0, 1, 4]);
});

test('a tool of the agent is no written text: choosing grep needs no evidence', () => {
  const observed = episode(['cat app.log', 'error x\ninfo y\n'], ['grep -c error app.log > n.txt', '']);
  assert.deepEqual(keepEvidence('Count the error lines of app.log into n.txt.', observed, [1]), [1]);
});

test('a look after the command that uses the word is no evidence', () => {
  const observed = episode(['echo lemon > out.txt', ''], ['cat out.txt', 'lemon\n']);
  assert.deepEqual(keepEvidence('Write the word to out.txt.', observed, [0]), [0]);
});
