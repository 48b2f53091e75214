/** Shell sessions in containers: what lives on, and what an agent may do to its shell. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { noBaseImage } from '../testing.ts';
import { inContainer, noDocker } from './testing.ts';
import { BASE_IMAGE } from './base-image.ts';
import { TaskError } from '../errors.ts';
import type { ExecResult, Sandbox, ShellSession } from '../types.ts';

const said = ({ stdout, stderr, exitCode, timedOut }: ExecResult) => ({ stdout, stderr, exitCode, timedOut });
const ok = (stdout: string, stderr = '', exitCode = 0) => ({ stdout, stderr, exitCode, timedOut: false });
/** Runs the commands in one session and compares what each says. */
async function talk(shell: ShellSession, lines: readonly (readonly [string, ReturnType<typeof ok>])[]): Promise<void> {
  for (const [command, expected] of lines) assert.deepEqual(said(await shell.run(command, { timeoutSec: 20 })), expected, command);
}
const processes = async (sandbox: Sandbox, name: string): Promise<string> =>
  (await sandbox.exec(`ps -ef | grep -v grep | grep -c "${name}"`, { timeoutSec: 20 })).stdout.trim();

describe('shell session', { skip: noDocker }, () => {
  it('keeps directory, variables, functions, options, jobs and the last exit code', () =>
    inContainer(async (sandbox) => {
      const shell = await sandbox.openShell({ env: { GIVEN: 'a b' } });
      await talk(shell, [
        ['cd /tmp; X=1; f() { echo "f $1 $X"; }; A=(1 "2 3"); echo "$GIVEN"', ok('a b\n')],
        ['pwd; f 2; echo "${A[1]}"; false', ok('/tmp\nf 2 1\n2 3\n', '', 1)],
        ['echo $?', ok('1\n')],
        ['sleep 60 & sleep 61 & echo on', ok('on\n')],
        ['kill %1; wait %1; jobs', ok('[2]+  Running                 sleep 61 &\n', '', 0)],
        ['shopt -s expand_aliases; alias hi="echo hello"; declare -i N=3', ok('')],
        ['hi; N+=4; echo $N', ok('hello\n7\n')],
        ['exec >/tmp/log; echo logged', ok('')],
        ['echo logged too; cat /tmp/log >&2', ok('', 'logged\nlogged too\n')],
      ]);
      await shell.close();
      assert.equal(await processes(sandbox, 'sleep 6'), '0', 'jobs of a closed session');
    }));

  it('tells errors by the lines of the command, and takes every text as it is', () =>
    inContainer(async (sandbox) => {
      await talk(await sandbox.openShell(), [
        ['true', ok('')],
        ['nosuch', ok('', 'bash: line 1: nosuch: command not found\n', 127)],
        ["cat <<'X'\n#  two\n\n\\lines\nX\nnosuch", ok('#  two\n\n\\lines\n', 'bash: line 6: nosuch: command not found\n', 127)],
        ['if then', ok('', "bash: eval: line 1: syntax error near unexpected token `then'\nbash: eval: line 1: `if then'\n", 2)],
        ['for i in 1 2; do', ok('', 'bash: eval: line 2: syntax error: unexpected end of file\n', 2)],
        ['# nothing', ok('')],
        ['', ok('')],
        [`echo "it's é€😀"; printf '%s\\n' 'a\\b'`, ok("it's é€😀\na\\b\n")],
        ['break', ok('')],
        ['continue', ok('')],
        ['read x; echo "[$x]"; cat', ok('[]\n')],
        ['set -x; echo on; set +x', ok('on\n', '++ echo on\n++ set +x\n')],
      ]);
    }));

  it('gives a new shell in the workdir after the agent ended the old one', () =>
    inContainer(async (sandbox) => {
      const shell = await sandbox.openShell();
      for (const [end, expected] of [
        ['exit 3', ok('', '', 3)],
        ['exec true', ok('')],
        ['kill -9 $$', ok('', '', 137)],
        ['set -e; trap "echo bye" EXIT; false', ok('bye\n', '', 1)],
        ['set -u; echo $NOPE', ok('', 'bash: line 1: NOPE: unbound variable\n', 1)],
        ['sleep 60 & exit 4', ok('', '', 4)],
        ['break 9', ok('')],
      ] as const)
        await talk(shell, [
          ['cd /tmp; X=1', ok('')],
          [end, expected],
          ['echo "[$X] $PWD"', ok('[] /app\n')],
        ]);
      await talk(shell, [['(sleep 0.2; kill -9 $$) & true', ok('')]]);
      await sandbox.exec('sleep 0.6', { timeoutSec: 20 });
      await talk(shell, [['echo "new $X"', ok('new \n')]]);
    }));

  it('goes on after a supervisor that was killed while its stream is held open (failure 6)', () =>
    inContainer(async (sandbox) => {
      const shell = await sandbox.openShell();
      await shell.run('sleep 90 & kill -9 $PPID', { timeoutSec: 20 });
      // The shell lives on as an orphan until its next long command shows that nobody waits for it.
      await shell.run('sleep 91', { timeoutSec: 20 });
      await talk(shell, [['echo on', ok('on\n')]]);
      const { exitCode } = await sandbox.exec('sleep 92 & kill -9 $PPID; sleep 93', { timeoutSec: 20 });
      assert.equal(exitCode, 137);
      assert.equal((await sandbox.exec('echo on', { timeoutSec: 20 })).stdout, 'on\n');
    }));

  it('kills at the time limit what the command started, and not what earlier ones left', () =>
    inContainer(async (sandbox) => {
      const shell = await sandbox.openShell();
      await shell.run('sleep 70 & (while :; do sleep 0.1; done) & cd /tmp', { timeoutSec: 20 });
      const long = await shell.run('echo begun; (env -i setsid sleep 71 &); sleep 72 | sleep 73', { timeoutSec: 0.5 });
      assert.deepEqual(said(long), { stdout: 'begun\n', stderr: '', exitCode: 137, timedOut: true });
      const busy = await shell.run('trap "" TERM; while :; do :; done', { timeoutSec: 0.5 });
      assert.equal(busy.timedOut, true);
      assert.equal((await shell.run('pwd', { timeoutSec: 20 })).stdout, '/app\n');
      assert.deepEqual([await processes(sandbox, 'sleep 7[123]'), await processes(sandbox, 'sleep 70')], ['0', '1']);
      assert.notEqual(await processes(sandbox, 'sleep 0.1'), '0');
    }));

  it('leaves a shell that prevents its marks at the time limit', () =>
    inContainer(async (sandbox) => {
      const shell = await sandbox.openShell();
      assert.equal((await shell.run('printf() { :; }', { timeoutSec: 0.5 })).timedOut, true);
      await talk(shell, [['printf "%s\\n" on', ok('on\n')]]);
    }));

  it('makes do with a shell that is not bash', () =>
    inContainer(async (sandbox) => {
      await sandbox.exec('ln -sf busybox /bin/sh; rm /bin/bash', { timeoutSec: 20 });
      await sandbox.killAll(); // the supervisors, which are bash
      const shell = await sandbox.openShell({ env: { GIVEN: 'a b' } });
      await talk(shell, [
        ['echo "$GIVEN"; cd /tmp; f() { echo "f $1"; }; exec 8>log; false', ok('a b\n', '', 1)],
        ['echo $?; f $PWD; continue', ok('1\nf /tmp\n')],
        ["cat <<'X'\n# two\nlines\nX", ok('# two\nlines\n')],
        ['exit 3', ok('', '', 3)],
        ['echo $PWD', ok('/app\n')],
      ]);
      assert.equal((await shell.run('sleep 77', { timeoutSec: 0.5 })).timedOut, true);
      assert.equal(await processes(sandbox, 'sleep 77'), '0');
    }));

  it('ends a cancelled command with the reason, and a session closes over it', () =>
    inContainer(async (sandbox) => {
      const shell = await sandbox.openShell();
      const controller = new AbortController();
      const reason = new Error('cancelled');
      const pending = shell.run('sleep 80', { timeoutSec: 60, signal: controller.signal });
      setTimeout(() => controller.abort(reason), 200);
      await assert.rejects(pending, reason);
      await shell.close();
      assert.equal(await processes(sandbox, 'sleep 80'), '0');
    }));
});

