/** Behaviour that both sandboxes share, and what only a container has. */
import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import Docker from 'dockerode';
import { DockerProvider } from './docker/provider.ts';
import { EmbeddedProvider } from './embedded/provider.ts';
import { identify } from '../workers/process-identity.ts';
import { InfrastructureError, TaskError, UserError } from './errors.ts';
import { outputLimitBytes } from './output-cap.ts';
import { backends, countContainers, fixture, testRunKey } from './testing.ts';
import type { FileTree, Sandbox, SandboxProvider, Task } from './types.ts';

const task = await fixture('sort-names');
const withEnvironment = (environment: Partial<Task['environment']>): Task => ({
  ...task,
  environment: { ...task.environment, ...environment },
});
const text = (bytes: Uint8Array | undefined): string | undefined => (bytes === undefined ? undefined : Buffer.from(bytes).toString());
const tree = (files: Record<string, string>): FileTree =>
  new Map(Object.entries(files).map(([path, data]) => [path, { data: Buffer.from(data), mode: 0o644 }]));
let number = 0;
const start = (provider: SandboxProvider, of: Task = task): Promise<Sandbox> =>
  provider.start(of, { runKey: testRunKey, episodeId: `sandbox-${number++}`, purpose: 'check' });

for (const backend of await backends()) {
  describe(`${backend.name} sandbox`, { skip: backend.skip }, () => {
    const provider = backend.provider();
    after(() => provider.close());

    it('starts with the files, variables and RUN lines of the Dockerfile', async () => {
      const sandbox = await start(provider);
      try {
        const { seconds, ...result } = await sandbox.exec('pwd; cat names.txt made.txt; echo "$GREETING"; ls -d empty', { timeoutSec: 10 });
        assert.ok(seconds >= 0 && seconds < 10);
        assert.deepEqual(result, {
          stdout: '/app\npear\napple\nfig\nmade\nhello there\nempty\n',
          stderr: '',
          exitCode: 0,
          timedOut: false,
        });
      } finally {
        await sandbox.close();
      }
    });

    it('keeps files but not shell state between commands', async () => {
      const sandbox = await start(provider);
      try {
        await sandbox.exec('cd /tmp; VALUE=1; echo kept > /tmp/file', { timeoutSec: 10 });
        assert.equal((await sandbox.exec('pwd; echo "[$VALUE]"; cat /tmp/file', { timeoutSec: 10 })).stdout, '/app\n[]\nkept\n');
        assert.equal(
          (await sandbox.exec('echo "$EXTRA"; pwd', { timeoutSec: 10, cwd: '/tmp', env: { EXTRA: "it's" } })).stdout,
          "it's\n/tmp\n",
        );
      } finally {
        await sandbox.close();
      }
    });

    it('keeps directory, variables and functions in a shell session, until the shell ends', async () => {
      const sandbox = await start(provider);
      try {
        const shell = await sandbox.openShell({ env: { GIVEN: 'a b' } });
        const say = async (command: string, timeoutSec = 10) => {
          const { stdout, exitCode, timedOut } = await shell.run(command, { timeoutSec });
          return [stdout, exitCode, timedOut];
        };
        const lines: [string, string, number][] = [
          ['cd /tmp; X="1  2"; export Y=3; f() { echo "f $1 $X"; }; A=(1 "2 3"); echo "$GIVEN"', 'a b\n', 0],
          ['pwd; f 2; echo "${A[1]}" "$Y"; bash -c "echo [\\$X] \\$Y"; false', '/tmp\nf 2 1  2\n2 3 3\n[] 3\n', 1],
          ['echo $?; cd -; unset Y GIVEN; X+=é', '1\n/app\n', 0],
          ['echo "[$Y$GIVEN] $X"; nosuch', '[] 1  2é\n', 127],
          ['if then', '', 2],
          ['echo x > /no/such/file', '', 1],
          ['echo "$X"; set -f; g() { return 7; }; g', '1  2é\n', 7],
          ['echo *; g', '*\n', 7],
          ['exit 3', '', 3],
          ['echo "[$X] $PWD"; f', '[] /app\n', 127],
          ['X=1; set -e; false; echo no', '', 1],
          ['echo "[$X]"; false; echo on', '[]\non\n', 0],
        ];
        for (const [command, stdout, exitCode] of lines) assert.deepEqual(await say(command), [stdout, exitCode, false], command);
        assert.deepEqual(await say('X=1; cd /tmp; echo begun; sleep 30', 0.5), [backend.name === 'docker' ? 'begun\n' : '', 137, true]);
        assert.deepEqual(await say('echo "[$X] $PWD"'), ['[] /app\n', 0, false]);
        assert.equal((await sandbox.exec('echo "[$X]"', { timeoutSec: 10 })).stdout, '[]\n', 'a session is its own');
        await shell.close();
        await shell.close();
      } finally {
        await sandbox.close();
      }
    });

    it('kills all and goes on, and keeps its network off', async () => {
      const sandbox = await start(provider);
      try {
        await sandbox.exec('sleep 50 & echo kept >file', { timeoutSec: 100 });
        await sandbox.killAll();
        await sandbox.setNetwork({ mode: 'none' });
        assert.equal((await sandbox.exec('ps 2>/dev/null | grep -c "[s]leep 50"; cat file', { timeoutSec: 10 })).stdout, '0\nkept\n');
      } finally {
        await sandbox.close();
      }
    });

    it('reports exit codes, stderr and syntax errors', async () => {
      const sandbox = await start(provider);
      try {
        const missing = await sandbox.exec('echo out; nosuchcommand', { timeoutSec: 10 });
        assert.equal(missing.stdout, 'out\n');
        assert.equal(missing.exitCode, 127);
        assert.match(missing.stderr, /nosuchcommand: command not found/);
        assert.equal((await sandbox.exec('exit 3', { timeoutSec: 10 })).exitCode, 3);
        assert.equal((await sandbox.exec('if then', { timeoutSec: 10 })).exitCode, 2);
        assert.equal((await sandbox.exec("cat <<'X'\n  two\n  lines\nX", { timeoutSec: 10 })).stdout, '  two\n  lines\n');
      } finally {
        await sandbox.close();
      }
    });

    it('stops a command at its time limit and takes the next one', async () => {
      const sandbox = await start(provider);
      try {
        const result = await sandbox.exec('echo before; sleep 30', { timeoutSec: 0.4 });
        assert.equal(result.timedOut, true);
        assert.equal(result.exitCode, 137);
        assert.equal((await sandbox.exec('echo next', { timeoutSec: 10 })).stdout, 'next\n');
      } finally {
        await sandbox.close();
      }
    });

    it('keeps head and tail of a large output', async () => {
      const sandbox = await start(provider);
      try {
        const { stdout } = await sandbox.exec(`printf '%0100000d' 0; echo middle; printf '%0100000d' 0; echo tail`, { timeoutSec: 20 });
        assert.ok(stdout.length < outputLimitBytes + 100, `${stdout.length} characters`);
        assert.match(stdout, /^0{1000}/);
        assert.match(stdout, /\[\d+ bytes of output omitted\]/);
        assert.match(stdout, /0tail\n$/);
      } finally {
        await sandbox.close();
      }
    });

    it('survives output that is not UTF-8 and keeps split characters whole', async () => {
      const sandbox = await start(provider);
      try {
        const { stdout, exitCode } = await sandbox.exec(`printf '\\377\\376\\n'; echo done`, { timeoutSec: 10 });
        assert.match(stdout, /\ndone\n$/);
        assert.equal(exitCode, 0);
        assert.equal((await sandbox.exec('echo "é€😀"', { timeoutSec: 10 })).stdout, 'é€😀\n');
      } finally {
        await sandbox.close();
      }
    });

    it('uploads and downloads trees anywhere, with modes', async () => {
      const sandbox = await start(provider);
      try {
        await sandbox.upload(new Map([['deep/run.sh', { data: Buffer.from('#!/bin/bash\necho ran\n'), mode: 0o755 }]]), '/opt/tools');
        assert.equal((await sandbox.exec('/opt/tools/deep/run.sh', { timeoutSec: 10 })).stdout, 'ran\n');
        const files = await sandbox.download('/opt/tools');
        assert.deepEqual([...files.keys()], ['deep/run.sh']);
        assert.equal(files.get('deep/run.sh')?.mode, 0o755);
        assert.equal(text(await sandbox.readFile('/app/names.txt')), 'pear\napple\nfig\n');
        assert.equal(await sandbox.readFile('/app/nosuch'), undefined);
        assert.equal((await sandbox.download('/nosuch')).size, 0);
        const skipped: string[] = [];
        await sandbox.upload(tree({ 'small.txt': 'a', 'big.txt': 'b'.repeat(100) }), '/opt/sizes');
        const small = await sandbox.download('/opt/sizes', { maxFileBytes: 10, onSkipped: (path) => skipped.push(path) });
        assert.deepEqual([[...small.keys()], skipped], [['small.txt'], ['big.txt']]);
      } finally {
        await sandbox.close();
      }
    });

    it('is private to its episode', async () => {
      const [first, second] = [await start(provider), await start(provider)];
      try {
        await first.exec('echo secret > /tmp/secret', { timeoutSec: 10 });
        assert.equal(await second.readFile('/tmp/secret'), undefined);
      } finally {
        await Promise.all([first.close(), second.close()]);
      }
    });

    it('ends a command when its caller gives up', async () => {
      const sandbox = await start(provider);
      try {
        const reason = new Error('cancelled');
        await assert.rejects(sandbox.exec('sleep 30', { timeoutSec: 60, signal: AbortSignal.any([AbortSignal.abort(reason)]) }), reason);
        const controller = new AbortController();
        // An embedded command sleeps for no real time: it is given up before its first step.
        if (backend.name === 'docker') setTimeout(() => controller.abort(reason), 200);
        const pending = sandbox.exec('sleep 30', { timeoutSec: 60, signal: controller.signal });
        if (backend.name === 'embedded') controller.abort(reason);
        await assert.rejects(pending, reason);
      } finally {
        await sandbox.close();
      }
    });

    it('refuses tasks that need what it lacks, and names it', async () => {
      const needy = withEnvironment({ needs: ['gpu'] });
      assert.match(provider.refusal(needy) ?? '', /needs gpu/);
      await assert.rejects(start(provider, needy), TaskError);
      await assert.rejects(
        start(provider, withEnvironment({ run: ['exit 9'] })),
        (error) => error instanceof TaskError && /exit 9 exited with 9/.test(error.message),
      );
    });
  });
}

