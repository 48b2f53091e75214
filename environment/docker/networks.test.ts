/** Networks of sandboxes: shared bridges, their limits, the way through the proxy, and changes between phases. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { after, describe, it } from 'node:test';
import Docker from 'dockerode';
import { InfrastructureError, TaskError, UserError } from '../errors.ts';
import { backends, countContainers, fixture, testRunKey } from '../testing.ts';
import type { NetworkPolicy, Sandbox, Task } from '../types.ts';
import { typed } from './engine.ts';
import { BridgeNetworks } from './networks.ts';
import { DockerProvider } from './provider.ts';

const [, backend] = await backends();
const docker = new Docker();
/** Apart from the default, which other processes may be using; each test file's process takes a part of its own. */
const block = `10.214.${process.pid % 64}`;
const { environment, ...rest } = await fixture('sort-names');
const withNetwork = (network: NetworkPolicy, phases: Partial<Task> = {}): Task => ({
  ...rest,
  ...phases,
  environment: { ...environment, run: [], network },
});
let number = 0;
const labels = () => ({ runKey: testRunKey, episodeId: `network-${number++}`, purpose: 'check' }) as const;

describe('settings', () => {
  it('are refused with what was expected', () => {
    for (const subnets of ['10.0.0.0', '10.0.0.0/33', '10.0.0.1/24', '10.0.0.0/24;x'])
      assert.throws(
        () => new BridgeNetworks(docker, subnets),
        (error) => error instanceof UserError && /TERMINAL_RSI_SUBNETS: got /.test(error.message),
      );
  });
});

