/** Datasets: folders, registries with tasks beside them or in git, manifests with digests; globs, limits, and tasks that are broken. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { InfrastructureError, TaskError, UserError } from '../errors.ts';
import { openDataset, type Dataset } from './datasets.ts';
import { globMatcher } from './globs.ts';
import { taskDigest } from './task-digest.ts';
import { taskFolder } from './testing.ts';

const { root, write } = await taskFolder();
const ids = ({ tasks }: Dataset): string[] => tasks.map(({ id, task }) => (task ? id : `${id} (broken)`));
const named = (name: string): Record<string, string> => ({ 'task.toml': `[task]\nname = "${name}"\n` });

describe('a folder of tasks', () => {
  it('lists tasks by path, and those that are broken with their error', async () => {
    await write(named('org/beta'), 'plain/b');
    await write({}, 'plain/a');
    await write({ 'task.toml': 'broken =' }, 'plain/nested/c');
    await write({}, 'plain/nested/a');
    const dataset = await openDataset(join(root, 'plain'));
    assert.deepEqual([dataset.name, dataset.version], ['plain', undefined]);
    assert.deepEqual(ids(dataset), ['a', 'b', 'a (broken)', 'c (broken)']);
    assert.deepEqual(
      dataset.tasks.map(({ name }) => name),
      ['a', 'org/beta', 'a', 'c'],
    );
    assert.match(dataset.tasks[2]?.error?.message ?? '', /task id a is also used by .*plain\/a; expected unique directory names/);
    assert.match(dataset.tasks[3]?.error?.message ?? '', /plain\/nested\/c\/task\.toml: not valid TOML/);
  });

  it('may be a single task', async () => {
    assert.deepEqual(ids(await openDataset(await write({}, 'alone'))), ['alone']);
  });

  it('is narrowed by globs over id and name, then by a limit', async () => {
    for (const name of ['sort-1', 'sort-2', 'find-1', 'find-2'])
      await write(named(`org/${name.replace('find', 'search')}`), `many/${name}`);
    const open = async (options: Parameters<typeof openDataset>[1]): Promise<string[]> =>
      ids(await openDataset(join(root, 'many'), options));
    assert.deepEqual(await open({ include: ['sort-*', 'find-2'] }), ['find-2', 'sort-1', 'sort-2']);
    assert.deepEqual(await open({ include: ['org/search-?'] }), ['find-1', 'find-2']);
    assert.deepEqual(await open({ include: ['*-[!1]'], exclude: ['sort*'] }), ['find-2']);
    assert.deepEqual(await open({ exclude: ['*-1'], limit: 1 }), ['find-2']);
    await assert.rejects(
      open({ include: ['none*'] }),
      (error) => error instanceof UserError && /none of its 4 tasks matches none\*; it has/.test(error.message),
    );
  });

  it('says what is missing', async () => {
    await assert.rejects(openDataset('/nosuch'), (error) => error instanceof UserError && /\/nosuch: no such dataset/.test(error.message));
    await mkdir(join(root, 'empty'));
    await assert.rejects(openDataset(join(root, 'empty')), /no task in it/);
    await writeFile(join(root, 'empty/tasks.txt'), '');
    await assert.rejects(openDataset(join(root, 'empty/tasks.txt')), /expected a folder of tasks, a dataset\.toml or a registry\.json/);
  });
});

describe('globMatcher', () => {
  it('reads shell patterns as fnmatch does', () => {
    for (const [pattern, name, expected] of [
      ['a*', 'a/b', true],
      ['a?c', 'a.c', true],
      ['[a-c]x', 'bx', true],
      ['[!a-c]x', 'bx', false],
      ['[]]', ']', true],
      ['[!]]', ']', false],
      ['[^a]', '^', true],
      ['a[', 'a[', true],
      ['a.b', 'axb', false],
      ['A', 'a', false],
      ['(a|b)+', 'a', false],
      ['', '', true],
    ] as const)
      assert.equal(globMatcher(pattern)(name), expected, `${pattern} ${name}`);
  });
});

describe('registry.json', () => {
  const registry = async (name: string, datasets: unknown): Promise<string> => {
    await writeFile(join(root, name), JSON.stringify(datasets));
    return join(root, name);
  };

  it('holds datasets by name and version', async () => {
    await write(named('org/one'), 'local/one');
    await write({}, 'local/two');
    const task = (id: string): unknown => ({ name: `registered-${id}`, path: `local/${id}` });
    const file = await registry('registry.json', [
      { name: 'set', version: '1.9', description: '', tasks: [task('one')], metrics: [{ type: 'mean' }] },
      { name: 'set', version: '1.10', description: '', tasks: [task('two'), task('one'), task('gone')] },
      { name: 'other', version: 'head', tasks: [] },
    ]);
    assert.deepEqual(ids(await openDataset(`${file}#set@1.9`)), ['one']);
    const newest = await openDataset(`${file}#set`);
    assert.deepEqual([newest.name, newest.version, ids(newest)], ['set', '1.10', ['two', 'one', 'gone (broken)']]);
    assert.match(newest.tasks[2]?.error?.message ?? '', /local\/gone: cannot be read as a task directory/);
    await assert.rejects(
      openDataset(file),
      /which dataset\? Expected .*registry\.json#NAME@VERSION with one of set@1\.9, set@1\.10, other@head/,
    );
    await assert.rejects(openDataset(`${file}#set@2`), (error) => error instanceof UserError && /has no dataset set@2/.test(error.message));
  });

  it('is refused where it is not one', async () => {
    await assert.rejects(
      openDataset(await registry('bad.json', [{ name: 'x' }])),
      (error) => error instanceof TaskError && /bad\.json: 0\.version/.test(error.message),
    );
    await writeFile(join(root, 'text.json'), 'text');
    await assert.rejects(openDataset(join(root, 'text.json')), /not valid JSON/);
    const outside = [{ name: 'x', version: '1', tasks: [{ name: 't', git_url: 'file:///x', path: 'a/../../b' }] }];
    await assert.rejects(
      openDataset(await registry('outside.json', outside)),
      /task t: path a\/\.\.\/\.\.\/b; expected a path within its repository/,
    );
  });

  it('brings tasks from git, of the commit that it names, once', async () => {
    const repository = join(root, 'repository');
    const git = (...args: string[]): string =>
      execFileSync('git', ['-C', repository, '-c', 'user.name=t', '-c', 'user.email=t@t', ...args], { encoding: 'utf8' }).trim();
    await mkdir(repository);
    git('init', '--quiet', '--initial-branch=main');
    await write({ 'instruction.md': 'old' }, 'repository/tasks/one');
    await write({}, 'repository/unused/three');
    git('add', '.');
    git('commit', '--quiet', '-m', 'old');
    const old = git('rev-parse', 'HEAD');
    await write({ 'instruction.md': 'new' }, 'repository/tasks/one');
    await write({}, 'repository/tasks/two');
    git('add', '.');
    git('commit', '--quiet', '-m', 'new');
    const task = (id: string, commit?: string): unknown => ({
      name: id,
      git_url: `file://${repository}`,
      git_commit_id: commit,
      path: `tasks/${id}`,
    });
    const file = await registry('git.json', [
      { name: 'old', version: '1', tasks: [task('one', old), task('two', old)] },
      { name: 'new', version: '1', tasks: [task('one'), task('two', 'head')] },
      { name: 'branch', version: '1', tasks: [task('two', 'main')] },
      { name: 'gone', version: '1', tasks: [{ name: 'x', git_url: `file://${root}/nowhere`, path: 'x' }] },
      { name: 'unknown', version: '1', tasks: [task('one', 'no-such-branch')] },
    ]);
    const cache = join(root, 'cache');
    const past = await openDataset(`${file}#old`, { cache });
    assert.deepEqual(ids(past), ['one', 'two (broken)']);
    assert.equal(past.tasks[0]?.task?.instruction, 'old');
    const [clone = ''] = await readdir(cache);
    assert.deepEqual(await readdir(join(cache, clone)), ['tasks']);
    const now = await openDataset(`${file}#new`, { cache });
    assert.deepEqual([ids(now), now.tasks[0]?.task?.instruction], [['one', 'two'], 'new']);
    assert.deepEqual(ids(await openDataset(`${file}#branch`, { cache })), ['two']);
    const clones = await readdir(cache);
    await openDataset(`${file}#old`, { cache });
    assert.deepEqual(await readdir(cache), clones);
    await assert.rejects(
      openDataset(`${file}#gone`, { cache }),
      (error) => error instanceof InfrastructureError && /nowhere: git ls-remote failed: .*By hand: git clone/s.test(error.message),
    );
    await assert.rejects(openDataset(`${file}#unknown`, { cache }), /has no no-such-branch; expected a commit, branch or tag/);
    assert.deepEqual(await readdir(cache), clones);
  });
});

describe('dataset.toml', () => {
  it('pins tasks and files by digest', async () => {
    const good = await write(named('org/good'), 'pinned/tasks/good');
    const changed = await write(named('org/changed'), 'pinned/changed');
    await write(named('org/double'), 'pinned/double-1');
    await write(named('org/double'), 'pinned/double-2');
    const digests = { good: taskDigest(good), changed: taskDigest(changed) };
    await writeFile(join(changed, 'tests/test.sh'), 'exit 1\n');
    const task = (name: string, digest: string): string => `[[tasks]]\nname = "org/${name}"\ndigest = "${digest}"\n`;
    const metric = 'print(1)\n';
    const file = (digest: string): string => `[[files]]\npath = "metric.py"\ndigest = "${digest}"\n`;
    const right = `sha256:${createHash('sha256').update(metric).digest('hex')}`;
    const manifest = `[dataset]\nname = "org/set"\nversion = "3"\n${task('good', digests.good)}${task('good', digests.good)}${task('changed', digests.changed)}${task('gone', digests.good)}${task('double', digests.good)}`;
    const folder = join(root, 'pinned');
    await writeFile(join(folder, 'metric.py'), metric);
    await writeFile(join(folder, 'dataset.toml'), `${manifest}${file(right)}`);

    const dataset = await openDataset(folder);
    assert.deepEqual([dataset.name, dataset.version], ['org/set', '3']);
    assert.deepEqual(ids(dataset), ['good', 'changed (broken)', 'gone (broken)', 'double (broken)']);
    const messages = dataset.tasks.map(({ error }) => error?.message ?? '');
    assert.match(
      messages[1] ?? '',
      new RegExp(`pinned/changed: its files have the digest sha256:[0-9a-f]{64}; expected ${digests.changed}`),
    );
    assert.match(messages[2] ?? '', /org\/gone is not below .*pinned; expected one directory whose task\.toml names it/);
    assert.match(messages[3] ?? '', /several directories hold org\/double: .*double-1, .*double-2/);
    assert.deepEqual(ids(await openDataset(join(folder, 'dataset.toml'), { include: ['org/g*'], exclude: ['gone'] })), ['good']);

    await writeFile(join(folder, 'dataset.toml'), `${manifest}${file(digests.good)}`);
    await assert.rejects(
      openDataset(folder),
      (error) => error instanceof TaskError && /metric\.py: has the digest sha256:.*; expected/.test(error.message),
    );
    await writeFile(join(folder, 'dataset.toml'), `${manifest}${file('')}`);
    assert.equal((await openDataset(folder)).tasks.length, 4);
  });

  it('is refused by key where it is wrong', async () => {
    for (const [toml, message] of [
      ['', /dataset\.toml: dataset: /],
      ['[dataset]\nname = "plain"', /dataset\.name: expected organisation\/name/],
      ['[dataset]\nname = "a/b"\n[[tasks]]\nname = "a/c"\ndigest = "sha256:AB"', /tasks\.0\.digest: expected sha256:/],
      ['[dataset]\nname = "a/b"\n[[files]]\npath = "../x"', /files\.0\.path: expected a file name/],
      ['[dataset]\nname = "a/b"\n[[files]]\npath = "gone.py"', /gone\.py: missing/],
    ] as const) {
      await mkdir(join(root, 'wrong'), { recursive: true });
      await writeFile(join(root, 'wrong/dataset.toml'), toml);
      await assert.rejects(openDataset(join(root, 'wrong')), (error) => error instanceof TaskError && message.test(error.message), toml);
    }
  });
});
