/** Harbor's task format: what is read, what is ignored with a warning, what is refused by name. */
import assert from 'node:assert/strict';
import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, describe, it } from 'node:test';
import { parseDockerfile } from './dockerfile.ts';
import { TaskError } from '../errors.ts';
import { loadSuite, loadTask, TaskCache } from './task.ts';
import { fixture, fixtures } from '../testing.ts';
import type { FileTree } from '../types.ts';

const work = await mkdtemp(join(tmpdir(), 'terminal-rsi-task-'));
after(() => rm(work, { recursive: true }));

const minimal = { 'task.toml': '', 'instruction.md': 'Do it.\n', 'environment/Dockerfile': 'FROM some/image\n', 'tests/test.sh': 'true\n' };
let count = 0;
async function write(files: Record<string, string>): Promise<string> {
  const directory = join(work, `task-${count++}`);
  for (const [path, data] of Object.entries({ ...minimal, ...files })) {
    await mkdir(dirname(join(directory, path)), { recursive: true });
    await writeFile(join(directory, path), data);
  }
  return directory;
}
const refused = async (files: Record<string, string>, message: RegExp): Promise<void> => {
  const directory = await write(files);
  await assert.rejects(
    loadTask(directory),
    (error) => error instanceof TaskError && message.test(error.message) && error.message.startsWith(directory),
  );
};

