/** The filtering proxy by itself: which hosts it lets through, and that sandboxes' lists do not mix. */
import assert from 'node:assert/strict';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { connect } from 'node:net';
import { after, describe, it } from 'node:test';
import { AllowlistProxy } from './allowlist-proxy.ts';
import { HostRules } from './host-rules.ts';

/** What a name server would say. */
const names: Readonly<Record<string, string>> = {
  'pypi.org': '203.0.113.7',
  'files.pythonhosted.org': '203.0.113.8',
  'inside.example': '10.0.0.5',
  'local.test': '127.0.0.1',
};
const resolve = (host: string) => {
  const address = names[host];
  return address === undefined ? Promise.reject(new Error('no such host')) : Promise.resolve([{ address, family: 4 }]);
};

describe('the allow-list', () => {
  for (const [hosts, host, expected] of [
    [['pypi.org'], 'pypi.org', '203.0.113.7'],
    [['pypi.org'], 'PyPI.org.', '203.0.113.7'],
    [['pypi.org'], 'files.pythonhosted.org', /files\.pythonhosted\.org is not in the task's allow-list/],
    [['pypi.org'], 'evil-pypi.org', /not in the task's allow-list/],
    [['*.pythonhosted.org'], 'files.pythonhosted.org', '203.0.113.8'],
    [['*.pythonhosted.org'], 'pythonhosted.org', /not in the task's allow-list/],
    [['203.0.113.9'], '203.0.113.9', '203.0.113.9'],
    [['203.0.113.7'], 'pypi.org', /not in the task's allow-list/],
    [['203.0.113.0/24'], '203.0.113.200', '203.0.113.200'],
    [['2001:db8::/32'], '[2001:db8::1]', '2001:db8::1'],
    [['pypi.org'], '203.0.113.7', /203\.0\.113\.7 is not in/],
    [['inside.example'], 'inside.example', /inside\.example leads to a private address/],
    [['inside.example', '10.0.0.0/8'], 'inside.example', '10.0.0.5'],
    [['pypi.org', 'nosuch.example'], 'nosuch.example', /cannot be resolved/],
    [['*'], 'pypi.org', '203.0.113.7'],
    [['*'], 'inside.example', /private address/],
    [['*'], '169.254.169.254', /not in the task's allow-list/],
    [['*'], '::ffff:127.0.0.1', /not in the task's allow-list/],
  ] as const)
    it(`${hosts.join(' ')} and ${host}: ${typeof expected === 'string' ? expected : 'refused'}`, async () => {
      const found = new HostRules(hosts).address(host, resolve);
      if (typeof expected === 'string') assert.equal(await found, expected);
      else await assert.rejects(found, expected);
    });
});

describe('the proxy', () => {
  const server = createServer((incoming, outgoing) => {
    let body = '';
    incoming.on('data', (chunk: Buffer) => (body += chunk.toString()));
    incoming.on('end', () => outgoing.writeHead(201).end(`${incoming.method} ${incoming.headers.host} ${incoming.url} ${body}`));
  });
  const proxy = new AllowlistProxy(resolve);
  after(async () => {
    await proxy.close();
    server.close();
  });
  const ready = new Promise<number>((ok) => server.listen(0, '127.0.0.1', () => ok((server.address() as AddressInfo).port)));

  /** A request through the proxy from `from`. */
  const through = async (from: string, url: string, body = ''): Promise<[number | undefined, string]> => {
    const port = await proxy.listen('127.0.0.1', 23128);
    return new Promise((ok, fail) => {
      const sent = request({
        host: '127.0.0.1',
        port,
        localAddress: from,
        method: 'POST',
        path: url,
        headers: { host: new URL(url).host },
      });
      sent.on('error', fail).on('response', (response) => {
        let text = '';
        response.on('data', (chunk: Buffer) => (text += chunk.toString())).on('end', () => ok([response.statusCode, text]));
      });
      sent.end(body);
    });
  };
  const connectThrough = async (from: string, authority: string, say: string): Promise<string> => {
    const port = await proxy.listen('127.0.0.1', 23128);
    return new Promise((ok, fail) => {
      const socket = connect({ host: '127.0.0.1', port, localAddress: from });
      let text = '';
      let asked = false;
      socket.on('error', fail).on('data', (chunk: Buffer) => {
        text += chunk.toString();
        if (!asked && text.includes(' 200 ')) socket.write(say);
        asked = true;
      });
      socket.on('close', () => ok(text)).write(`CONNECT ${authority} HTTP/1.1\r\nhost: ${authority}\r\n\r\n`);
    });
  };

  it('passes requests on, counts their bytes, and refuses other hosts with 403 and the name', async () => {
    const port = await ready;
    const admission = proxy.admit('127.0.0.2', ['local.test', '127.0.0.1']);
    assert.deepEqual(await through('127.0.0.2', `http://local.test:${port}/a?b=c`, 'sent'), [201, `POST local.test:${port} /a?b=c sent`]);
    const [status, text] = await through('127.0.0.2', 'http://pypi.org/');
    assert.equal(status, 403);
    assert.match(text, /pypi\.org is not in the task's allow-list/);
    assert.ok(admission.bytes > 100, `${admission.bytes} bytes counted`);
    admission.close();
  });

  it('tunnels CONNECT to what is listed alone', async () => {
    const port = await ready;
    proxy.admit('127.0.0.2', ['local.test', '127.0.0.1']);
    const say = 'GET /tunnel HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n';
    assert.match(await connectThrough('127.0.0.2', `local.test:${port}`, say), /^HTTP\/1\.1 200 [^]*GET x \/tunnel/);
    assert.match(await connectThrough('127.0.0.2', 'pypi.org:443', say), /^HTTP\/1\.1 403 [^]*pypi\.org is not in/);
    assert.match(await connectThrough('127.0.0.2', 'local.test:1', say), /^HTTP\/1\.1 502 /);
  });

  it("keeps one sandbox's list from another, and serves nobody that it does not know or knows no more", async () => {
    const port = await ready;
    const first = proxy.admit('127.0.0.2', ['127.0.0.1']);
    proxy.admit('127.0.0.3', ['pypi.org']);
    const status = async (from: string) => (await through(from, `http://127.0.0.1:${port}/`))[0];
    assert.deepEqual([await status('127.0.0.2'), await status('127.0.0.3'), await status('127.0.0.4')], [201, 403, 403]);
    const second = proxy.admit('127.0.0.2', ['127.0.0.1']);
    first.close(); // of the sandbox that had the address before
    assert.equal(await status('127.0.0.2'), 201);
    second.close();
    assert.equal(await status('127.0.0.2'), 403);
  });

  it('takes so many connections from one sandbox and no more', async () => {
    const port = await proxy.listen('127.0.0.1', 23128);
    const sockets = Array.from({ length: 80 }, () => connect({ host: '127.0.0.1', port, localAddress: '127.0.0.6' }));
    const closed = new Set<number>();
    sockets.forEach((socket, index) =>
      socket
        .on('error', () => undefined)
        .on('close', () => closed.add(index))
        .resume(),
    );
    for (const end = Date.now() + 5000; closed.size < 80 - 64 && Date.now() < end;) await new Promise((ok) => setTimeout(ok, 5));
    proxy.admit('127.0.0.5', ['127.0.0.1']);
    assert.equal((await through('127.0.0.5', `http://127.0.0.1:${await ready}/`))[0], 201);
    assert.equal(closed.size, 80 - 64);
    for (const socket of sockets) socket.destroy();
  });

  it('takes the next port where another process listens', async () => {
    const other = new AllowlistProxy(resolve);
    const port = await proxy.listen('127.0.0.1', 23128);
    assert.ok((await other.listen('127.0.0.1', port)) > port);
    await other.close();
  });
});
