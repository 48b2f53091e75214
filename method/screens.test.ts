import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Runbook } from './runbook.ts';
import { buildRunbook } from './runbook.ts';
import {
  contaminationIndex,
  namedThings,
  screenContaminated,
  screenDuplicate,
  screenIrrelevant,
  screenLeak,
  screenTamper,
  writtenLiterals,
} from './screens.ts';

const runbook = (...commands: string[]): Runbook =>
  buildRunbook(
    't',
    commands.map((command) => ({ command, stdout: '', stderr: '', exitCode: 0 })),
  );

const sources = {
  verifier: ['#!/bin/sh\nif [ "$(cat /app/count.txt)" = "4711" ]; then pass exact_count; fi\n'],
  solution: ["#!/bin/sh\ngrep -c 'ERROR' /app/app.log > /app/count.txt\n"],
  instruction: 'Count the ERROR lines of app.log into count.txt.',
  outputs: [] as string[],
  ownCommands: [] as string[],
};

test('leak: a line of the verifier anywhere in the runbook', () => {
  const found = screenLeak(runbook('echo if [ "$(cat /app/count.txt)" = "4711" ]; then pass exact_count; fi'), sources);
  assert.match(found?.reason ?? '', /line of the verifier/);
});

test('leak: a line of the solution, unless the agent typed the command itself without seeing it', () => {
  const command = "grep -c 'ERROR' /app/app.log > /app/count.txt";
  assert.match(screenLeak(runbook(command), sources)?.reason ?? '', /line of the reference solution/);
  assert.equal(screenLeak(runbook(command), { ...sources, ownCommands: [command] }), undefined);
});

test('leak: an expected answer that nothing before it shows, whoever typed it', () => {
  const command = 'echo 4711 > count.txt';
  const own = { ...sources, ownCommands: [command] };
  assert.deepEqual(screenLeak(runbook(command), own), {
    rule: 'leak',
    reason: 'writes 4711, which the verifier expects and nothing before it shows',
  });
  assert.equal(screenLeak(runbook('wc -l app.log', command), { ...own, outputs: ['4711 app.log\n', ''] }), undefined);
  assert.equal(screenLeak(runbook(command, 'cat count.txt'), { ...own, outputs: ['', '4711\n'] })?.rule, 'leak');
  assert.equal(screenLeak(runbook(command), { ...own, instruction: 'Write 4711 to count.txt.' }), undefined);
  assert.equal(screenLeak(runbook('echo 12 > count.txt'), own), undefined);
});

test('leak: a guessed part of an expected line is found in a sed replacement; a shown part is not', () => {
  const verifier = [`( [ "$(cat a.cfg)" = "$(printf 'level=15\\nsize=9')" ] )\n( grep -q '^size=9$' a.cfg )\n`];
  const own = { ...sources, verifier, instruction: 'Set size in a.cfg to the number in note.txt.' };
  const edit = "sed -i 's/size=.*/size=9/' a.cfg";
  assert.equal(screenLeak(runbook(edit), { ...own, ownCommands: [edit] })?.rule, 'leak');
  assert.equal(screenLeak(runbook('cat note.txt', edit), { ...own, ownCommands: ['cat note.txt', edit], outputs: ['9\n', ''] }), undefined);
});

test('written literals come from echo, printf, here-documents and sed replacements', () => {
  assert.deepEqual(writtenLiterals("printf 'total=%s' 42"), ['total=%s', 'total', '%s', '42', 'total=%s 42']);
  assert.deepEqual(writtenLiterals("cat > a <<'EOF'\nfirst line\nEOF"), ['first line', 'first', 'line']);
  assert.deepEqual(writtenLiterals("sed -i 's/size=.*/size=9/' a.cfg"), ['size=9', 'size', '9']);
  assert.deepEqual(writtenLiterals('grep 4711 app.log'), []);
});

test('tamper: tests, logs, solution and reward files, however they are reached', () => {
  for (const command of [
    'cat /tests/test.sh',
    'echo 1 > /logs/verifier/reward.txt',
    'cp "/solution/solve.sh" .',
    'cat ../tests/test.sh',
    'cd / && cat tests/test.sh',
    'cat /t*/test.sh',
    'cp -r /* out',
    "cat '/te'sts/test.sh",
    'echo 1 > reward.txt',
    'tar --directory=/tests -c .',
  ]) {
    assert.equal(screenTamper(runbook('ls', command), '/app')?.rule, 'tamper', command);
  }
});

test('tamper: the task own files of similar name are not touched by it', () => {
  for (const command of [
    'cat logs/app.log',
    'ls tests',
    'cd sub && cat ../logs/app.log',
    'cat /app/tests/a',
    'grep -r reward .',
    'ls /opt/*',
  ]) {
    assert.equal(screenTamper(runbook(command), '/app'), undefined, command);
  }
});

test('irrelevant: nothing that the instruction names is touched', () => {
  const instruction = 'Count the lines of `data/app.log` that contain ERROR and write the number to /app/out/count.txt.';
  assert.deepEqual(namedThings(instruction), ['data/app.log', '/app/out/count.txt']);
  assert.equal(screenIrrelevant(runbook('ls', 'touch x'), instruction)?.rule, 'irrelevant');
  assert.equal(screenIrrelevant(runbook('grep -c ERROR data/app.log > out/count.txt'), instruction), undefined);
  assert.equal(screenIrrelevant(runbook('cd out; touch count.txt'), instruction), undefined);
  assert.equal(screenIrrelevant(runbook('ls'), 'Clean up.'), undefined);
});

test('duplicate: differences in quotes and spaces do not make a new runbook, another way does', () => {
  const kept = [runbook('grep -c "ERROR" app.log > count.txt')];
  assert.equal(screenDuplicate(runbook("grep -c  'error' app.log >count.txt"), kept)?.rule, 'duplicate');
  assert.equal(screenDuplicate(runbook('cat app.log | grep ERROR | wc -l > count.txt'), kept), undefined);
  assert.equal(screenDuplicate(runbook('ls'), []), undefined);
});

test('contaminated: the same instruction or commands as an evaluation task, but not its family template', () => {
  const template = (file: string, word: string, out: string): string =>
    `In the directory /app there is a file ${file} with lines of text. Count the lines that contain ${word} and write only the number to ${out}.`;
  const index = contaminationIndex([
    {
      task: 'bench/one',
      instruction: template('app.log', 'ERROR', 'count.txt'),
      solution: ["grep 'ERROR' app.log | sort | uniq -c | sort -rn | head -n 3 > count.txt"],
    },
  ]);
  const same = screenContaminated(runbook('ls'), template('app.log', 'ERROR', 'count.txt'), index);
  assert.deepEqual(same, { rule: 'contaminated', reason: '100 % of the 13-grams of the instruction occur in bench/one' });
  const commands = runbook("grep 'ERROR' app.log | sort | uniq -c | sort -rn | head -n 3 > count.txt");
  assert.match(screenContaminated(commands, 'Something else entirely', index)?.reason ?? '', /of the commands occur in bench\/one/);
  assert.equal(screenContaminated(runbook('ls'), template('sys.log', 'FATAL', 'n.txt'), index), undefined);
});
