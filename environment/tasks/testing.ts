/** Task directories for the tests of this folder. */
import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after } from 'node:test';
import { TaskError } from '../errors.ts';
import { loadTask } from './task.ts';

export const minimalTask = {
  'task.toml': '',
  'instruction.md': 'Do it.\n',
  'environment/Dockerfile': 'FROM some/image\n',
  'tests/test.sh': 'true\n',
};
/** undefined removes a file of the minimal task. */
export type TaskFiles = Readonly<Record<string, string | undefined>>;

export interface TaskFolder {
  /** Removed after the tests. */
  readonly root: string;
  /** Writes the minimal task with these files. @returns its directory */
  readonly write: (files: TaskFiles, name?: string) => Promise<string>;
  /** Asserts that the task is refused with such a message, which begins with a path in its directory. */
  readonly refused: (files: TaskFiles, message: RegExp) => Promise<void>;
}

export async function taskFolder(): Promise<TaskFolder> {
  const root = await mkdtemp(join(tmpdir(), 'terminal-rsi-task-'));
  after(() => rm(root, { recursive: true }));
  let count = 0;
  const write = async (files: TaskFiles, name = `task-${count++}`): Promise<string> => {
    const directory = join(root, name);
    for (const [path, data] of Object.entries({ ...minimalTask, ...files })) {
      if (data === undefined) continue;
      await mkdir(dirname(join(directory, path)), { recursive: true });
      await writeFile(join(directory, path), data);
    }
    return directory;
  };
  const refused = async (files: TaskFiles, message: RegExp): Promise<void> => {
    const directory = await write(files);
    await assert.rejects(
      loadTask(directory),
      (error) => error instanceof TaskError && message.test(error.message) && error.message.startsWith(directory),
      `${JSON.stringify(files)}: ${message}`,
    );
  };
  return { root, write, refused };
}