describe('loadTask', () => {
  it('reads a complete task', async () => {
    const task = await fixture('sort-names');
    assert.deepEqual(
      [task.id, task.family, task.tier, task.workdir, task.agentTimeoutSec, task.verifierTimeoutSec],
      ['sort-names', 'sort', 'easy', '/app', 60, 20],
    );
    assert.deepEqual([...task.environment.files.keys()], ['app/names.txt']);
    assert.deepEqual(task.environment.env, { GREETING: 'hello there' });
    assert.deepEqual([...task.tests.keys()], ['expected.txt', 'test.sh']);
    assert.deepEqual(
      [...(task.solution ?? [])].map(([path]) => path),
      ['solve.sh'],
    );
    assert.match(task.checksum, /^[0-9a-f]{64}$/);
  });

  it("fills in Harbor's defaults", async () => {
    const task = await loadTask(await write({}));
    assert.deepEqual(
      [task.family, task.tier, task.workdir, task.agentTimeoutSec, task.verifierTimeoutSec],
      [task.id, 'medium', '/app', Infinity, 600],
    );
    assert.equal(task.solution, undefined);
    assert.deepEqual(task.environment.needs, []);
  });

  it('takes workdir, variables, memory and needs from task.toml', async () => {
    const toml =
      '[environment]\nworkdir = "/srv"\nmemory = "2G"\ngpus = 1\nallow_internet = true\n[environment.env]\nA = "toml"\n[verifier.env]\nB = "v"\n[solution.env]\nC = "s"\n';
    const task = await loadTask(
      await write({ 'task.toml': toml, 'environment/Dockerfile': 'FROM x\nENV A=docker D=1\nWORKDIR /elsewhere\n' }),
    );
    assert.deepEqual([task.workdir, task.environment.memoryMb, task.environment.needs], ['/srv', 2048, ['network', 'gpu']]);
    assert.deepEqual([task.environment.env, task.verifierEnv, task.solutionEnv], [{ A: 'toml', D: '1' }, { B: 'v' }, { C: 's' }]);
  });

  it('hides canary lines from the agent', async () => {
    const task = await loadTask(
      await write({ 'instruction.md': '<!-- BENCHMARK canary GUID 1 -->\n# canary too\n\nSort it.\n# canary inside stays\n' }),
    );
    assert.equal(task.instruction, 'Sort it.\n# canary inside stays\n');
  });

  it('warns about unknown keys and ignores them', async () => {
    const warnings: string[] = [];
    await loadTask(await write({ 'task.toml': 'colour = 1\n[environment]\nmemory_limit = 3\n' }), {
      warn: (message) => warnings.push(message),
    });
    assert.deepEqual(
      warnings.map((warning) => warning.replace(/^.*: unknown/, 'unknown')),
      ['unknown key colour is ignored', 'unknown key environment.memory_limit is ignored'],
    );
  });

  it('names file, key, value and what was expected when a value is wrong', async () => {
    await refused({ 'task.toml': '[metadata]\ntier = "brutal"\n' }, /task\.toml: metadata\.tier = "brutal": .*"easy"/);
    await refused({ 'task.toml': '[agent]\ntimeout_sec = -1\n' }, /agent\.timeout_sec = -1: .*>0/);
    await refused({ 'task.toml': '[environment]\nworkdir = "app"\n' }, /environment\.workdir = "app"/);
    await refused({ 'task.toml': '[environment.env]\nKEY = "${HOST_KEY}"\n' }, /environment\.env\.KEY = .*literal string/);
    await refused({ 'task.toml': 'a = = 1' }, /not valid TOML/);
  });

  it('refuses features that neither sandbox has', async () => {
    await refused({ 'task.toml': '[[steps]]\nname = "one"\n' }, /steps = .*not supported/);
    await refused({ 'task.toml': '[environment]\nos = "windows"\n' }, /environment\.os = "windows": expected linux/);
    await refused({ 'task.toml': '[agent]\nuser = "nobody"\n' }, /agent\.user = "nobody": expected root/);
    await refused({ 'environment/docker-compose.yaml': 'services: {}\n' }, /compose environments are not supported/);
    await refused({ 'environment/Dockerfile': 'FROM x\nWORKDIR /\n' }, /workdir \/; expected an absolute path other than \//);
  });

  it('changes the checksum with any file', async () => {
    const checksums = await Promise.all(
      [{}, { 'tests/test.sh': 'false\n' }, { 'tests/extra': '' }].map(async (files) => (await loadTask(await write(files))).checksum),
    );
    assert.equal(new Set(checksums).size, 3);
    assert.equal((await loadTask(await write({}))).checksum, checksums[0]);
  });
});

describe('loadSuite', () => {
  it('loads every task below a directory, ordered, once', async () => {
    assert.deepEqual(
      (await loadSuite(fixtures)).map((task) => task.id),
      ['custom-reward', 'silent-verifier', 'slow-verifier', 'sort-names'],
    );
    await assert.rejects(loadSuite(join(fixtures, 'sort-names/tests')), /no task in it/);
    await assert.rejects(loadSuite('/nosuch'), TaskError);
  });

  it('caches by directory, but not failures', async () => {
    const cache = new TaskCache();
    const directory = await write({ 'task.toml': 'broken = ' });
    await assert.rejects(cache.load(directory));
    await writeFile(join(directory, 'task.toml'), '');
    assert.equal(await cache.load(directory), await cache.load(directory));
  });
});

describe('parseDockerfile', () => {
  const context: FileTree = new Map(
    ['Dockerfile', 'a.txt', 'dir/b.txt', 'dir/sub/c.txt'].map((path) => [path, { data: Buffer.from(path), mode: 0o644 }]),
  );
  const parse = (text: string): ReturnType<typeof parseDockerfile> => parseDockerfile(text, context, 'Dockerfile');

  it('resolves COPY against WORKDIR as Docker does', () => {
    const paths = (copy: string): string[] => [...parse(`FROM x\nWORKDIR /w\n${copy}\n`).files.keys()];
    assert.deepEqual(paths('COPY a.txt .'), ['w/a.txt']);
    assert.deepEqual(paths('COPY a.txt b'), ['w/b']);
    assert.deepEqual(paths('COPY a.txt /etc/'), ['etc/a.txt']);
    assert.deepEqual(paths('COPY dir /d'), ['d/b.txt', 'd/sub/c.txt']);
    assert.deepEqual(paths('COPY . /all'), ['all/a.txt', 'all/dir/b.txt', 'all/dir/sub/c.txt']);
    assert.deepEqual(paths('COPY a.txt dir/b.txt in/'), ['w/in/a.txt', 'w/in/b.txt']);
    assert.deepEqual(paths('COPY ["a.txt", "/x y"]'), ['x y']);
    assert.equal(parse('FROM x\nCOPY --chmod=755 a.txt /run').files.get('run')?.mode, 0o755);
  });

  it('reads ENV in both forms, with earlier variables, and joins continued lines', () => {
    const { env, run } = parse(
      `FROM x AS base\nENV A=1 B="two words" \\\n  C='$A'\nENV OLD form of it\nENV P=\${A}:$B\n# comment\nRUN echo a && \\\n # comment inside\n  echo b\n`,
    );
    assert.deepEqual(env, { A: '1', B: 'two words', C: '1', OLD: 'form of it', P: '1:two words' });
    assert.deepEqual(run, [`cd '/' && { echo a &&   echo b\n}`]);
  });

  it('refuses everything else by line and name', () => {
    for (const [text, message] of [
      ['', /no FROM/],
      ['RUN x\nFROM y', /:1: RUN before FROM/],
      ['FROM x\nEXPOSE 80', /:2: instruction EXPOSE is not supported/],
      ['FROM x\nFROM y', /:2: a second FROM/],
      ['FROM x\n\nCOPY --from=y a b', /:3: COPY --from=y/],
      ['FROM x\nCOPY *.txt /', /without wildcards/],
      ['FROM x\nCOPY ../secret /', /no such file or directory/],
      ['FROM x\nRUN ["a"]', /shell form/],
      ['FROM x\nRUN --mount=type=cache a', /shell form/],
    ] as const) {
      assert.throws(
        () => parse(text),
        (error) => error instanceof TaskError && message.test(error.message),
        text,
      );
    }
  });
});
