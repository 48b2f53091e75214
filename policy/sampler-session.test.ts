import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Random } from '../method/seeds.ts';
import { Schedule } from './sampler-schedule.ts';
import { Session } from './sampler-session.ts';

const CHUNK = 32;
/** Feeds until the next token could be drawn; returns the pieces. */
function feedAll(session: Session): string[] {
  const pieces: string[] = [];
  while (!session.complete) {
    const { kind, end } = session.next(CHUNK);
    pieces.push(`${kind} ${session.fed}..${end}`);
    session.advance(end);
  }
  return pieces;
}
function sampleTokens(session: Session, count: number): string[] {
  const pieces: string[] = [];
  for (let i = 0; i < count; i++) {
    session.seen.push(7);
    if (i < count - 1) pieces.push(...feedAll(session));
  }
  return pieces;
}

test('a prompt is fed in chunks, its last token alone; few tokens are fed one by one', () => {
  const session = new Session('a');
  session.extend(Array.from({ length: 70 }, () => 1));
  assert.deepEqual(feedAll(session), ['prefill 0..32', 'prefill 32..64', 'prefill 64..69', 'decode 69..70']);
  assert.deepEqual(sampleTokens(session, 2), ['decode 70..71']);
  session.extend([...session.seen, 2]);
  assert.deepEqual(feedAll(session), ['decode 71..72', 'decode 72..73']);
});

test('a session that was parked is fed again in the same pieces', () => {
  const random = new Random(5);
  for (let round = 0; round < 100; round++) {
    const session = new Session('a');
    const pieces: string[] = [];
    for (let turn = 0; turn < 6; turn++) {
      const parked = random.chance(0.5);
      if (parked) session.park();
      session.extend([...session.seen, ...Array.from({ length: 1 + random.int(90) }, () => random.int(50))]);
      const fed = feedAll(session);
      const again = parked ? fed.splice(0, pieces.length) : pieces;
      assert.deepEqual(again, pieces);
      pieces.push(...fed, ...sampleTokens(session, 1 + random.int(8)));
    }
  }
});

/** Sessions with `lengths` tokens each, in the schedule in this order. */
function scheduled(schedule: Schedule<Session>, lengths: readonly number[]): Session[] {
  return lengths.map((length, i) => {
    const session = new Session(String(i));
    session.extend(Array.from({ length }, () => 1));
    schedule.add(session);
    return session;
  });
}
const ROWS = 4;

test('a long prompt is done after its number of chunks times the rounds, however many short ones keep coming', () => {
  const schedule = new Schedule<Session>(ROWS, CHUNK);
  const slots = 12;
  const [long] = scheduled(schedule, [20 * CHUNK + 1, ...Array.from({ length: slots - 1 }, () => CHUNK + 1)]) as [Session];
  let prefills = 0;
  while (long.next(CHUNK).kind === 'prefill') {
    prefills++;
    for (const { session, feed } of schedule.prefill()) {
      session.advance(feed.end);
      if (session === long || session.next(CHUNK).kind === 'prefill') continue;
      schedule.remove(session);
      scheduled(schedule, [CHUNK + 1]);
    }
    assert.ok(prefills < 1000);
  }
  assert.equal(prefills, 20 * Math.ceil(slots / ROWS) - 2); // first in the first round
});

test('a short prompt behind many long ones is prefilled within one round', () => {
  const schedule = new Schedule<Session>(ROWS, CHUNK);
  scheduled(
    schedule,
    Array.from({ length: 11 }, () => 100 * CHUNK),
  );
  for (let i = 0; i < 7; i++) for (const { session, feed } of schedule.prefill()) session.advance(feed.end);
  const [short] = scheduled(schedule, [CHUNK + 1]) as [Session];
  let prefills = 0;
  while (short.next(CHUNK).kind === 'prefill') {
    prefills++;
    for (const { session, feed } of schedule.prefill()) session.advance(feed.end);
  }
  assert.ok(prefills <= 3, `${prefills} prefills`);
});

test('prompts are prefilled beside running decodes, and every running session is decoded in every step', () => {
  const schedule = new Schedule<Session>(ROWS, CHUNK);
  const running = scheduled(schedule, [1, 1, 1]);
  const [prompt] = scheduled(schedule, [10 * CHUNK]) as [Session];
  for (let step = 0; step < 60; step++) {
    for (const { session, feed } of schedule.prefill()) session.advance(feed.end);
    const rows = schedule.decode();
    for (const session of running) assert.ok(rows.some((row) => row.session === session));
    for (const { session, feed } of rows) {
      session.advance(feed.end);
      session.seen.push(1);
    }
  }
  assert.ok(prompt.fed >= 10 * CHUNK);
});
