import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildRunbook, renderRunbook, runbookCommands, writtenFiles } from './runbook.ts';

const observed = (
  command: string,
  stdout = '',
  exitCode = 0,
  stderr = '',
): { command: string; stdout: string; stderr: string; exitCode: number } => ({
  command,
  stdout,
  stderr,
  exitCode,
});

test('steps are numbered, with a purpose from the command and an expectation from its output', () => {
  const runbook = buildRunbook('count-errors', [
    observed('ls', 'app.log\nREADME\n'),
    observed('head -n 2 app.log', 'INFO a\n'),
    observed("grep -c 'ERROR' app.log > count.txt"),
    observed('cat missing', '', 1, 'cat: missing: No such file'),
  ]);
  assert.deepEqual(
    runbook.steps.map((step) => [step.number, step.purpose, step.expected]),
    [
      [1, 'Look at which files there are', 'app.log and 1 more lines'],
      [2, 'Read app.log', 'INFO a'],
      [3, 'Write count.txt', 'no output'],
      [4, 'Read missing', 'cat: missing: No such file (exit code 1)'],
    ],
  );
  assert.deepEqual(runbookCommands(runbook)[2], "grep -c 'ERROR' app.log > count.txt");
  assert.match(renderRunbook(runbook), /^3\. Write count\.txt\n {3}\$ grep -c 'ERROR' app\.log > count\.txt\n {3}→ no output$/m);
});

test('long output is cut in the expectation', () => {
  const [step] = buildRunbook('t', [observed('cat big', 'x'.repeat(500))]).steps;
  assert.equal(step?.expected.length, 81);
});

test('written files are redirection targets, not file descriptors, the null device or a quoted sign', () => {
  assert.deepEqual(writtenFiles('sort a > b.txt 2>&1'), ['b.txt']);
  assert.deepEqual(writtenFiles("awk '$1 > 5' in.csv >> 'out.csv'"), ['out.csv']);
  assert.deepEqual(writtenFiles('ls 2> /dev/null > /dev/null'), []);
});
