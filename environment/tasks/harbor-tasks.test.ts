/** Task directories against Harbor's own model: the same ones are tasks, with the same instructions, tests and digests. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { harborPython } from '../../tests/harbor-python.ts';
import { TaskError } from '../errors.ts';
import type { FileTree } from '../types.ts';
import { globMatcher } from './globs.ts';
import { taskDigest } from './task-digest.ts';
import { loadTask, taskDirectories } from './task.ts';
import { taskFolder, type TaskFiles } from './testing.ts';

const harbor = await harborPython();
const skip = 'skip' in harbor ? harbor.skip : false;
const { write } = await taskFolder();
const repository = join(import.meta.dirname, '../..');

async function ask<T>(script: string, question: unknown): Promise<T> {
  if ('skip' in harbor) throw new Error(harbor.skip);
  return JSON.parse(await harbor.run(script, JSON.stringify(question))) as T;
}

const read = `
import json, sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
from harbor.models.task.task import Task
from harbor.models.task.verifier_mode import resolve_verifier_environment_definition
from harbor.publisher.packager import Packager
def files(task, directory):
    if not directory.exists(): return []
    return [path.as_posix() for path in task.file_filter.select(directory).relative_paths if (directory / path).is_file()]
def tests(task, step=None):
    definition = resolve_verifier_environment_definition(task.config, task.paths, step)
    if definition and definition.bundled_tests: return []
    own = files(task, task.paths.step_tests_dir(step.name)) if step else []
    return sorted({*files(task, task.paths.tests_dir), *own})
def solution(task, step=None):
    own = files(task, task.paths.step_solution_dir(step.name)) if step else []
    return own or files(task, task.paths.solution_dir)
def describe(directory):
    task = Task(directory)
    steps = [[task.step_instruction(step.name), tests(task, step), solution(task, step)] for step in task.config.steps or []]
    return {
        "valid": Task.is_valid_dir(directory),
        "name": task.name,
        "phases": steps or [[task.instruction, tests(task), solution(task)]],
        "digest": "sha256:" + Packager.compute_content_hash(Path(directory))[0],
    }
results = []
for directory in json.loads(sys.argv[1]):
    try:
        results.append(describe(directory))
    except Exception as error:
        results.append(str(error))
print(json.dumps(results))
`;
interface Description {
  readonly valid: boolean;
  readonly name: string;
  /** Instruction, tests and solution of each step. */
  readonly phases: (readonly [string, string[], string[]])[];
  readonly digest: string;
}

async function describeTask(directory: string): Promise<Description> {
  const task = await loadTask(directory);
  return {
    valid: true,
    name: task.name ?? task.id,
    phases: (task.steps ?? [task]).map(({ instruction, tests, solution }) => [instruction, byCodePoint(tests), byCodePoint(solution)]),
    digest: taskDigest(directory),
  };
}

/** In Python's order. */
const byCodePoint = (files: FileTree | undefined): string[] =>
  [...(files?.keys() ?? [])].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));

async function assertSame(directories: readonly string[]): Promise<void> {
  const theirs = await ask<(Description | string)[]>(read, directories);
  for (const [index, directory] of directories.entries()) {
    const found = theirs[index];
    assert.ok(typeof found === 'object', `${directory}: Harbor says ${JSON.stringify(found)}`);
    assert.deepEqual(await describeTask(directory), found, directory);
  }
}

const odd: readonly TaskFiles[] = [
  {},
  {
    'task.toml': '[task]\nname = "org/name"\n',
    'README.md': 'r',
    'other.txt': 'o',
    'data/x': 'x',
    'solution/solve.sh': 's',
    'solution/a/b': '',
  },
  { 'instruction.md': '<!-- x CANARY y -->\n  # canary\n\n\nText\n# canary\n' },
  { 'instruction.md': '\n\n Begin \n' },
  { 'tests/__pycache__/a.pyc': '', 'tests/a.pyc': '', 'tests/b~': '', 'environment/.DS_Store': '', 'environment/sub/x.swp': '' },
  {
    '.gitignore': '*.log\n!keep.log\nbuild/\n/tests/local\n',
    'tests/a.log': '',
    'tests/keep.log': '',
    'tests/build/x': '',
    'tests/local/x': '',
  },
  {
    '.gitignore': 'tests/data\n!tests/data/keep\n\\#odd\n',
    'tests/data/keep': '',
    'tests/data/x': '',
    'tests/#odd': '',
    'tests/x.pyc': '',
  },
  {
    '.gitignore': '**/deep/**/x\n?.txt\n[ab].md\n',
    'tests/deep/a/b/x': '',
    'tests/deep/x': '',
    'tests/q.txt': '',
    'tests/a.md': '',
    'tests/c.md': '',
  },
  { 'tests/ä': '1', 'tests/z': '2', 'tests/\u{1F600}': '3', 'tests/\uFF5E': '4', 'tests/A': '5', 'tests/a b': '6' },
  {
    'tests/.harborignore': '*.log\n!keep.log\ndata/\n',
    'tests/a.log': '',
    'tests/keep.log': '',
    'tests/data/x': '',
    'tests/sub/data/y': '',
  },
  {
    'tests/.harborignore': '/a\n',
    'tests/a/x': '',
    'tests/b/a/x': '',
    'tests/b/.harborignore': '# none\n\n!/a\n',
    'solution/.harborignore': '*',
    'solution/x': '',
  },
  {
    '.harborignore': 'tests\n',
    'environment/.harborignore': '*\n',
    'environment/x': '',
    'tests/x/.harborignore': '*\n!y\n',
    'tests/x/y': '',
    'tests/x/z': '',
  },
];

