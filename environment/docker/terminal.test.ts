/** Terminals: what is typed and what is seen. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { TaskError } from '../errors.ts';
import type { Sandbox, Terminal } from '../types.ts';
import { BASE_IMAGE } from './base-image.ts';
import { noBaseImage } from '../testing.ts';
import { inContainer, noDocker } from './testing.ts';

async function open(sandbox: Sandbox, options?: { user?: string; env?: Record<string, string> }): Promise<Terminal> {
  const terminal = (await sandbox.openTerminal?.(options)) ?? assert.fail('no terminals');
  await shows(terminal, /[$#]$/);
  return terminal;
}
/** Waits until the screen, without the empty lines at its end, matches. */
async function shows(terminal: Terminal, pattern: RegExp): Promise<string> {
  let screen = '';
  for (let i = 0; i < 200; i++) {
    screen = (await terminal.screen()).replace(/\n+$/, '');
    if (pattern.test(screen)) return screen;
    await sleep(50);
  }
  return assert.fail(`never shown: ${pattern.source}\n${screen}`);
}

describe('terminal', { skip: await noBaseImage() }, () => {
  const base = { image: BASE_IMAGE, memoryMb: 512 };

  it('types keys by their names and everything else as text', () =>
    inContainer(async (sandbox) => {
      const terminal = await open(sandbox, { env: { GIVEN: 'bär' } });
      await terminal.send('echo "$GIVEN" $(tput cols)x$(tput lines) $PWD; shopt -q login_shell && echo login\n');
      await shows(terminal, /^bär 160x40 \/app\nlogin$/m);
      await terminal.send('sleep 60\n');
      await terminal.send('C-c');
      await terminal.send("echo 'C-c Enter;");
      await terminal.send("'; echo \\; -x\n");
      await shows(terminal, /\^C\n.*\n*C-c Enter;\n; -x\n.*[$#]$/);
      await terminal.send('');
      assert.equal(await terminal.alive(), true);
    }, base));

  it('keeps the scrollback beyond 2,000 lines, types long input, and outlives a tmux that hangs (failure 23)', () =>
    inContainer(async (sandbox) => {
      const terminal = await open(sandbox);
      await terminal.send('seq 1 9000; echo counted\n');
      await shows(terminal, /^counted$/m);
      assert.match(await terminal.history(), /\n1\n2\n3\n[^]*\n8999\n9000\ncounted\n/);

      const lines = Array.from({ length: 2000 }, (_, i) => `line ${i} of a long text`);
      await terminal.send(`cat >/tmp/long <<'X'\n${lines.join('\n')}\nX\nclear; wc -l /tmp/long; ls -A /tmp | grep -c terminal-rsi\n`);
      await shows(terminal, /^2000 \/tmp\/long\n0$/m);
      assert.equal(Buffer.from((await sandbox.readFile('/tmp/long')) ?? []).toString(), `${lines.join('\n')}\n`);

      const controller = new AbortController();
      const reason = new Error('no answer');
      await sandbox.exec('pkill -STOP tmux', { timeoutSec: 20 });
      setTimeout(() => controller.abort(reason), 300);
      await assert.rejects(terminal.send('echo on\n', controller.signal), reason);
      await sandbox.killAll();
      assert.equal(await terminal.alive(), false);
      await terminal.send('echo on\n');
      assert.deepEqual([await terminal.screen(), await terminal.history()], ['', '']);
    }, base));

  it('ends with its shell, and belongs to its user', () =>
    inContainer(async (sandbox) => {
      const [own, root] = [await open(sandbox, { user: 'nobody' }), await open(sandbox)];
      await own.send('id -un; tty\n');
      await shows(own, /^nobody\n\/dev\/pts/m);
      await own.send('exit\n');
      for (let i = 0; i < 100 && (await own.alive()); i++) await sleep(50);
      assert.deepEqual([await own.alive(), await root.alive()], [false, true]);
    }, base));
});

describe('terminal', { skip: noDocker }, () => {
  it('names what an image without tmux lacks', () =>
    inContainer(async (sandbox) => {
      const refused = (error: unknown): boolean => error instanceof TaskError && /no tmux.*install the package tmux/.test(error.message);
      await assert.rejects(async () => sandbox.openTerminal?.(), refused);
    }));
});