describe('networks', { skip: backend?.skip ?? false }, () => {
  const server = createServer((incoming, outgoing) => outgoing.end(`host says ${incoming.url}`));
  const ready = new Promise<number>((ok) => server.listen(0, '0.0.0.0', () => ok((server.address() as AddressInfo).port)));
  const provider = new DockerProvider({ docker, subnets: `${block}.0/26,${block}.64/26` });
  const bridges = async (): Promise<string[]> =>
    (await docker.listNetworks({ filters: { label: ['terminal-rsi.network'] } }))
      .map(({ Name }) => Name)
      .filter((name) => name.includes(`-${block}.`));
  after(async () => {
    await provider.close();
    server.close();
    assert.equal(await countContainers(testRunKey), 0, 'containers left behind');
    assert.deepEqual(await bridges(), [], 'networks left behind');
  });
  const say = async (sandbox: Sandbox, command: string): Promise<string> => (await sandbox.exec(command, { timeoutSec: 20 })).stdout.trim();
  // The shell image's wget cannot resolve names. A client that closes its side has no use for an answer, so it is kept open.
  const get = (host: string, port: number | string, url: string): string =>
    `(printf 'GET ${url} HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n'; sleep 0.5) | nc -w 3 ${host} ${port} | tr -d '\\r' | sed -n '1p;$p'`;
  const viaProxy = (url: string): string => {
    // By the address that /etc/hosts gives, for the same reason.
    return `P=\${HTTP_PROXY##*:}; G=$(grep network-proxy /etc/hosts | cut -f1); ${get('$G', '$P', url)}`;
  };
  const interfaces = (sandbox: Sandbox): Promise<string> => say(sandbox, 'ls /sys/class/net | grep -c eth');

  it('share bridges of ours, on which containers cannot reach each other', async () => {
    const [one, two] = await Promise.all([
      provider.start(withNetwork({ mode: 'public' }), labels()),
      provider.start(withNetwork({ mode: 'public' }), labels()),
    ]);
    try {
      assert.deepEqual(await bridges(), [`terminal-rsi-public-${block}.0-26`]);
      const address = await say(one, "ip -4 addr show dev eth0 | sed -n 's/.*inet \\([0-9.]*\\).*/\\1/p'");
      assert.match(address, new RegExp(`^${block.replaceAll('.', '\\.')}\\.`));
      const gateway = `${block}.1`;
      assert.equal(await say(two, get(gateway, await ready, '/public')), 'HTTP/1.1 200 OK\nhost says /public');
      // Listens on its own address: it reaches itself, the other does not.
      await one.exec('(while :; do echo open | nc -l -p 5555; done) >/dev/null 2>&1 &', { timeoutSec: 5 });
      assert.equal(await say(one, `sleep 0.3; nc -w 2 ${address} 5555 </dev/null`), 'open');
      assert.equal(await say(two, `nc -w 2 ${address} 5555 </dev/null`), '');
    } finally {
      await Promise.all([one.close(), two.close()]);
    }
  });

  it('with an allow-list reach what it names, through the proxy alone, and each its own', async () => {
    const port = await ready;
    const [own] = Object.values(networkInterfaces()).flatMap((each) =>
      (each ?? []).filter(({ family, internal }) => family === 'IPv4' && !internal),
    );
    const other = own?.address ?? '192.0.2.1';
    const listed = await provider.start(withNetwork({ mode: 'allowlist', hosts: ['127.0.0.1'] }), labels());
    const unlisted = await provider.start(withNetwork({ mode: 'allowlist', hosts: ['pypi.org'] }), labels());
    try {
      assert.equal(await say(listed, viaProxy(`http://127.0.0.1:${port}/listed`)), 'HTTP/1.1 200 OK\nhost says /listed');
      assert.equal(
        await say(listed, viaProxy(`http://${other}:${port}/`)),
        `HTTP/1.1 403 Forbidden\n${other} is not in the task's allow-list`,
      );
      assert.equal(
        await say(unlisted, viaProxy(`http://127.0.0.1:${port}/`)),
        "HTTP/1.1 403 Forbidden\n127.0.0.1 is not in the task's allow-list",
      );
      assert.match(
        await say(listed, 'echo $HTTPS_PROXY $http_proxy $NO_PROXY'),
        /^http:\/\/network-proxy:\d+ http:\/\/network-proxy:\d+ localhost,/,
      );
      const [name] = (await bridges()).filter((each) => each.includes('allowlist'));
      assert.equal((await docker.getNetwork(name ?? '').inspect()).Internal, true);
    } finally {
      await Promise.all([listed.close(), unlisted.close()]);
    }
  });

  it('change between the phases of a task', async () => {
    const port = await ready;
    const task = withNetwork({ mode: 'none' }, { verifierNetwork: { mode: 'public' } });
    const sandbox = await provider.start(task, labels());
    try {
      assert.equal(await interfaces(sandbox), '0');
      await sandbox.setNetwork({ mode: 'public' });
      assert.equal(await say(sandbox, get(`${block}.1`, port, '/verifier')), 'HTTP/1.1 200 OK\nhost says /verifier');
      await sandbox.setNetwork({ mode: 'public' });
      await sandbox.setNetwork({ mode: 'none' });
      assert.equal(await interfaces(sandbox), '0');
      await assert.rejects(sandbox.setNetwork({ mode: 'allowlist', hosts: [] }), TaskError);
    } finally {
      await sandbox.close();
    }
  });

  it('change between an allow-list, none and all hosts', async () => {
    const port = await ready;
    const hosts = ['127.0.0.1'];
    const task = withNetwork({ mode: 'none' }, { agentNetwork: { mode: 'allowlist', hosts }, verifierNetwork: { mode: 'public' } });
    const sandbox = await provider.start(task, labels());
    try {
      assert.equal(await interfaces(sandbox), '0');
      await sandbox.setNetwork({ mode: 'allowlist', hosts });
      assert.equal(await say(sandbox, viaProxy(`http://127.0.0.1:${port}/agent`)), 'HTTP/1.1 200 OK\nhost says /agent');
      await sandbox.setNetwork({ mode: 'public' }); // which the host's own network is not
      assert.match(await say(sandbox, viaProxy(`http://127.0.0.1:${port}/`)), /^HTTP\/1\.1 403/);
      await sandbox.setNetwork({ mode: 'none' });
      assert.equal(await interfaces(sandbox), '0');
    } finally {
      await sandbox.close();
    }
  });

  it('are none for a task that declares none, whatever is asked', async () => {
    const sandbox = await provider.start(withNetwork({ mode: 'none' }), labels());
    await assert.rejects(sandbox.setNetwork({ mode: 'public' }), TaskError);
    await sandbox.setNetwork({ mode: 'none' });
    await sandbox.close();
  });

  it('that are all full are an infrastructure error by name, after our own unused ones were swept (failure 1)', async () => {
    const networks = new BridgeNetworks(docker, `${block}.128/29`);
    const isExhausted = (error: unknown): boolean => error instanceof InfrastructureError && error.type === 'NetworkPoolExhaustedError';
    const held = [];
    for (let index = 0; index < 5; index++) held.push(await networks.acquire('public'));
    assert.deepEqual(new Set(held.map(({ name }) => name)), new Set([`terminal-rsi-public-${block}.128-29`]));
    await assert.rejects(networks.acquire('public'), isExhausted);
    await assert.rejects(networks.acquire('allowlist'), isExhausted);
    for (const bridge of held) networks.settle(bridge);
    const other = await networks.acquire('allowlist');
    assert.equal(other.name, `terminal-rsi-allowlist-${block}.128-29`);
    networks.settle(other);
    assert.equal((await networks.sweep({ restMs: 0 })) > 0, true);
    // What the engine and the kernel say of it.
    for (const message of [
      'all predefined address pools have been fully subnetted',
      'could not find an available, non-overlapping IPv4 address pool among the defaults to assign to the network',
      'failed to add the host (veth1) <=> sandbox (veth2) pair interfaces: adding interface to bridge failed: exchange full',
    ])
      assert.ok(isExhausted(typed(new Error(message), 'start a container')), message);
  });

  it('keep clear of subnets that others hold (failure 1)', async () => {
    const foreign = await docker.createNetwork({
      Name: `foreign-${process.pid}`,
      IPAM: { Driver: 'default', Config: [{ Subnet: `${block}.192/28` }] },
    });
    try {
      const networks = new BridgeNetworks(docker, `${block}.192/28,${block}.208/28`);
      const bridge = await networks.acquire('public');
      assert.equal(bridge.gateway, `${block}.209`);
      networks.settle(bridge);
      await networks.sweep({ restMs: 0 });
    } finally {
      await foreign.remove();
    }
  });
});
