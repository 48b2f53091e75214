import assert from 'node:assert/strict';
import { test } from 'node:test';
import { InfrastructureError } from '../../environment/errors.ts';
import { backend, binding } from '../engine/binding.ts';
import { announceFallback, onFallback } from '../engine/mode.ts';
import { warmUp } from './warm-up.ts';

onFallback(() => undefined);

test('a warm-up computes and leaves nothing behind', () => {
  warmUp();
  const tensors = binding().getNumOfTensors();
  warmUp();
  assert.equal(binding().getNumOfTensors(), tensors);
});

test('a device that cannot run functions fails the warm-up with its reason and what to do', (t) => {
  announceFallback('an older one, of which this warm-up knows nothing');
  const real = backend().binding;
  t.after(() => (backend().binding = real));
  const addFunction = (): never => {
    throw new Error('INTERNAL: libdevice not found at ./libdevice.10.bc');
  };
  backend().binding = Object.create(real, { addFunction: { value: addFunction } }) as typeof real;
  assert.throws(
    () => warmUp(),
    (error) =>
      error instanceof InfrastructureError &&
      /first steps failed: .*libdevice not found.*remove \.cache\/tensorflow-\*-gpu/.test(error.message),
  );
});
