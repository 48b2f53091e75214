/** What commands print: very much of it, bytes that are no text, characters cut in two. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { outputLimitBytes } from '../output-cap.ts';
import { MarkReader } from './stream.ts';
import { inContainer, noDocker } from './testing.ts';

describe('marks', () => {
  it('are found however the stream is cut, and everything else is output', () => {
    const stream = Buffer.from('é€😀word.worword.1 0\nnext word.\nword.2 137\nrest wo');
    for (let cut = 1; cut <= stream.length; cut++) {
      const output: Buffer[] = [];
      const marks: string[] = [];
      const reader = new MarkReader(
        'word',
        (bytes) => output.push(Buffer.from(bytes)),
        (text) => marks.push(text),
      );
      for (let at = 0; at < stream.length; at += cut) reader.push(stream.subarray(at, at + cut));
      reader.flush();
      assert.deepEqual([Buffer.concat(output).toString(), marks], ['é€😀next rest wo', ['worword.1 0', '', '2 137']], `cut at ${cut}`);
    }
  });

  it('do not end, beyond a limit, what begins like one: it is output', () => {
    let bytes = 0;
    const reader = new MarkReader(
      'word',
      (output) => (bytes += output.length),
      () => assert.fail('no mark'),
    );
    for (let i = 0; i < 300; i++) reader.push(Buffer.from(`word.${'x'.repeat(1000)}`));
    assert.ok(bytes > 200_000);
  });
});

describe('output', { skip: noDocker }, () => {
  it('of any size leaves head and tail, and the worker its memory (failure 7)', () =>
    inContainer(async (sandbox) => {
      await sandbox.exec('head -c 4000000 /dev/zero', { timeoutSec: 60 });
      const before = process.memoryUsage().rss;
      const command = 'echo head; head -c 40000000 /dev/zero | tr "\\0" x; echo; echo tail';
      const shell = await sandbox.openShell();
      for (const { stdout, exitCode } of [
        await sandbox.exec(command, { timeoutSec: 60 }),
        await shell.run(`${command}; exit 2`, { timeoutSec: 60 }),
      ]) {
        assert.match(stdout, /^head\nx{1000}/);
        assert.match(stdout, /x\ntail\n$/);
        const omitted = Number(/\[(\d+) bytes of output omitted\]/.exec(stdout)?.[1]);
        assert.equal(omitted + outputLimitBytes, 40_000_000 + 'head\n\ntail\n'.length);
        assert.ok([0, 2].includes(exitCode));
      }
      assert.ok(process.memoryUsage().rss - before < 60e6, `${process.memoryUsage().rss - before} bytes more`);
    }));

  it('keeps characters whole over chunks, and shows what is no text as U+FFFD (failure 8)', () =>
    inContainer(async (sandbox) => {
      const shell = await sandbox.openShell();
      for (const run of [sandbox.exec.bind(sandbox), shell.run.bind(shell)]) {
        const cut = await run(
          `for b in '\\303' '\\251' '\\342' '\\202' '\\254' '\\360' '\\237\\230' '\\200'; do printf "$b"; sleep 0.02; done`,
          {
            timeoutSec: 20,
          },
        );
        assert.equal(cut.stdout, 'é€😀');
        const binary = await run(`printf 'a\\377\\376b\\0c\\n'; printf '\\360\\237' >&2`, { timeoutSec: 20 });
        assert.deepEqual([binary.stdout, binary.stderr, binary.exitCode], ['a\uFFFD\uFFFDb\0c\n', '\uFFFD', 0]);
        const random = await run('head -c 100000 /dev/urandom; exit 5', { timeoutSec: 20 });
        assert.equal(random.exitCode, 5);
      }
    }));
});
