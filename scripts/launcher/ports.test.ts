import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo, Server } from 'node:net';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { freePort, workerPorts } from './ports.ts';
import { readState, updateState } from './state.ts';

let busy: Server;
let taken: number;
let data: string;
before(async () => {
  busy = createServer().listen(0, '127.0.0.1');
  await once(busy, 'listening');
  taken = (busy.address() as AddressInfo).port;
  data = await mkdtemp(path.join(tmpdir(), 'launcher-'));
});
after(async () => {
  busy.close();
  await rm(data, { recursive: true });
});

describe('ports of the workers', () => {
  it('are those of the last start, except one that something else listens on', async () => {
    const last = await workerPorts();
    assert.deepEqual(await workerPorts(last), last);
    const next = await workerPorts({ ...last, rolloutStatus: taken });
    assert.notEqual(next.rolloutStatus, taken);
    assert.deepEqual({ ...next, rolloutStatus: taken }, { ...last, rolloutStatus: taken });
  });

  it('are all different, whatever the last start had', async () => {
    const port = await freePort(0);
    const ports = await workerPorts({ trainer: port, rolloutStatus: port, gpuStatus: port, rolloutMetrics: port, gpuMetrics: port });
    assert.equal(ports.trainer, port);
    assert.equal(new Set(Object.values(ports)).size, 5);
  });

  it('are found again in launcher.json, which one written by an older version may lack', async () => {
    await writeFile(path.join(data, 'launcher.json'), JSON.stringify({ workers: [], workflowId: 'run-1' }));
    assert.deepEqual(await readState(data), { workers: [], workflowId: 'run-1' });
    const ports = await workerPorts();
    await updateState(data, (state) => ({ ...state, ports }));
    assert.deepEqual(await readState(data), { workers: [], workflowId: 'run-1', ports });
  });
});