describe('task directories and Harbor', { skip }, () => {
  it('agrees on odd tasks: canary lines, ignore rules, names, digests', async () => {
    const directories = await Promise.all(odd.map((files) => write(files)));
    const linked = await write({ 'environment/shared/x': 'x' });
    await symlink('../environment/shared/x', join(linked, 'tests/link'));
    await assertSame([...directories, linked]);
    // A linked directory is part of the task here and in Harbor, and of the digest in neither.
    const withDirectory = await write({ 'environment/shared/x': 'x' });
    const before = taskDigest(withDirectory);
    await symlink('../environment/shared', join(withDirectory, 'tests/folder'));
    const [found] = await ask<Description[]>(read, [withDirectory]);
    assert.deepEqual([taskDigest(withDirectory), found?.digest], [before, before]);
  });

  it('agrees on tasks of several steps', async () => {
    const steps = '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n';
    const directory = await write({
      'task.toml': steps,
      'instruction.md': undefined,
      'steps/one/instruction.md': '# canary\nFirst',
      'steps/two/instruction.md': 'Second',
      'steps/two/workdir/setup.sh': '',
      'steps/two/tests/.harborignore': 'x',
    });
    await assertSame([directory]);
  });

  it('refuses the directories that Harbor refuses', async () => {
    const step = '[[steps]]\nname = "one"\n';
    const broken: readonly TaskFiles[] = [
      { 'task.toml': undefined },
      { 'instruction.md': undefined },
      { 'tests/test.sh': undefined },
      { 'tests/test.sh': undefined, 'tests/test.bat': '' },
      { 'tests/.harborignore': 'test.sh' },
      { 'task.toml': step },
      { 'task.toml': step, 'steps/one/instruction.md': '', 'tests/test.sh': undefined },
      { 'task.toml': '[verifier]\nenvironment_mode = "separate"\n', 'tests/test.sh': undefined },
    ];
    const directories = await Promise.all(broken.map((files) => write(files)));
    const outside = await write({});
    await symlink('/etc/passwd', join(outside, 'tests/link'));
    directories.push(outside);
    const theirs = await ask<unknown[]>(read, directories);
    for (const [index, directory] of directories.entries()) {
      assert.equal(typeof theirs[index], 'string', `Harbor accepts ${directory} ${JSON.stringify(broken[index])}`);
      await assert.rejects(loadTask(directory), TaskError, JSON.stringify(broken[index]));
    }
  });

  it('validates the hand-written tasks and one of each built family', async () => {
    const families = new Map<string, string>();
    for (const directory of taskDirectories(join(repository, 'suites/built'))) {
      const { family } = await loadTask(directory);
      if (!families.has(family)) families.set(family, directory);
    }
    const written = join(repository, 'suites/terminal');
    const directories = [...families.values(), ...(existsSync(written) ? taskDirectories(written) : [])];
    assert.ok(directories.length >= 12 + 10, String(directories.length));
    await assertSame(directories);
  });
});

describe('globs and Harbor', { skip }, () => {
  it('match as fnmatch', async () => {
    const patterns = [
      '*',
      'a*',
      '?',
      '[a-c]x',
      '[!a-c]x',
      '[]]',
      '[!]]',
      '[^a]',
      'a[',
      '[a',
      'a.b',
      '(a|b)+',
      '',
      '[\\]',
      '*/b',
      '[a-]',
      '**',
      'a\\*',
    ];
    const names = ['', 'a', 'b', 'ax', 'dx', ']', '^', 'a[', '[a', 'a.b', 'axb', 'a/b', '\\', '-', '(a|b)+', 'A', 'a\\*', 'a\nb'];
    const script =
      'import json, sys; from fnmatch import fnmatch; p, n = json.loads(sys.argv[1]); print(json.dumps([[fnmatch(x, y) for x in n] for y in p]))';
    assert.deepEqual(
      patterns.map((pattern) => names.map(globMatcher(pattern))),
      await ask(script, [patterns, names]),
    );
  });
});