describe('users', { skip: await noBaseImage() }, () => {
  it('run commands and sessions by name or id, with their own home', () =>
    inContainer(
      async (sandbox) => {
        const run = async (user: string): Promise<string> => (await sandbox.exec('id -un; echo $HOME', { timeoutSec: 20, user })).stdout;
        assert.deepEqual(
          [await run('nobody'), await run('root'), await run('65534')],
          ['nobody\n/nonexistent\n', 'root\n/root\n', 'nobody\n/nonexistent\n'],
        );
        const shell = await sandbox.openShell({ user: 'nobody' });
        await talk(shell, [
          ['id -un; cd /tmp', ok('nobody\n')],
          ['pwd; touch /etc/x', ok('/tmp\n', "touch: cannot touch '/etc/x': Permission denied\n", 1)],
        ]);
        await assert.rejects(
          sandbox.exec('true', { timeoutSec: 20, user: 'nosuch' }),
          (error) => error instanceof TaskError && /no user nosuch/.test(error.message),
        );
        // Their processes are killed like root's.
        const long = await shell.run('setsid sleep 74 & sleep 75', { timeoutSec: 0.5 });
        assert.equal(long.timedOut, true);
        await shell.run('sleep 76 & true', { timeoutSec: 20 });
        await sandbox.killAll();
        assert.equal(await processes(sandbox, 'sleep 7'), '0');
      },
      { image: BASE_IMAGE, memoryMb: 256 },
    ));
});
