/** The journal on real files: what counts after crashes, flipped bits and a full disk. */
import assert from 'node:assert/strict';
import { appendFile, mkdtemp, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { InfrastructureError } from '../environment/errors.ts';
import { smallDisk } from '../tests/small-disk.ts';
import { Journal } from './journal.ts';

const home = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-journal-'));
after(() => rm(home, { recursive: true }));
const inputs = { policy: 'p', tasks: ['a', 'b'] };
let number = 0;
const newFile = (): string => path.join(home, 'deep', String(number++), 'chunk.jsonl');
const open = (file: string, of: unknown = inputs): Promise<Journal<string>> => Journal.open<string>(file, of);

/** A journal with the entries one and two. */
async function written(): Promise<string> {
  const file = newFile();
  const journal = await open(file);
  await journal.append('one', 'first ✓');
  await journal.append('two', 'second');
  await journal.close();
  return file;
}
async function entries(file: string, of?: unknown): Promise<(string | undefined)[]> {
  const journal = await open(file, of);
  await journal.close();
  return [journal.get('one'), journal.get('two')];
}

describe('journal', () => {
  it('gives a later attempt what an earlier one finished', async () => {
    assert.deepEqual(await entries(await written()), ['first ✓', 'second']);
  });

  it('gives nothing for other inputs, whatever the order of their keys', async () => {
    const file = await written();
    assert.deepEqual(await entries(file, { ...inputs, policy: 'q' }), [undefined, undefined]);
    assert.deepEqual(await entries(file, { tasks: ['a', 'b'], policy: 'p' }), ['first ✓', 'second']);
  });

  it('keeps the first of two entries of one name', async () => {
    const file = await written();
    const journal = await open(file);
    await journal.append('one', 'again');
    await journal.close();
    assert.deepEqual(await entries(file), ['first ✓', 'second']);
  });

  it('takes entries of two attempts that write at the same time', async () => {
    const file = newFile();
    const both = [await open(file), await open(file)];
    await Promise.all(both.flatMap((journal, i) => Array.from({ length: 20 }, (_, j) => journal.append(`${i}/${j}`, 'x'.repeat(5000)))));
    await Promise.all(both.map((journal) => journal.close()));
    const all = await open(file);
    await all.close();
    assert.deepEqual([all.size, all.damaged], [40, 0]);
  });

  for (const { name, damage, left } of [
    { name: 'a line torn in the middle', damage: (bytes: Buffer) => bytes.subarray(0, bytes.length - 5), left: ['first ✓', undefined] },
    { name: 'a line without its newline', damage: (bytes: Buffer) => bytes.subarray(0, bytes.length - 1), left: ['first ✓', 'second'] },
    { name: 'a bit flipped in a text', damage: (bytes: Buffer) => flip(bytes, bytes.indexOf('second') + 2), left: ['first ✓', undefined] },
    { name: 'a bit flipped in a name', damage: (bytes: Buffer) => flip(bytes, bytes.indexOf('two')), left: ['first ✓', undefined] },
    { name: 'a bit flipped in a check', damage: (bytes: Buffer) => flip(bytes, 3), left: [undefined, 'second'] },
    {
      name: 'a bit flipped in a UTF-8 sequence',
      damage: (bytes: Buffer) => flip(bytes, bytes.indexOf('✓') + 1),
      left: [undefined, 'second'],
    },
    {
      name: 'a newline that became another byte',
      damage: (bytes: Buffer) => flip(bytes, bytes.indexOf('\n')),
      left: [undefined, undefined],
    },
    {
      name: 'zeros where a crash left a hole',
      damage: (bytes: Buffer) => Buffer.concat([bytes, Buffer.alloc(64)]),
      left: ['first ✓', 'second'],
    },
    {
      name: 'an entry of an older layout',
      damage: (bytes: Buffer) => Buffer.from(bytes.toString().replaceAll(/^\S+ /gm, '')),
      left: [undefined, undefined],
    },
  ]) {
    it(`does again what is lost by ${name}, and goes on writing`, async () => {
      const file = await written();
      await writeFile(file, damage(await readFile(file)));
      assert.deepEqual(await entries(file), left);
      const journal = await open(file);
      for (const [id, value] of [
        ['one', 'first ✓'],
        ['two', 'second'],
      ] as const)
        if (journal.get(id) === undefined) await journal.append(id, value);
      await journal.append('three', 'third');
      await journal.close();
      const later = await open(file);
      await later.close();
      assert.deepEqual([later.get('one'), later.get('two'), later.get('three')], ['first ✓', 'second', 'third']);
    });
  }

  it('finds every single flipped bit', async () => {
    const file = await written();
    const bytes = await readFile(file);
    const lines = bytes.toString().trimEnd().split('\n');
    for (let bit = 0; bit < 8 * bytes.length; bit++) {
      const changed = Buffer.from(bytes);
      changed[bit >> 3]! ^= 1 << (bit & 7);
      await writeFile(file, changed);
      const journal = await open(file);
      await journal.close();
      for (const [id, value] of [
        ['one', 'first ✓'],
        ['two', 'second'],
      ] as const)
        assert.ok(
          [value, undefined].includes(journal.get(id) as typeof value | undefined),
          `bit ${bit} of ${lines.length} lines: ${id} is ${journal.get(id)}`,
        );
      assert.ok(journal.size < 2 || bit >> 3 === bytes.length - 1, `bit ${bit} was not noticed`);
    }
  });

  it('says what a full disk is about, loses nothing, and goes on when there is space again', { skip: smallDisk.skip }, async () => {
    await smallDisk.use(async (disk) => {
      const file = path.join(disk.root, 'journal', 'chunk.jsonl');
      const journal = await open(file);
      await journal.append('one', 'first ✓');
      await disk.fill();
      await assert.rejects(
        journal.append('two', 'x'.repeat(200_000)),
        (error) => error instanceof InfrastructureError && error.message.includes(file) && /free space/.test(error.message),
      );
      await disk.free();
      await journal.append('two', 'second');
      await journal.close();
      assert.deepEqual(await entries(file), ['first ✓', 'second']);
      const later = await open(file);
      await later.close();
      assert.equal(later.damaged, 1, 'the part of a line that fitted');
    });
  });

  it('reads what a crash left after a cut at any byte', async () => {
    const file = await written();
    const whole = await readFile(file);
    for (let length = whole.length - 1; length >= 0; length--) {
      await truncate(file, length);
      const [one, two] = await entries(file);
      assert.ok(one === 'first ✓' || one === undefined);
      assert.ok(two === 'second' || two === undefined);
    }
    await appendFile(file, whole);
    assert.deepEqual(await entries(file), ['first ✓', 'second']);
  });
});

function flip(bytes: Buffer, at: number): Buffer {
  const changed = Buffer.from(bytes);
  changed[at]! ^= 1;
  return changed;
}
