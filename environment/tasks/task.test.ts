/** Task directories in Harbor's format: what is read, what is ignored with a warning, what is refused by name. */
import assert from 'node:assert/strict';
import { symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { TaskError } from '../errors.ts';
import { loadSuite, loadTask, TaskCache } from './task.ts';
import { taskFolder } from './testing.ts';

const { root, write, refused } = await taskFolder();
const fixtures = join(import.meta.dirname, '../../tests/fixtures/tasks');
const text = (tree: ReadonlyMap<string, { data: Uint8Array }> | undefined, path: string): string | undefined =>
  tree?.get(path) && Buffer.from(tree.get(path)?.data ?? '').toString();

describe('loadTask', () => {
  it('reads a complete task', async () => {
    const task = await loadTask(join(fixtures, 'sort-names'));
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

  it('takes workdir, variables, limits and needs from task.toml', async () => {
    const toml = `
[environment]
workdir = "/srv"
memory = "2G"
cpus = 2
gpus = 1
build_timeout_sec = 30
[environment.env]
A = "toml"
T = "\${HOST_TOKEN}"
[verifier.env]
B = "v"
[solution.env]
C = "s"
`;
    const task = await loadTask(
      await write({ 'task.toml': toml, 'environment/Dockerfile': 'FROM x\nENV A=docker D=1\nWORKDIR /elsewhere\n' }),
    );
    const { memoryMb, cpus, buildTimeoutSec, needs, env } = task.environment;
    assert.deepEqual([task.workdir, memoryMb, cpus, buildTimeoutSec, needs], ['/srv', 2048, 2, 30, ['gpu']]);
    assert.deepEqual([env, task.verifierEnv, task.solutionEnv], [{ A: 'toml', D: '1', T: '${HOST_TOKEN}' }, { B: 'v' }, { C: 's' }]);
  });

  it('takes users, health check, hooks and artifacts', async () => {
    const toml = `
artifacts = ["out.txt", { source = "/var/log", destination = "logs", exclude = ["*.gz"] }]
[agent]
user = 1000
[verifier]
user = "root"
[[verifier.collect]]
command = "dump"
timeout_sec = 5
user = "postgres"
[environment.healthcheck]
command = "curl localhost"
retries = 5
`;
    const { agentUser, verifierUser, collect, artifacts, healthcheck } = await loadTask(await write({ 'task.toml': toml }));
    assert.deepEqual([agentUser, verifierUser], ['1000', 'root']);
    assert.deepEqual(collect, [{ command: 'dump', timeoutSec: 5, user: 'postgres' }]);
    assert.deepEqual(artifacts, [
      { source: 'out.txt', exclude: [] },
      { source: '/var/log', destination: 'logs', exclude: ['*.gz'] },
    ]);
    assert.deepEqual(healthcheck, {
      command: 'curl localhost',
      intervalSec: 5,
      timeoutSec: 30,
      startPeriodSec: 0,
      startIntervalSec: 5,
      retries: 5,
    });
  });

  it('leaves the fields out that the task does not use', async () => {
    const task = await loadTask(join(fixtures, 'sort-names'));
    const fields = Object.keys(task).sort();
    assert.deepEqual(fields, [
      ...['agentTimeoutSec', 'checksum', 'dir', 'environment', 'family', 'id', 'instruction', 'solution', 'solutionEnv', 'tests', 'tier'],
      ...['verifierEnv', 'verifierTimeoutSec', 'workdir'],
    ]);
  });

  it('hides canary lines from the agent', async () => {
    const task = await loadTask(
      await write({ 'instruction.md': '<!-- BENCHMARK canary GUID 1 -->\n# canary too\n\nSort it.\n# canary inside stays\n' }),
    );
    assert.equal(task.instruction, 'Sort it.\n# canary inside stays\n');
  });

  it('warns about unknown keys, wherever they stand, and ignores them', async () => {
    const warnings: string[] = [];
    const toml = `
colour = 1
[metadata]
anything = 1
tier = "gold"
[environment]
memory_limit = 3
[environment.healthcheck]
command = "true"
shell = "sh"
[verifier.environment]
image = "x"
`;
    const task = await loadTask(await write({ 'task.toml': toml }), { warn: (message) => warnings.push(message) });
    assert.deepEqual(
      warnings.map((warning) => warning.replace(/^.*task\.toml: /, '')),
      [
        'unknown key colour is ignored',
        'unknown key environment.memory_limit is ignored',
        'unknown key environment.healthcheck.shell is ignored',
        'unknown key verifier.environment.image is ignored',
        'metadata.tier = "gold" is ignored; expected easy, medium, hard, extreme',
      ],
    );
    assert.equal(task.tier, 'medium');
  });

  it('names file, key, value and what was expected when a value is wrong', async () => {
    await refused({ 'task.toml': '[verifier]\nenvironment_mode = "own"\n' }, /task\.toml: verifier\.environment_mode = "own": .*"shared"/);
    await refused({ 'task.toml': '[agent]\ntimeout_sec = -1\n' }, /agent\.timeout_sec = -1: .*>0/);
    await refused({ 'task.toml': '[environment]\nworkdir = "app"\n' }, /environment\.workdir = "app": expected an absolute path/);
    await refused({ 'task.toml': '[task]\nname = "plain"\n' }, /task\.name = "plain": expected organisation\/name/);
    await refused({ 'task.toml': '[environment]\nmemory = "2T"\n' }, /environment\.memory = "2T": expected a size such as/);
    await refused({ 'task.toml': '[[environment.mcp_servers]]\nname = "m"\n' }, /mcp_servers = .*MCP servers are not supported/);
    await refused({ 'task.toml': 'a = = 1' }, /not valid TOML/);
  });

  it('refuses directories that lack something, or hold what cannot be run here', async () => {
    await refused({ 'task.toml': undefined }, /task\.toml: missing/);
    await refused({ 'instruction.md': undefined }, /instruction\.md: missing/);
    await refused({ 'tests/test.sh': undefined, 'tests/test.bat': '' }, /tests\/test\.sh: missing/);
    await refused({ 'environment/Dockerfile': undefined }, /environment\/Dockerfile: missing; expected it, or environment\.docker_image/);
    await refused({ 'environment/docker-compose.yaml': 'services: {}\n' }, /compose environments are not supported/);
    await refused({ 'trajectory.json': '{}' }, /trajectory\.json: prior context is not supported/);
    await refused({ 'environment/Dockerfile': 'RUN x\n' }, /Dockerfile:1: RUN before FROM/);
    await refused({ 'environment/Dockerfile': 'FROM x\nWORKDIR /\n' }, /workdir \/; expected an absolute path other than \//);
  });

  it('keeps what .harborignore names out of tests and solution, and nowhere else', async () => {
    const task = await loadTask(
      await write({
        '.harborignore': 'tests/\n',
        'environment/.harborignore': '*\n',
        'environment/a.log': '',
        'tests/.harborignore': '# no logs\n*.log\n!keep.log\n/data/\n',
        'tests/a.log': '',
        'tests/keep.log': '',
        'tests/data/keep.log': '',
        'tests/sub/data/b.log': '',
        'tests/sub/data/x': '',
        'tests/sub/.harborignore': '!b.log\n',
        'solution/solve.sh': '',
        'solution/.harborignore': 'notes',
        'solution/notes/a': '',
      }),
    );
    assert.deepEqual([...task.tests.keys()], ['keep.log', 'sub/data/b.log', 'sub/data/x', 'test.sh']);
    assert.deepEqual([...(task.solution?.keys() ?? [])], ['solve.sh']);
    assert.ok(task.environment.build?.context.has('a.log'));
    await refused({ 'tests/.harborignore': '*.sh' }, /tests\/test\.sh: excluded by \.harborignore/);
  });

  it('follows links within the directory, and refuses others', async () => {
    const directory = await write({ 'shared/data.txt': 'd' });
    await symlink('../shared', join(directory, 'tests/shared'));
    await symlink('../instruction.md', join(directory, 'tests/copy.md'));
    const task = await loadTask(directory);
    assert.deepEqual([text(task.tests, 'shared/data.txt'), text(task.tests, 'copy.md')], ['d', 'Do it.\n']);
    for (const [target, message] of [
      [root, /links to .*; expected links that stay within the task directory/],
      ['nowhere', /a link to nothing/],
      ['..', /links to a directory that it lies in/],
    ] as const) {
      const bad = await write({});
      await symlink(target, join(bad, 'tests/link'));
      await assert.rejects(loadTask(bad), (error) => error instanceof TaskError && message.test(error.message));
    }
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
