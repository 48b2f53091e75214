import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { pino } from 'pino';
import { UserError } from '../environment/errors.ts';
import type { Health } from './health.ts';
import { addressUrl, isLoopback, statusAddress } from './listen-address.ts';
import { startStatusServer } from './status-server.ts';
import type { StatusServer } from './status-server.ts';

const logger = pino({ level: 'silent' });
const health: Health = {
  ...{ schema: 'terminal-rsi/health@1', status: 'ok', activities: [], stuckAfterSeconds: 900 },
  process: { name: 'test', pid: 1, upSeconds: 1, rssBytes: 1 },
  eventLoop: { meanMs: 0, p99Ms: 0, maxMs: 0, windowSeconds: 1 },
};
let now: Health = health;
let data: string;
let port: number;
let server: StatusServer;

before(async () => {
  data = await mkdtemp(path.join(tmpdir(), 'status-'));
  const report = path.join(data, 'runs', 'run-1', 'report');
  await mkdir(path.join(report, 'policy'), { recursive: true });
  await writeFile(path.join(report, 'report.html'), '<h1>Run 1</h1>');
  await writeFile(path.join(report, 'result.json'), '{"schema":1}');
  await writeFile(path.join(report, 'policy', 'model.safetensors'), Buffer.from([0, 1, 2]));
  await writeFile(path.join(report, 'empty.txt'), '');
  await writeFile(path.join(data, 'runs', 'run-1', 'secret.json'), 'secret');
  await writeFile(path.join(data, 'secret.json'), 'secret');
  await symlink(path.join(data, 'secret.json'), path.join(report, 'link.json'));
  await symlink(data, path.join(report, 'up'));
  await mkdir(path.join(data, 'runs', 'run-2'));
  await symlink(data, path.join(data, 'runs', 'run-2', 'report'));
  port = await freePort();
  server = startStatusServer({ address: { host: '127.0.0.1', port }, logger, health: async () => now, runs: path.join(data, 'runs') });
  await server.listening;
});
after(async () => {
  server.close();
  await rm(data, { recursive: true });
});

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port: found } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return found;
}
interface Answer {
  readonly status: number;
  readonly type: string | undefined;
  readonly location: string | undefined;
  readonly text: string;
}
/** The path goes out as it is: a URL parser would resolve `..` first. */
function get(raw: string, { method = 'GET', host = `127.0.0.1:${port}` } = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = http.request({ host: '127.0.0.1', port, path: raw, method, headers: { host } }, (response) => {
      let text = '';
      response.on('data', (chunk: Buffer) => (text += chunk.toString()));
      const { 'content-type': type, location } = response.headers;
      response.on('end', () => resolve({ status: response.statusCode ?? 0, type, location, text }));
    });
    request.on('error', reject).end();
  });
}

describe('status server', () => {
  it('answers /health with the state as JSON, and with 503 for a worker that is stuck', async () => {
    const ok = await get('/health');
    assert.deepEqual([ok.status, ok.type], [200, 'application/json']);
    assert.deepEqual(JSON.parse(ok.text), health);
    now = { ...health, status: 'stuck' };
    assert.equal((await get('/health')).status, 503);
    now = health;
  });

  it('serves the report folder of a run, with its types, the page first', async () => {
    const page = await get('/reports/run-1/');
    assert.deepEqual([page.status, page.type, page.text], [200, 'text/html; charset=utf-8', '<h1>Run 1</h1>']);
    assert.equal((await get('/reports/run-1/report.html')).text, page.text);
    assert.deepEqual([(await get('/reports/run-1')).status, (await get('/reports/run-1')).location], [308, '/reports/run-1/']);
    assert.equal((await get('/reports/run-1/result.json')).type, 'application/json');
    assert.equal((await get('/reports/run-1/policy/model.safetensors')).type, 'application/octet-stream');
    assert.deepEqual((await get('/reports/run-1/empty.txt')).text, '');
    assert.deepEqual(
      [(await get('/reports/run-1/', { method: 'HEAD' })).status, (await get('/reports/run-1/', { method: 'HEAD' })).text],
      [200, ''],
    );
  });

  it('serves nothing else: not above the folder, not by a link, not a folder', async () => {
    const outside = [
      ...[
        '/reports/run-1/../secret.json',
        '/reports/run-1/%2e%2e/secret.json',
        '/reports/run-1/..%2fsecret.json',
        '/reports/../secret.json',
      ],
      ...[
        '/reports/%2e%2e/secret.json',
        '/reports/run-1%2f..%2f..%2fsecret.json',
        '/reports/run-1//etc/passwd',
        '/reports/run-1/%2fetc%2fpasswd',
      ],
      ...[
        '/reports/run-1/link.json',
        '/reports/run-1/up/secret.json',
        '/reports/run-1/policy',
        '/reports/run-1/policy/',
        '/reports/run-2/',
      ],
      ...['/reports/', '/reports/none/', '/reports/run-1/none.html', '/reports/run-1/%00', '/reports/run-1/%zz', '/', '/secret.json'],
    ];
    for (const raw of outside) {
      const { status, text } = await get(raw);
      assert.equal(status, 404, raw);
      assert.doesNotMatch(text, /secret$|root:/, raw);
    }
  });

  it('only reads, and only for this machine: a page elsewhere cannot reach it through a name of its own', async () => {
    assert.equal((await get('/health', { method: 'POST' })).status, 405);
    assert.equal((await get('/health', { host: 'evil.example:7310' })).status, 403);
    assert.equal((await get('/health', { host: 'localhost:7310' })).status, 200);
  });

  it('waits for a port that is taken instead of failing its worker', async () => {
    const late = startStatusServer({ address: { host: '127.0.0.1', port }, logger, health: async () => health, retryMs: 20 });
    await get('/health');
    server.close();
    // Nothing else keeps the process alive: the server's own timer must not hold up a worker that ends.
    const alive = setInterval(() => undefined, 1_000);
    await late.listening;
    clearInterval(alive);
    assert.equal((await get('/health')).status, 200);
    late.close();
  });
});

describe('address of the status server', () => {
  const read = (text: string): ReturnType<typeof statusAddress> => {
    process.env['TERMINAL_RSI_STATUS_ADDRESS'] = text;
    try {
      return statusAddress();
    } finally {
      delete process.env['TERMINAL_RSI_STATUS_ADDRESS'];
    }
  };
  it('is off when unset, and this machine unless a host is named', () => {
    assert.equal(statusAddress(), undefined);
    assert.equal(read(''), undefined);
    assert.deepEqual(read('7310'), { host: '127.0.0.1', port: 7310 });
    assert.deepEqual(read(':7310'), { host: '127.0.0.1', port: 7310 });
    assert.deepEqual(read('0.0.0.0:7310'), { host: '0.0.0.0', port: 7310 });
    assert.equal(addressUrl({ host: '::1', port: 7310 }), 'http://[::1]:7310');
    assert.deepEqual(
      ['127.0.0.1:1', '[::1]:1', 'localhost:1', '0.0.0.0:1', '10.0.0.1:1'].map((text) => isLoopback(read(text)!)),
      [...[true, true, true, false, false]],
    );
  });
  it('is refused when it is no address, with the variable and the value', () => {
    for (const wrong of ['on', '127.0.0.1', 'host:0', 'host:65536', 'http://host:1', 'a b:1'])
      assert.throws(
        () => read(wrong),
        (error) => error instanceof UserError && error.message.includes(`TERMINAL_RSI_STATUS_ADDRESS: got "${wrong}"`),
        wrong,
      );
  });
});