describe('embedded sandbox', () => {
  it('bounds what diff compares and what a command reads, and not small edits of large files', async () => {
    const sandbox = await start(new EmbeddedProvider());
    const lines = (of: (line: number) => string): string => Array.from({ length: 3000 }, (_, line) => `${of(line)}\n`).join('');
    await sandbox.upload(
      tree({
        a: lines((line) => `${line}`),
        b: lines((line) => `${3000 - line}`),
        c: lines((line) => (line === 1500 ? 'new' : `${line}`)),
        mb: 'x'.repeat(2 ** 20),
      }),
      '/app',
    );
    const exec = async (command: string) => {
      const { stdout, stderr, exitCode } = await sandbox.exec(command, { timeoutSec: 60 });
      return [stdout.length > 200 ? 'long' : stdout, stderr, exitCode];
    };
    assert.deepEqual(await exec('diff a b'), ['', 'diff: memory exhausted\n', 2]);
    assert.deepEqual(await exec('diff a b | wc -l; diff -q a b; cat a | diff - c | grep -c new; diff a nosuch'), [
      '0\nFiles a and b differ\n1\n',
      'diff: memory exhausted\ndiff: nosuch: No such file or directory\n',
      2,
    ]);
    assert.deepEqual(await exec('for i in 1 2 3 4 5 6 7 8 9 10; do head -c 1 mb; done'), ['xxxxxxxxxx', '', 0]);
    assert.deepEqual(await exec('while true; do head -c 1 mb >/dev/null; done; echo on'), [
      '',
      'bash: too many bytes read (>16777216)\n',
      126,
    ]);
    assert.deepEqual(await exec('echo on'), ['on\n', '', 0]);
    assert.equal((await sandbox.download('/app')).get('mb')?.data.length, 2 ** 20);
  });

  it('refuses builds, networks and other users by name', async () => {
    const refusal = (of: Task): string => new EmbeddedProvider().refusal(of) ?? '';
    assert.match(
      refusal(withEnvironment({ simple: false, notSimple: 'Dockerfile line 3: USER' })),
      /^Dockerfile line 3: USER; .* builds no images$/,
    );
    assert.match(refusal(withEnvironment({ network: { mode: 'public' } })), /asks for a network \(public\)/);
    assert.match(refusal({ ...task, agentUser: 'dev' }), /runs commands as dev/);
    assert.equal(refusal({ ...task, agentUser: 'root', verifierUser: '0' }), '');
    const sandbox = await start(new EmbeddedProvider());
    await assert.rejects(sandbox.exec('true', { timeoutSec: 10, user: 'dev' }), TaskError);
    await assert.rejects(sandbox.setNetwork({ mode: 'public' }), TaskError);
    assert.ok(!('openTerminal' in sandbox));
  });

  it('refuses other images', () => {
    assert.match(new EmbeddedProvider().refusal(withEnvironment({ image: 'python:3.12' })) ?? '', /its image is python:3\.12/);
  });

  it('ends a loop after the same work whatever time limit it has', async () => {
    const sandbox = await start(new EmbeddedProvider());
    const [long, short] = [
      await sandbox.exec('while true; do :; done', { timeoutSec: 60 }),
      await sandbox.exec('while true; do :; done', { timeoutSec: 0.001 }),
    ];
    assert.deepEqual([long.exitCode, long.timedOut], [126, false]);
    assert.deepEqual(short, long);
  });

  // One command for each place where just-bash would show the worker's clock or draw random numbers.
  for (const command of [
    'date +%s.%N; date',
    'echo $SECONDS $RANDOM $RANDOM $EPOCHSECONDS',
    "awk 'BEGIN { srand(); print rand() }'",
    'time true; time -p sort names.txt',
    'echo x > new.txt; mkdir d; touch -d 2020-02-03 old.txt; ls -l . /; stat new.txt; find . -mmin -1; find . -newer old.txt',
    "printf '%(%s)T\\n' -1",
    "jq -n 'now'",
    'tar czf a.tgz names.txt && md5sum a.tgz; gzip -k names.txt && md5sum names.txt.gz',
    'sort -R names.txt; xan shuffle names.txt',
    'sqlite3 :memory: "select random(), datetime()"',
    'echo $$ $BASHPID $PPID; hostname; whoami; cat /proc/self/status',
  ]) {
    it(`says the same in every repetition: ${command}`, async () => {
      const say = async (): Promise<unknown> => {
        const sandbox = await start(new EmbeddedProvider());
        const first = await sandbox.exec(command, { timeoutSec: 10 });
        return [first, await sandbox.exec(command, { timeoutSec: 10 }), await sandbox.exec('md5sum *', { timeoutSec: 10 })];
      };
      const said = await say();
      await new Promise((resolve) => setTimeout(resolve, 1100));
      assert.deepEqual(await say(), said);
    });
  }

  it('sleeps by its own clock, and ends timeout and time limits by it', async () => {
    const sandbox = await start(new EmbeddedProvider());
    const exec = async (command: string, timeoutSec = 10) => {
      const { stdout, exitCode, timedOut, seconds } = await sandbox.exec(command, { timeoutSec });
      return { stdout, exitCode, timedOut, seconds };
    };
    const before = Number((await exec('date +%s')).stdout);
    assert.deepEqual(await exec('sleep 3; echo on'), { stdout: 'on\n', exitCode: 0, timedOut: false, seconds: 3 });
    assert.equal(Number((await exec('date +%s')).stdout), before + 3);
    assert.deepEqual(await exec('timeout 2 sleep 5; echo $?'), { stdout: '124\n', exitCode: 0, timedOut: false, seconds: 2 });
    assert.deepEqual(await exec('timeout 5 sleep 2; echo $?'), { stdout: '0\n', exitCode: 0, timedOut: false, seconds: 2 });
    assert.deepEqual(await exec('while true; do sleep 1; done', 4), { stdout: '', exitCode: 137, timedOut: true, seconds: 4 });
  });

  it('leaves the clock of the worker alone', async () => {
    const sandbox = await start(new EmbeddedProvider());
    const running = sandbox.exec('for i in 1 2 3; do sleep 1000; done; date', { timeoutSec: 10_000 });
    assert.ok(Math.abs(Date.now() - new Date().getTime()) < 1000 && new Date().getFullYear() > 2025);
    assert.ok(new Date(0) instanceof Date && Date.UTC(2020, 1) > 0 && Math.random() !== Math.random());
    await running;
    assert.ok(new Date(Date.now()).getTime() > Date.parse('2026-01-02'));
  });

  it('gives up a command that the machine cannot finish: infrastructure, no outcome', async () => {
    const sandbox = await start(new EmbeddedProvider({ safetyMs: 20 }), withEnvironment({ run: [] }));
    const isInfrastructure = (error: unknown): boolean =>
      error instanceof InfrastructureError && /its work is bounded: while/.test(error.message);
    await assert.rejects(sandbox.exec('while true; do :; done', { timeoutSec: 60 }), isInfrastructure);
  });
});

