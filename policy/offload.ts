/**
 * Variables whose values wait in a file while nobody computes with them, and come back bit for bit. The variables stay the same objects under
 * the same names, so functions that refer to them stay valid; until they are back, reading them is an error of the native runtime.
 */
import { closeSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import { InfrastructureError } from '../environment/errors.ts';
import type { Variable } from './engine/variable.ts';

/** What brings the values back and removes the file. */
export type Restore = () => void;

/** Writes the values of `variables` to a new file and frees their memory. @throws InfrastructureError, with everything still in place */
export function offload(variables: readonly Variable[], file: string): Restore {
  try {
    withFile(file, 'wx', (descriptor) => {
      for (const variable of variables) {
        const bytes = bytesOf(variable.read());
        for (let done = 0; done < bytes.length;) done += writeSync(descriptor, bytes, done);
      }
    });
  } catch (error) {
    rmSync(file, { force: true });
    throw new InfrastructureError(`offloading a model to ${file}: ${(error as Error).message}`, { cause: error });
  }
  for (const variable of variables) variable.release();
  return () => {
    withFile(file, 'r', (descriptor) => {
      for (const variable of variables) {
        const values = new Float32Array(variable.size);
        const bytes = bytesOf(values);
        for (let done = 0; done < bytes.length;) {
          const read = readSync(descriptor, bytes, done, bytes.length - done, null);
          if (read === 0) throw new InfrastructureError(`${file}: it ends early, expected the values of an offloaded model`);
          done += read;
        }
        variable.assign(values);
      }
    });
    rmSync(file);
  };
}

function bytesOf(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}
function withFile(file: string, flags: 'wx' | 'r', use: (descriptor: number) => void): void {
  const descriptor = openSync(file, flags);
  try {
    use(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
