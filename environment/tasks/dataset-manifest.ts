/** `dataset.toml`: a dataset that pins its tasks and files by digest. The tasks are looked for below the manifest's folder. */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { TaskError } from '../errors.ts';
import { nameOf, type DatasetItem, type DatasetListing } from './dataset-items.ts';
import { parseToml } from './task-toml.ts';
import { taskDirectories } from './task.ts';
import { packageName } from './toml-schema.ts';

const digest = z.string().regex(/^sha256:[a-f0-9]{64}$/, 'expected sha256: and 64 hex digits in small letters');
const manifest = z.object({
  dataset: z.object({ name: packageName, version: z.string().min(1).optional() }),
  tasks: z.array(z.object({ name: packageName, digest })).default([]),
  // Without a digest a file is whatever it is.
  files: z
    .array(
      z.object({
        path: z.string().regex(/^[^/\\]+$/, 'expected a file name without directories'),
        digest: digest.or(z.literal('')).default(''),
      }),
    )
    .default([]),
});

/** @throws TaskError where the manifest is wrong, or a file of the dataset is not what it says */
export function readManifest(file: string): DatasetListing {
  const folder = dirname(file);
  const parsed = manifest.safeParse(parseToml(readFileSync(file, 'utf8'), file));
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new TaskError(`${file}: ${issue?.path.join('.')}: ${issue?.message}`);
  }
  const { dataset, tasks, files } = parsed.data;
  for (const { path, digest: expected } of files) {
    const place = join(folder, path);
    if (!existsSync(place)) throw new TaskError(`${place}: missing; expected a file of the dataset`);
    const found = `sha256:${createHash('sha256').update(readFileSync(place)).digest('hex')}`;
    if (expected !== '' && found !== expected)
      throw new TaskError(`${place}: has the digest ${found}; expected ${expected}, as ${file} says`);
  }
  const directories = new Map<string, string[]>();
  for (const directory of taskDirectories(folder)) {
    const name = nameOf(directory) ?? '';
    directories.set(name, [...(directories.get(name) ?? []), directory]);
  }
  const unique = new Map(tasks.map((task) => [`${task.name} ${task.digest}`, task]));
  return {
    name: dataset.name,
    ...(dataset.version === undefined ? {} : { version: dataset.version }),
    items: [...unique.values()].map((task): DatasetItem => {
      const found = directories.get(task.name) ?? [];
      const [id = task.name] = task.name.split('/').slice(1);
      return {
        id,
        name: task.name,
        digest: task.digest,
        locate: () => {
          const [directory] = found;
          const problem =
            found.length > 1 ? `several directories hold ${task.name}: ${found.join(', ')}` : `${task.name} is not below ${folder}`;
          if (directory === undefined || found.length > 1)
            return Promise.reject(new TaskError(`${file}: ${problem}; expected one directory whose task.toml names it`));
          return Promise.resolve(directory);
        },
      };
    }),
  };
}
