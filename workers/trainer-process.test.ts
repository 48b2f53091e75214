import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { fate, identify } from './process-identity.ts';
import { TrainerProcess } from './trainer-process.ts';

process.env['TERMINAL_RSI_DATA'] = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-trainer-'));
after(() => rm(process.env['TERMINAL_RSI_DATA'] ?? '', { recursive: true, force: true }));

test('a trainer whose port is still held waits for it, is not mistaken for the holder, and is started again when it dies', async () => {
  // As the trainer of a lost worker, which answers until its current operation is over.
  let asked = 0;
  const holder = http.createServer((_, response) => {
    asked++;
    response.end(JSON.stringify({ status: 'ok', pid: process.pid }));
  });
  holder.listen(0, '127.0.0.1');
  await once(holder, 'listening');
  const url = `http://127.0.0.1:${(holder.address() as AddressInfo).port}`;
  const starts: number[] = [];
  const trainer = new TrainerProcess({ url, logger: pino({ enabled: false }), firstPauseMs: 50, onStart: (pid) => starts.push(pid) });
  trainer.start();
  try {
    let ready = false;
    const waiting = trainer.ready().then(() => (ready = true));
    while (asked < 3) await sleep(50);
    assert.equal(ready, false);
    holder.close();
    holder.closeAllConnections();
    await waiting;
    assert.equal(starts.length, 1, 'it waited instead of ending');

    process.kill(starts[0] ?? 0, 'SIGKILL');
    while (starts.length < 2) await sleep(20);
    await trainer.ready();
    assert.equal(trainer.pid, starts[1]);
  } finally {
    holder.close();
    const last = trainer.pid === undefined ? undefined : identify(trainer.pid);
    await trainer.stop();
    assert.equal(last && fate(last), 'gone');
  }
});
