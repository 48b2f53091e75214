/** Verification in the agent's own sandbox: what passes and fails, and that what the agent planted there has no effect. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { after, describe, it } from 'node:test';
import { BASE_IMAGE } from '../docker/base-image.ts';
import { backends, countContainers, fixture, noBaseImage, testRunKey } from '../testing.ts';
import type { FileTree, Sandbox, SandboxProvider, Task } from '../types.ts';
import { kitWheels } from './kit-wheels.ts';
import { verifyShared } from './shared.ts';
import type { Judged } from './test-run.ts';

const sortNames = await fixture('sort-names');
const file = (text: string): { data: Buffer; mode: number } => ({ data: Buffer.from(text), mode: 0o644 });
const withTests = (task: Task, files: Readonly<Record<string, string>>): Task => ({
  ...task,
  tests: new Map(Object.entries(files).map(([path, text]) => [path, file(text)])),
});
const results = ({ verdict: { outcome, checks, error } }: Judged): unknown[] => [
  outcome,
  ...(error ? [error.type] : checks.map(({ passed }) => passed)),
];

let number = 0;
/** Runs the commands as the agent's, then `look` at what the verification gives. */
async function judgeAfter(
  provider: SandboxProvider,
  task: Task,
  commands: readonly string[],
  look: (judged: Judged, sandbox: Sandbox) => Promise<void> | void,
): Promise<void> {
  const sandbox = await provider.start(task, { runKey: testRunKey, episodeId: `shared-${number++}`, purpose: 'rollout' });
  try {
    for (const command of commands) await sandbox.exec(command, { timeoutSec: 20 });
    await look(await verifyShared({ task, sandbox }), sandbox);
  } finally {
    await sandbox.close();
  }
}

const docker = (await backends()).find(({ name }) => name === 'docker');

for (const backend of await backends()) {
  describe(`shared verification with ${backend.name}`, { skip: backend.skip }, () => {
    const provider = backend.provider();
    after(async () => {
      await provider.close();
      if (backend.name === 'docker') assert.equal(await countContainers(testRunKey), 0, 'containers left behind');
    });
    const verified = (task: Task, commands: readonly string[], look: Parameters<typeof judgeAfter>[3]): Promise<void> =>
      judgeAfter(provider, task, commands, look);

    it('judges what the agent left, gives the logs, and leaves no tests to the next step', async () => {
      await Promise.all([
        verified(sortNames, ['sort names.txt > sorted.txt'], async (judged, sandbox) => {
          assert.deepEqual(results(judged), ['passed', true, true]);
          assert.deepEqual([...judged.files.keys()], ['ctrf.json', 'reward.txt', 'test-stdout.txt']);
          assert.equal((await sandbox.download('/tests')).size, 0);
        }),
        verified(sortNames, ['echo wrong > sorted.txt'], (judged) => assert.deepEqual(results(judged), ['failed', true, false])),
      ]);
    });

    it('is not impressed by forged rewards, planted tests, linked logs, shims or processes left running (failure 12)', async () => {
      const shim = '#!/bin/sh\\necho 1 > /logs/verifier/reward.txt\\n';
      await verified(
        sortNames,
        [
          'echo wrong > sorted.txt; mkdir -p /tests /elsewhere; printf "1\\n" > /elsewhere/reward.txt; echo \'{"reward": 1}\' > /elsewhere/reward.json',
          `printf '${shim}' > /tests/test.sh; echo wrong > /tests/expected.txt; echo 1 > /tests/conftest.py`,
          'rm -rf /logs; mkdir -p /logs; ln -s /elsewhere /logs/verifier',
          ...(backend.name === 'docker'
            ? [
                `mkdir -p /usr/local/bin; for c in bash cat grep; do printf '${shim}exit 0\\n' > /usr/local/bin/$c; chmod +x /usr/local/bin/$c; done`,
                `printf '${shim}' | tee /root/.bashrc > /root/.profile`,
                '(while sleep 0.1; do echo 1 > /logs/verifier/reward.txt; done) > /dev/null 2>&1 &',
              ]
            : []),
        ],
        (judged) => assert.deepEqual(results(judged), ['failed', true, false]),
      );
      await verified(sortNames, ['echo wrong > sorted.txt; ln -s /elsewhere /tests; mkdir /elsewhere; ln -s /elsewhere /logs'], (judged) =>
        assert.deepEqual(results(judged), ['failed', true, false]),
      );
    });

    it('gives no reward where the tests were changed while they ran', async () => {
      const task = withTests(sortNames, {
        'test.sh': '#!/bin/bash\nsh /app/run.sh\ncp /tests/reward /logs/verifier/reward.txt\n',
        reward: '0',
      });
      await verified(task, ['echo "echo 1 > /tests/reward" > run.sh'], ({ verdict }) => {
        assert.deepEqual([verdict.outcome, verdict.reward, verdict.error?.type], ['no-verdict', undefined, 'TestsTamperedError']);
        assert.match(verdict.error?.message ?? '', /\/tests\/reward has other content/);
      });
    });

    it('fails an agent that removed the workdir', async () => {
      await verified(sortNames, ['cd /; rm -rf /app'], (judged) => assert.deepEqual(results(judged), ['failed', false, false]));
    });

    it('keeps the beginning and the end of what the tests print', async () => {
      const script =
        '#!/bin/bash\necho begin\nfor i in $(seq 1 30); do printf "$i %50000s\\n" x; done\necho end\necho 1 > /logs/verifier/reward.txt\n';
      await verified(withTests(sortNames, { 'test.sh': script }), [], ({ verdict, files }) => {
        assert.equal(verdict.outcome, 'passed');
        const output = Buffer.from(files.get('test-stdout.txt')?.data ?? '').toString();
        assert.match(output, /^begin\n1 [\s\S]*\[output omitted\][\s\S]*\nend\n$/);
        assert.ok(output.length < 1_100_000, String(output.length));
      });
    });
  });
}

