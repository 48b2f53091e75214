/** Test scripts that install what they need, unmodified and without a network. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { BASE_IMAGE } from '../docker/base-image.ts';
import { DockerProvider } from '../docker/provider.ts';
import { countContainers, fixture, noBaseImage, testRunKey } from '../testing.ts';
import type { FileTree, Task } from '../types.ts';
import { testNeeds } from './kit.ts';
import { kitWheels } from './kit-wheels.ts';
import { verifySeparate } from './separate.ts';
import type { Judged } from './test-run.ts';

const tree = (files: Readonly<Record<string, string>>): FileTree =>
  new Map(Object.entries(files).map(([path, text]) => [path, { data: Buffer.from(text), mode: 0o644 }]));
const reward = '\nif [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi\n';
/** As in Terminal-Bench 2. */
const bench = (packages: string): string => `#!/bin/bash
apt-get update
apt-get install -y curl
curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh
source $HOME/.local/bin/env
uvx -p 3.13 ${packages} pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA
${reward}`;
const usual = '-w pytest==8.4.1 -w pytest-json-ctrf==0.3.5';
const test = `from pathlib import Path
def test_exists():
    assert Path('/app/answer').exists()
def test_right():
    assert Path('/app/answer').read_text() == '42'
`;

/** Why Docker tests with Python cannot run here, or false. */
async function skipped(): Promise<string | false> {
  const skip = await noBaseImage();
  if (skip !== false) return skip;
  return await kitWheels().then(
    () => false,
    (error: Error) => error.message,
  );
}

describe('the kit', { skip: await skipped() }, () => {
  let base: Task;
  const provider = new DockerProvider();
  before(async () => {
    const task = await fixture('sort-names');
    base = { ...task, environment: { ...task.environment, image: BASE_IMAGE, files: new Map(), run: [] } };
  });
  after(async () => {
    await provider.close();
    assert.equal(await countContainers(testRunKey), 0, 'containers left behind');
  });
  let number = 0;
  const judge = (script: string, answer = '42', files: Readonly<Record<string, string>> = {}): Promise<Judged> => {
    const episodeId = `kit-${number++}`;
    const left = Object.entries({ answer, ...files }).map(([path, text]) => [
      path,
      { data: Buffer.from(text).toString('base64'), mode: 0o644 },
    ]);
    return verifySeparate({
      task: { ...base, tests: tree({ 'test.sh': script, 'test_outputs.py': test }) },
      snapshot: { episodeId, files: Object.fromEntries(left) as Record<string, { data: string; mode: number }> },
      provider,
      labels: { runKey: testRunKey, episodeId, purpose: 'verify' },
    });
  };
  const results = ({ verdict: { outcome, checks, error } }: Judged): unknown[] => [
    outcome,
    ...checks.map(({ passed }) => passed),
    ...(error ? [error.type] : []),
  ];

  it('runs a script that fetches uv and pytest, without a network: right passes, wrong fails check by check', async () => {
    const [right, wrong] = await Promise.all([judge(bench(usual)), judge(bench(usual), '41')]);
    assert.deepEqual(results(right), ['passed', true, true]);
    assert.equal(right.verdict.checks[0]?.name, 'test_outputs.py::test_exists');
    assert.deepEqual(results(wrong), ['failed', true, false]);
    assert.deepEqual([...right.files.keys()], ['ctrf.json', 'reward.txt', 'test-stdout.txt']);
  });

  it('gives no verdict, rather than the script’s 0, where the script needs what the kit lacks, and names it (failure 10)', async () => {
    const [python, system] = await Promise.all([
      judge(bench(`${usual} -w left-pad==1.3`)),
      judge(`#!/bin/bash\napt-get install -y octave${reward}`),
    ]);
    assert.deepEqual(results(python), ['no-verdict', 'VerifierKitError']);
    assert.match(python.verdict.error?.message ?? '', /lacks: package left-pad==1\.3$/);
    assert.deepEqual(results(system), ['no-verdict', 'VerifierKitError']);
    assert.match(system.verdict.error?.message ?? '', /lacks: apt package octave$/);
  });

  it('uses its own version where another is asked for, and says so beside the logs', async () => {
    const { verdict, files } = await judge(bench('-w pytest==8.3.5 -w pytest-json-ctrf'));
    assert.equal(verdict.outcome, 'passed');
    assert.equal(Buffer.from(files.get('kit-notes.txt')?.data ?? '').toString(), 'pytest==8.3.5 was asked for; 8.4.1 is used\n');
  });

  it('knows the other ways to pytest: uv add and run, uv venv, pip', async () => {
    const run = '--ctrf /logs/verifier/ctrf.json /tests/test_outputs.py';
    for (const judged of await Promise.all(
      [
        `uv init\nuv add pytest==8.4.1 pytest-json-ctrf==0.3.5\nuv run pytest ${run}`,
        `uv venv .tests\nsource .tests/bin/activate\nuv pip install pytest pytest-json-ctrf\npython -m pytest ${run}`,
        `pip install -q pytest==8.4.1 pytest-json-ctrf requests && python3 -c 'import requests' && pytest ${run}`,
      ].map((script) => judge(`#!/bin/bash\n${script}${reward}`)),
    ))
      assert.deepEqual(results(judged), ['passed', true, true], Buffer.from(judged.files.get('test-stdout.txt')?.data ?? '').toString());
  });

  it('runs no pytest, plugin, conftest or settings that the agent left in its workdir (failure 12)', async () => {
    const pass = 'import os\nos._exit(0)\n';
    const planted = {
      'pytest.py': pass,
      'conftest.py': pass,
      'evil.py': pass,
      'evil-1.dist-info/entry_points.txt': '[pytest11]\nevil = evil\n',
      'evil-1.dist-info/METADATA': 'Metadata-Version: 2.1\nName: evil\nVersion: 1\n',
      'sitecustomize.py': pass,
      'pytest.ini': '[pytest]\naddopts = --collect-only\n',
    };
    const install = '#!/bin/bash\npip install pytest pytest-json-ctrf\n';
    for (const command of ['uvx -w pytest -w pytest-json-ctrf pytest', 'python3 -m pytest', 'pytest'])
      assert.deepEqual(
        results(await judge(`${install}${command} --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py${reward}`, '41', planted)),
        ['failed', true, false],
        command,
      );
  });
});

describe('what tests need', () => {
  it('is told by their scripts', () => {
    const needs = (script: string, files: Readonly<Record<string, string>> = {}): unknown =>
      testNeeds(tree({ 'test.sh': script, ...files }));
    assert.deepEqual(needs('#!/bin/bash\ncmp a b\n'), { tools: false, pytest: false });
    assert.deepEqual(needs(bench(usual)), { tools: true, pytest: true });
    assert.deepEqual(needs('bash /tests/setup', { setup: '#!/bin/sh\napt-get install -y curl\n' }), { tools: true, pytest: false });
    assert.deepEqual(needs('python3 /tests/run.py', { 'run.py': 'import pytest; pytest.main()' }), { tools: false, pytest: true });
  });
});
