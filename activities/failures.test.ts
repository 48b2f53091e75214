/** Which errors are tried again: decided by type, and for the machine's own errors by their code. */
import assert from 'node:assert/strict';
import { mkdir, open } from 'node:fs/promises';
import path from 'node:path';
import { describe, it } from 'node:test';
import { ApplicationFailure, CancelledFailure } from '@temporalio/common';
import { EngineLostError, InfrastructureError, TaskError, UserError } from '../environment/errors.ts';
import { NumericalError } from '../policy/errors.ts';
import { SessionLostError } from '../policy/sampler-errors.ts';
import { TrainerLostError } from '../policy/trainer/errors.ts';
import { ArtifactError, ArtifactStore } from '../records/artifacts.ts';
import { LedgerError } from '../records/ledger.ts';
import { smallDisk } from '../tests/small-disk.ts';
import { toFailure } from './failures.ts';

const system = (code: string): Error => Object.assign(new Error(`${code}: words of the system, write`), { code });
const told = (error: unknown, attempt = 1): [string | null | undefined, boolean | null | undefined] => {
  const failure = toFailure(error, attempt);
  assert.ok(failure instanceof ApplicationFailure);
  return [failure.type, failure.nonRetryable];
};

describe('toFailure', () => {
  for (const error of [new InfrastructureError('x'), new TrainerLostError('x'), new SessionLostError('x'), new EngineLostError('x')])
    it(`tries again after ${error.constructor.name}, at every attempt`, () => {
      assert.deepEqual(told(error, 150), ['InfrastructureError', false]);
    });

  it('tries again soon after a lost trainer, however often it was lost', () => {
    const failure = toFailure(new TrainerLostError('x'), 20);
    assert.ok(failure instanceof ApplicationFailure);
    assert.equal(failure.nextRetryDelay, '1s');
  });

  const artifact = new ArtifactError('artifact is corrupt', { sha256: 'a'.repeat(64), path: '/x' });
  for (const error of [new TaskError('x'), new UserError('x'), new NumericalError('x'), artifact, new LedgerError('place', 'x')])
    it(`does not try again after ${error.name}`, () => {
      assert.deepEqual(told(error), [error.name, true]);
    });

  for (const code of ['ENOSPC', 'EDQUOT', 'EROFS', 'EIO', 'EMFILE', 'ENFILE', 'ENOMEM', 'ESTALE'])
    it(`takes ${code} for the machine's fault, also where it caused another error, and says what to do`, () => {
      assert.deepEqual(told(system(code), 150), ['InfrastructureError', false]);
      const wrapped = new Error('could not save', { cause: system(code) });
      assert.deepEqual(told(wrapped, 150), ['InfrastructureError', false]);
      assert.match(toFailure(wrapped, 1).message, /words of the system.*: .{10}/);
    });

  it('gives up an error of no known type at the fifth attempt', () => {
    assert.deepEqual(
      [told(new RangeError('x'), 4), told(new RangeError('x'), 5)],
      [
        ['RangeError', false],
        ['RangeError', true],
      ],
    );
    assert.deepEqual(told('a text', 1), ['Error', false]);
    assert.deepEqual(told(system('ENOENT'), 5), ['Error', true]);
  });

  it('leaves Temporal failures alone and cuts long messages', () => {
    const cancelled = new CancelledFailure('x');
    assert.equal(toFailure(cancelled, 1), cancelled);
    assert.equal(toFailure(new Error('x'.repeat(5000)), 1).message.length, 2000);
  });
});

describe('a full disk', { skip: smallDisk.skip }, () => {
  it('is an infrastructure error of the artifact store that names it; what was stored stays, and storing goes on with space', async () => {
    await smallDisk.use(async (disk) => {
      const store = new ArtifactStore(path.join(disk.root, 'artifacts'));
      const before = await store.putJson('metrics', { a: 1 });
      const source = path.join(disk.root, 'source');
      await mkdir(source);
      const file = await open(path.join(source, 'weights'), 'w');
      await file.writeFile(Buffer.alloc(300_000, 7)).finally(() => file.close());
      await disk.fill(100_000);
      const bytes = Buffer.alloc(300_000, 1);
      const isFull = (error: unknown): boolean =>
        error instanceof InfrastructureError && error.message.includes(disk.root) && /ENOSPC.*free space/.test(error.message);
      await assert.rejects(store.putBytes('metrics', bytes), isFull);
      await assert.rejects(store.putDirectory('policy', source), isFull);
      assert.deepEqual(await store.readJson(before), { a: 1 });
      await disk.free();
      assert.deepEqual(await store.readBytes(await store.putBytes('metrics', bytes)), bytes);
      await store.directory(await store.putDirectory('policy', source));
    });
  });
});