/** The kit's wheels as a Debian package installs them. */
async function installedPytest(): Promise<FileTree> {
  const folder = await mkdtemp(join(tmpdir(), 'terminal-rsi-test-'));
  try {
    const unpack = 'import io, sys, zipfile\nzipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read())).extractall(sys.argv[1])';
    for (const [name, bytes] of await kitWheels()) {
      if (/^(requests|urllib3|certifi|idna|charset)/.test(name)) continue;
      execFileSync('python3', ['-c', unpack, folder], { input: bytes });
    }
    const files: FileTree = new Map();
    for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
      const path = join(entry.parentPath, entry.name);
      const superfluous = /pygments\/lexers\/(?!__init__|_mapping|python|diff)/.test(path);
      if (entry.isFile() && !superfluous)
        files.set(`usr/lib/python3/dist-packages/${relative(folder, path)}`, { data: await readFile(path), mode: 0o644 });
    }
    const command = '#!/usr/bin/python3\nimport sys\nfrom pytest import console_main\nsys.exit(console_main())\n';
    return files.set('usr/bin/pytest', { data: Buffer.from(command), mode: 0o755 });
  } finally {
    await rm(folder, { recursive: true });
  }
}

describe('shared verification where the agent was root and there is Python', { skip: await noBaseImage() }, () => {
  const provider = docker?.provider() as SandboxProvider;
  after(() => provider.close());
  const shims =
    "for c in bash sh python3 grep cat; do printf '#!/bin/sh\\nexit 0\\n' > /usr/local/bin/$c; chmod +x /usr/local/bin/$c; done";
  const pass = 'import os\nos._exit(0)\n';
  const plant = [
    `printf '${pass.replaceAll('\n', '\\n')}' > /tmp/pass.py; d=/usr/lib/python3/dist-packages; mkdir -p $d/evil-1.dist-info /tests`,
    'printf "[pytest11]\\nevil = evil\\n" > $d/evil-1.dist-info/entry_points.txt; printf "Name: evil\\nVersion: 1\\n" > $d/evil-1.dist-info/METADATA',
    'for f in $d/evil.py $d/sitecustomize.py /app/conftest.py /conftest.py /tests/conftest.py /app/pytest.py; do cat /tmp/pass.py > $f; done',
    'printf "[pytest]\\naddopts = --collect-only\\n" > /pytest.ini; echo 41 > /app/answer',
    `${shims}; mkdir -p ~/.local/bin; cp /usr/local/bin/bash ~/.local/bin/uvx`,
  ].join('\n');
  const task: Task = {
    ...withTests(sortNames, {
      'test.sh': `#!/bin/bash
curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh
source $HOME/.local/bin/env
uvx -w pytest -w pytest-json-ctrf pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py || exit_code=1
bash -c 'grep -q 42 /app/answer' && exit_code=0
[ -n "$exit_code" ] && [ "$exit_code" = 0 ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
`,
      'test_outputs.py':
        "import subprocess\ndef test_right():\n    assert open('/app/answer').read() == '42\\n'\ndef test_python_is_the_image_s():\n    assert subprocess.run(['python3', '-c', 'print(6 * 7)'], capture_output=True).stdout == b'42\\n'\n",
    }),
    environment: { ...sortNames.environment, image: BASE_IMAGE, files: new Map(), run: [] },
  };

  it('no plugin, start-up file, conftest, settings or command of the agent’s runs with the tests (failure 12)', async () => {
    await Promise.all([
      judgeAfter(provider, task, [plant], (judged) =>
        assert.deepEqual(results(judged), ['failed', false, true], Buffer.from(judged.files.get('test-stdout.txt')?.data ?? '').toString()),
      ),
      judgeAfter(provider, task, ['echo 42 > /app/answer'], (judged) => assert.deepEqual(results(judged), ['passed', true, true])),
    ]);
  });

  it('the image’s own pytest runs with the image’s plugins and without the agent’s', async () => {
    const own = withTests(task, {
      'test.sh': '#!/bin/bash\npytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py\necho $((! $?)) > /logs/verifier/reward.txt\n',
      'test_outputs.py': "def test_right():\n    assert open('/app/answer').read() == '42\\n'\n",
    });
    const environment = { ...task.environment, files: await installedPytest() };
    await judgeAfter(provider, { ...own, environment }, [plant], ({ verdict, files }) =>
      assert.deepEqual(
        verdict.checks,
        [{ name: 'test_outputs.py::test_right', passed: false }],
        Buffer.from(files.get('test-stdout.txt')?.data ?? '').toString(),
      ),
    );
  });
});
