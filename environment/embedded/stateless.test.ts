/** Which commands a session need not keep anything of, and that it keeps the rest around them. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parse } from 'just-bash';
import { fixture, testRunKey } from '../testing.ts';
import { EmbeddedProvider } from './provider.ts';
import { isStateless } from './stateless.ts';

describe('a stateless command', () => {
  for (const command of [
    'ls',
    "sort 'a b' | uniq -c > out && cat out; wc -l *",
    'sed -n "2p" <<EOF\nx\nEOF',
    "printf '%s' a",
    '! grep -q x f || true',
  ])
    it(`is: ${JSON.stringify(command)}`, () => assert.equal(isStateless(parse(command)), true));
  for (const command of [
    ...['cd /tmp', 'x=1', 'x=1 ls', 'echo $x', 'echo $?', 'echo ${x:=1}', 'echo $((x++))', 'echo $(ls)', 'cat <<EOF\n$x\nEOF', 'ls &'],
    ...[
      'printf -v x 1',
      "printf '-v' x 1",
      "printf ''-v x 1",
      'printf "-v" x 1',
      'f() { ls; }',
      '(ls)',
      'for i in 1; do ls; done',
      'export A',
      'set -e',
      'read x < f',
      '. ./f',
      'exit',
      'frobnicate',
    ],
  ])
    it(`is not: ${JSON.stringify(command)}`, () => assert.equal(isStateless(parse(command)), false));
});

it('a session keeps directory, variables and exit code over stateless commands', async () => {
  const sandbox = await new EmbeddedProvider().start(await fixture('sort-names'), {
    runKey: testRunKey,
    episodeId: 'stateless',
    purpose: 'check',
  });
  const shell = await sandbox.openShell();
  const outputs: string[] = [];
  for (const command of [
    'mkdir sub',
    'grep x nowhere',
    'echo "$?"',
    'cd sub',
    'pwd',
    'x=1',
    'ls',
    'false',
    'echo "$x $? $PWD"',
    'cd -',
    'ls',
  ])
    outputs.push((await shell.run(command, { timeoutSec: 10 })).stdout);
  assert.deepEqual(outputs, ['', '', '2\n', '', '/app/sub\n', '', '', '', '1 1 /app/sub\n', '/app\n', 'empty\nmade.txt\nnames.txt\nsub\n']);
});
