/** What the sampler's client does when no answer comes, against a real HTTP server. */
import assert from 'node:assert/strict';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, it } from 'node:test';
import { InfrastructureError } from '../../environment/errors.ts';
import { HttpSampler } from './client.ts';

const server = http.createServer((request, response) => {
  let body = '';
  request.on('data', (chunk: Buffer) => (body += chunk.toString()));
  request.on('end', () => {
    const { sessionId } = JSON.parse(body) as { sessionId: string };
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