const [, docker] = await backends();
describe('docker sandbox', { skip: docker?.skip ?? false }, () => {
  const provider = new DockerProvider();
  after(async () => {
    await provider.close();
    assert.equal(await countContainers(testRunKey), 0, 'containers left behind');
  });

  it('kills the whole process group at the time limit, also what moved to a session of its own', async () => {
    const sandbox = await start(provider);
    try {
      const result = await sandbox.exec('sleep 71 & setsid sleep 72 & echo started; sleep 73', { timeoutSec: 0.5 });
      assert.deepEqual([result.stdout, result.stderr, result.timedOut], ['started\n', '', true]);
      assert.equal((await sandbox.exec('ps | grep -c "sleep 7[123]"', { timeoutSec: 10 })).stdout, '0\n');
    } finally {
      await sandbox.close();
    }
  });

  it('does not wait for what a command leaves in the background', async () => {
    const sandbox = await start(provider);
    try {
      const result = await sandbox.exec('sleep 60 & echo away', { timeoutSec: 20 });
      assert.deepEqual([result.stdout, result.timedOut], ['away\n', false]);
    } finally {
      await sandbox.close();
    }
  });

  it('goes on after a command that kills its own supervisor', async () => {
    const sandbox = await start(provider);
    try {
      assert.equal((await sandbox.exec('kill -9 $PPID', { timeoutSec: 20 })).exitCode, 137);
      assert.equal((await sandbox.exec('echo again', { timeoutSec: 20 })).stdout, 'again\n');
    } finally {
      await sandbox.close();
    }
  });

  it('has no network, no capabilities, and the limits of the task', async () => {
    const sandbox = await start(provider, withEnvironment({ memoryMb: 64, pidsLimit: 40 }));
    try {
      const { stdout } = await sandbox.exec('ls /sys/class/net; grep -E "CapEff|NoNewPrivs" /proc/self/status | tr -d "\\t"', {
        timeoutSec: 10,
      });
      assert.equal(stdout, 'lo\nCapEff:0000000000000000\nNoNewPrivs:1\n');
      const [found] = await new Docker().listContainers({ filters: { label: [`terminal-rsi.run=${testRunKey}`] } });
      const { HostConfig: host } = await new Docker().getContainer(found?.Id ?? '').inspect();
      assert.deepEqual(
        [host.NetworkMode, host.Memory, host.MemorySwap, host.PidsLimit, host.Init, host.CapDrop],
        ['none', 64 * 2 ** 20, 64 * 2 ** 20, 40, true, ['ALL']],
      );
    } finally {
      await sandbox.close();
    }
  });

  it('reports a dead container as infrastructure, and closes twice', async () => {
    const sandbox = await start(provider);
    const [found] = await new Docker().listContainers({ filters: { label: [`terminal-rsi.run=${testRunKey}`] } });
    const pending = sandbox.exec('sleep 30', { timeoutSec: 60 });
    await new Promise((resolve) => setTimeout(resolve, 300));
    await Promise.all([assert.rejects(pending, InfrastructureError), new Docker().getContainer(found?.Id ?? '').kill()]);
    await assert.rejects(sandbox.exec('echo', { timeoutSec: 10 }), InfrastructureError);
    await sandbox.close();
    await sandbox.close();
  });

  it('replaces what a crashed attempt of the same name left, and sweeps by run what no living process holds', async () => {
    const labels = { runKey: `${testRunKey}-crash`, episodeId: 'e', purpose: 'rollout' } as const;
    const crashed = new DockerProvider();
    await crashed.start(task, labels); // never closed: its owner forgets it
    const next = await provider.start(task, labels);
    assert.equal(await countContainers(labels.runKey), 1);
    assert.equal(await provider.sweep(labels.runKey), 0, 'a living sandbox is not swept');
    await next.close();
    await crashed.start(task, { ...labels, episodeId: 'f' });
    assert.equal(await provider.sweep(labels.runKey), 1);
    assert.equal(await countContainers(labels.runKey), 0);
  });

  it('removes, before its first container, what dead workers of this host left', async () => {
    const labels = { runKey: `${testRunKey}-dead`, episodeId: 'e', purpose: 'rollout' } as const;
    const docker = new Docker();
    const leave = async (owner: object): Promise<string> => {
      const options = { Image: task.environment.image, Cmd: ['sleep', '600'], HostConfig: { NetworkMode: 'none' } };
      const Labels = { 'terminal-rsi.run': labels.runKey, 'terminal-rsi.owner': JSON.stringify(owner) };
      const container = await docker.createContainer({ ...options, Labels });
      await container.start();
      return container.id;
    };
    const self = identify(process.pid);
    const dead = await leave({ ...self, start: '1' });
    const living = await leave(identify(process.ppid) ?? {});
    const elsewhere = await leave({ ...self, host: 'another machine' });
    const next = new DockerProvider();
    const sandbox = await next.start(task, { ...labels, episodeId: 'f' });
    const left = (await docker.listContainers({ all: true, filters: { label: [`terminal-rsi.run=${labels.runKey}`] } })).map(
      ({ Id }) => Id,
    );
    assert.deepEqual([left.includes(dead), left.includes(living), left.includes(elsewhere)], [false, true, true]);
    await sandbox.close();
    await Promise.all([living, elsewhere].map((id) => docker.getContainer(id).remove({ force: true })));
  });

  it('gives equal labels in use at the same time containers of their own', async () => {
    const labels = { runKey: testRunKey, episodeId: 'same', purpose: 'rewrite' } as const;
    const both = await Promise.all([provider.start(task, labels), provider.start(task, labels)]);
    try {
      assert.deepEqual(await Promise.all(both.map(async (sandbox) => (await sandbox.exec('echo on', { timeoutSec: 20 })).stdout)), [
        'on\n',
        'on\n',
      ]);
    } finally {
      await Promise.all(both.map((sandbox) => sandbox.close()));
    }
  });

  it('names what to do when an image is missing or no engine answers', async () => {
    await assert.rejects(
      start(provider, withEnvironment({ image: 'localhost:1/nosuch:1', run: [] })),
      (error) => error instanceof UserError && /nosuch:1 .*docker load/.test(error.message),
    );
    const nowhere = new DockerProvider({ docker: new Docker({ socketPath: '/nosuch/docker.sock' }), patienceMs: 0 });
    await assert.rejects(start(nowhere), (error) => error instanceof InfrastructureError && /no Docker engine answers/.test(error.message));
  });
});
