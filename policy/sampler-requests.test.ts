/**
 * What a request can rely on besides its numbers: refusals, limits, cancellation, the order of slots, what is counted. Steps run
 * eagerly here, because compiling takes longer than these tests.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SampleTimeoutError, SamplerBusyError } from './sampler-errors.ts';
import { endOfTurn, prompt, request, sampler } from './sampler-testing.ts';

process.env['TERMINAL_RSI_ENGINE'] = 'eager';

test('tokens that do not extend the session are refused, and an unknown continued session is lost', async () => {
  const one = sampler(6);
  await one.sample(request('s', prompt(7, 10), 1, 2));
  await assert.rejects(one.sample(request('s', prompt(8, 20), 1, 2)), { code: 'session-prefix' });
  await assert.rejects(one.sample(request('other', prompt(8, 20), 1, 2), { continued: true }), { code: 'session-lost' });
});

test('sampling stops at the context limit, and a full context samples nothing', async () => {
  const one = sampler(6);
  const nearlyFull = prompt(9, 125);
  const result = await one.sample(request('full', nearlyFull, 4, 50));
  assert.ok(result.tokens.length <= 3);
  if (!result.tokens.includes(endOfTurn)) assert.equal(result.stopReason, 'context');
  assert.deepEqual(await one.sample(request('over', prompt(9, 128), 4)), {
    ...{ tokens: [], logprobs: [], policyLogprobs: [] },
    stopReason: 'context',
  });
});

test('requests beyond the slots wait for one to become free, and an abort frees its slot', async () => {
  const one = sampler(1);
  const abort = new AbortController();
  const aborted = one.sample(request('first', prompt(1, 20), 1, 100), { signal: abort.signal });
  const second = one.sample(request('second', prompt(2, 20), 1, 3));
  assert.equal(one.statistics().queued, 1);
  abort.abort(new Error('client went away'));
  await assert.rejects(aborted, /client went away/);
  assert.ok((await second).tokens.length > 0);
});

test('a request past the queue limit is refused with a time to come again, and its session is as before', async () => {
  const one = sampler(1, { queueLimit: 1, idleLimitMs: -1 });
  const first = await one.sample(request('a', prompt(1, 9), 1, 2));
  const running = one.sample(request('b', prompt(2, 9), 2, 30));
  const waiting = one.sample(request('c', prompt(3, 9), 3, 2));
  const next = request('a', [...prompt(1, 9), ...first.tokens, 5], 4, 2);
  await assert.rejects(one.sample(next, { continued: true }), (error) => error instanceof SamplerBusyError && error.retryAfterSeconds >= 1);
  assert.equal(one.statistics().requests.refused, 1);
  await Promise.all([running, waiting]);
  assert.ok((await one.sample(next, { continued: true })).tokens.length > 0);
});

test('waiting requests get slots in the order of their arrival', async () => {
  const one = sampler(2, { idleLimitMs: -1 });
  const order: number[] = [];
  const ask = async (i: number): Promise<void> => {
    await one.sample({ ...request(`s${i}`, prompt(i, 40 - i), i, 3), temperature: 0 });
    order.push(i);
    one.endSession(`s${i}`);
  };
  await Promise.all(Array.from({ length: 9 }, (_, i) => ask(i)));
  order.forEach((i, place) => assert.ok(Math.abs(i - place) <= 1, `order ${order.join(' ')}`));
});

test('a time limit ends a running request and a waiting one, frees the slot and ends the session', async () => {
  const one = sampler(1);
  const running = one.sample({ ...request('running', prompt(1, 20), 1, 100), timeoutMs: 20 });
  const waiting = one.sample({ ...request('waiting', prompt(2, 20), 1), timeoutMs: 10 });
  const patient = one.sample(request('patient', prompt(3, 20), 1, 3));
  const late = performance.now() + 30;
  while (performance.now() < late); // no step in between
  await Promise.all([
    assert.rejects(waiting, (error) => error instanceof SampleTimeoutError && /0 tokens after 10 ms/.test(error.message)),
    assert.rejects(running, { code: 'sample-timeout' }),
  ]);
  assert.ok((await patient).tokens.length > 0);
  await assert.rejects(one.sample(request('running', prompt(1, 30), 1), { continued: true }), { code: 'session-lost' });
  assert.deepEqual([one.statistics().requests.timedOut, one.statistics().busySlots], [2, 1]);
});

test('a session is parked only where somebody waits for its slot, and forgotten only beyond the limit of tokens', async () => {
  const one = sampler(1, { idleLimitMs: -1, parkedTokens: 30 });
  const ask = async (id: string, length: number): Promise<number[]> => {
    const tokens = prompt(1, length);
    return [...tokens, ...(await one.sample(request(id, tokens, 1, 1))).tokens, 5];
  };
  const first = await ask('first', 15);
  one.sweep();
  assert.deepEqual([one.statistics().busySlots, one.statistics().parked], [1, 0]);
  const second = await ask('second', 17);
  assert.equal(one.statistics().parked, 1);
  await ask('third', 5);
  await assert.rejects(one.sample(request('first', first, 1), { continued: true }), { code: 'session-lost' });
  assert.ok((await one.sample(request('second', second, 1, 1), { continued: true })).tokens.length > 0);
});

test('statistics count tokens and ends, and tell how long first tokens took', async () => {
  const one = sampler(2);
  assert.equal(one.statistics().timeToFirstToken, undefined);
  const result = await one.sample(request('a', prompt(1, 20), 1, 5));
  const abort = new AbortController();
  const cancelled = one.sample(request('b', prompt(2, 20), 1, 50), abort);
  assert.equal(one.statistics().active, 1);
  abort.abort(new Error('gone'));
  await assert.rejects(cancelled, /gone/);
  const { sampledTokens, fedTokens, requests, timeToFirstToken, tokensPerSecond } = one.statistics();
  assert.equal(sampledTokens, result.tokens.length);
  assert.equal(fedTokens, 20 + result.tokens.length - 1);
  assert.deepEqual(requests, { answered: 1, refused: 0, timedOut: 0, cancelled: 1, failed: 0 });
  assert.ok(timeToFirstToken!.median > 0 && timeToFirstToken!.max >= timeToFirstToken!.median && tokensPerSecond > 0);
});

test('a turn ends at any of its stop tokens, which is the last token of the answer', async () => {
  const one = sampler(6);
  const free = await one.sample(request('free', prompt(3, 20), 5, 20));
  const [stop, other] = [free.tokens[3]!, free.tokens[7]!];
  const stopped = await one.sample({ ...request('stopped', prompt(3, 20), 5, 20), stopTokens: [other, stop] });
  assert.equal(stopped.stopReason, 'stop-token');
  assert.deepEqual(stopped.tokens, free.tokens.slice(0, Math.min(free.tokens.indexOf(stop), free.tokens.indexOf(other)) + 1));
});
