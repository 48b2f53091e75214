/** Killing with proof, zombies, memory kills and dead sandboxes. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import Docker from 'dockerode';
import { SandboxDiedError } from '../errors.ts';
import type { Sandbox } from '../types.ts';
import { inContainer, noDocker } from './testing.ts';

const run = async (sandbox: Sandbox, command: string, timeoutSec = 20): Promise<string> =>
  (await sandbox.exec(command, { timeoutSec })).stdout;
/** What runs in the container beside the keeper, by Docker's own account. */
async function others(id: string): Promise<string[]> {
  const { Processes: rows } = (await new Docker().getContainer(id).top({ ps_args: '-eo pid,stat,args' })) as { Processes: string[][] };
  return rows
    .filter(([, stat]) => !stat?.startsWith('Z'))
    .map(([, , args = '']) => args)
    .filter((args) => !/docker-init|while :; do sleep 3600|^sleep 3600$/.test(args));
}

describe('killing', { skip: noDocker }, () => {
  it('takes the whole tree of a command at its time limit, and the next command sees nothing of it (failure 5)', () =>
    inContainer(async (sandbox) => {
      const command =
        'sleep 71 & setsid sleep 72 & (env -i setsid sh -c "trap \\"\\" TERM; (sleep 73); :" &); while sleep 0.05; do date >>/tmp/ticks; done';
      const result = await sandbox.exec(`echo started; ${command}`, { timeoutSec: 0.6 });
      assert.deepEqual([result.stdout, result.stderr, result.timedOut, result.exitCode], ['started\n', '', true, 137]);
      const ticks = await run(sandbox, 'wc -l </tmp/ticks');
      assert.equal(await run(sandbox, 'sleep 0.2; ps | grep -c "[s]leep 7"; wc -l </tmp/ticks'), `0\n${ticks}`);
    }));

  it('of everything leaves the keeper alone: daemons, stopped ones, what ignores signals', () =>
    inContainer(async (sandbox, id) => {
      const shell = await sandbox.openShell();
      await shell.run('(setsid sleep 81 &); sleep 82 & kill -STOP $!; (trap "" TERM HUP INT; while :; do :; done) & true', {
        timeoutSec: 20,
      });
      await sandbox.killAll();
      assert.deepEqual(await others(id), []);
      assert.equal((await shell.run('echo on', { timeoutSec: 20 })).stdout, 'on\n');
      await sandbox.killAll();
      assert.equal(await run(sandbox, 'echo on'), 'on\n');
    }));

  it('ends a fork bomb that has reached the process limit', () =>
    inContainer(
      async (sandbox, id) => {
        const shell = await sandbox.openShell();
        await shell.run('f() { f | f & }; f', { timeoutSec: 20 });
        await sandbox.exec('f() { f & f & }; f', { timeoutSec: 0.3 });
        await sandbox.killAll();
        assert.deepEqual(await others(id), []);
        assert.equal(await run(sandbox, 'ls / | grep -c app'), '1\n');
      },
      { pidsLimit: 48 },
    ));

  it('needs no program of the sandbox: the agent may have replaced them', () =>
    inContainer(async (sandbox, id) => {
      const shell = await sandbox.openShell();
      await shell.run(
        'sleep 83 & rm -f /bin/kill /bin/ps; printf "#!/bin/bash\\nsleep 84 & exit 0" >/tmp/sh; chmod +x /tmp/sh; mv /tmp/sh /bin/sh',
        {
          timeoutSec: 20,
        },
      );
      await sandbox.killAll();
      assert.deepEqual(await others(id), []);
    }));

  it('leaves no zombies of orphans, however many there were (failure 9)', () =>
    inContainer(
      async (sandbox) => {
        for (let round = 0; round < 4; round++) await run(sandbox, 'for i in $(seq 20); do (sleep 0.01 &) ; done');
        assert.equal(await run(sandbox, 'sleep 0.3; grep -l "^State:.Z" /proc/[0-9]*/status | wc -l; echo on'), '0\non\n');
      },
      { pidsLimit: 40 },
    ));
});

describe('memory and death', { skip: noDocker }, () => {
  it('tells a process killed for memory, the doing of the command, from a dead sandbox, which is infrastructure (failure 18)', () =>
    inContainer(
      async (sandbox, id) => {
        const hungry = await sandbox.exec('head -c 200000000 /dev/zero | tail | wc -c; echo "lived on"', { timeoutSec: 60 });
        assert.deepEqual([hungry.stdout, hungry.exitCode, hungry.oomKills], ['0\nlived on\n', 0, 1]);
        assert.equal((await sandbox.exec('true', { timeoutSec: 20 })).oomKills, undefined);
        const shell = await sandbox.openShell();
        assert.equal((await shell.run('head -c 200000000 /dev/zero | tail | wc -c', { timeoutSec: 60 })).oomKills, 1);
        await sandbox.upload(new Map([['left.txt', { data: Buffer.from('left'), mode: 0o644 }]]), '/app');

        const dead = (error: unknown): boolean =>
          error instanceof SandboxDiedError &&
          error.exitCode === 137 &&
          !error.outOfMemory &&
          /the sandbox died: exit code 137/.test(error.message);
        const pending = shell.run('sleep 60', { timeoutSec: 60 });
        await run(sandbox, 'sleep 0.2');
        await Promise.all([assert.rejects(pending, dead), sandbox.exec('kill -9 -1', { timeoutSec: 20 }).catch(() => undefined)]);
        await assert.rejects(sandbox.exec('true', { timeoutSec: 20 }), dead);
        await assert.rejects(shell.run('true', { timeoutSec: 20 }), dead);
        assert.equal((await new Docker().getContainer(id).inspect()).RestartCount, 0);
        // What it left can be read, and nothing of it runs.
        assert.equal(Buffer.from((await sandbox.readFile('/app/left.txt')) ?? []).toString(), 'left');
        assert.deepEqual([...(await sandbox.download('/app')).keys()], ['left.txt']);
        await sandbox.killAll();
      },
      { memoryMb: 64 },
    ));
});
