/** What the sampler's client does when no answer comes, against a real HTTP server. */
import assert from 'node:assert/strict';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, it } from 'node:test';
import { InfrastructureError } from '../../environment/errors.ts';
import { HttpSampler } from './client.ts';

const tries: { sessionId: string; timeoutMs: number | undefined; at: number }[] = [];
const server = http.createServer((request, response) => {
  let body = '';
  request.on('data', (chunk: Buffer) => (body += chunk.toString()));
  request.on('end', () => {
    const { sessionId, timeoutMs } = JSON.parse(body) as { sessionId: string; timeoutMs?: number };
    tries.push({ sessionId, timeoutMs, at: performance.now() });
    const tried = tries.filter((one) => one.sessionId === sessionId).length;
    const busy = { proxy: 429, full: 503, 'always full': 503 }[sessionId];
    if (busy !== undefined && (tried === 1 || sessionId === 'always full')) {
      const after = { proxy: new Date(Date.now() + 1500).toUTCString(), full: '1', 'always full': '0' }[sessionId];
      response.writeHead(busy, { 'retry-after': after }).end('come again');
      return;
    }
    const answer = (): unknown => response.end(JSON.stringify({ tokens: [1], logprobs: [0], stopReason: 'end-of-turn' }));
    if (sessionId === 'queued') setTimeout(answer, 600);
    else if (sessionId !== 'never') answer();
  });
});
await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
after(() => {
  server.closeAllConnections();
  server.close();
});
const request = (sessionId: string) => ({ sessionId, policy: 'p', tokens: [1], seed: 1, maxTokens: 1, temperature: 1 });

it('gives up a sampler that answers nobody', async () => {
  const sampler = new HttpSampler(url, { silenceMs: 100 });
  await assert.rejects(
    sampler.sample(request('never')),
    (error) => error instanceof InfrastructureError && /no request for 0.1 s/.test(error.message),
  );
});

it('waits for as long as others are answered', async () => {
  const sampler = new HttpSampler(url, { silenceMs: 400 });
  let done = false;
  const queued = sampler.sample(request('queued')).finally(() => (done = true));
  while (!done) {
    await sampler.sample(request('other'));
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.deepEqual((await queued).tokens, [1]);
});

it('comes again as late as a busy server says, in seconds or by a date, also where a proxy says it', async () => {
  const sampler = new HttpSampler(url);
  await Promise.all(
    ['full', 'proxy'].map(async (sessionId) => {
      assert.deepEqual((await sampler.sample(request(sessionId))).tokens, [1]);
      const [first, second, ...more] = tries.filter((one) => one.sessionId === sessionId);
      assert.equal(more.length, 0);
      // Dates have whole seconds.
      assert.ok(second!.at - first!.at >= (sessionId === 'full' ? 995 : 400));
    }),
  );
});

it("counts the tries at a busy server against the request's time limit", async () => {
  const sampler = new HttpSampler(url);
  await assert.rejects(sampler.sample({ ...request('always full'), timeoutMs: 350 }), { code: 'sample-timeout' });
  const limits = tries.filter((one) => one.sessionId === 'always full').map((one) => one.timeoutMs!);
  assert.equal(limits[0], 350);
  limits.reduce((before, limit) => (assert.ok(limit < before), limit));
});

it('a cancelled request stops coming again, with the reason of its signal', async () => {
  const abort = new AbortController();
  const pending = new HttpSampler(url).sample(request('always full'), abort.signal);
  abort.abort(new Error('the run was cancelled'));
  await assert.rejects(pending, /the run was cancelled/);
});
