import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { RunningActivity } from './activity-monitor.ts';
import { assess, httpStatus } from './health.ts';
import type { Observed, WorkerView } from './health.ts';

const worker: WorkerView = {
  ...{ queue: 'terminal-rsi', identity: '1@here', state: 'RUNNING', slots: 8, activityPoller: 'POLLING', workflowPoller: 'POLLING' },
  ...{ workflowTasksInFlight: 0, cachedWorkflows: 0 },
};
const trainer = { url: 'http://127.0.0.1:7300', pid: 1, responding: true, secondsSinceAnswer: 0, restarts: 0 };
const running = (activity: string, secondsSinceProgress: number): RunningActivity => ({
  ...{ activity, workflowId: 'run/rsr-1', attempt: 2, runningSeconds: 1_000, secondsSinceProgress },
});
const look = (observed: Partial<Observed>): ReturnType<typeof assess> =>
  assess({ worker, activities: [], stuckAfterSeconds: 100, waitingFor: 'the trainer', ...observed });

describe('the health of a worker', () => {
  it('is starting until it polls, and says what it waits for', () => {
    const without = { activities: [], stuckAfterSeconds: 100, waitingFor: 'the trainer' };
    assert.deepEqual(assess(without), { status: 'starting', why: 'waiting for the trainer' });
    assert.equal(look({ worker: { ...worker, state: 'INITIALIZED' } }).status, 'starting');
  });

  it('is ok when idle and busy when something runs', () => {
    assert.deepEqual(look({}), { status: 'ok' });
    assert.deepEqual(look({ activities: [running('rollout', 99)] }), { status: 'busy' });
  });

  it('is stuck when nothing that runs has made progress, and not when one of two has', () => {
    const stuck = look({ activities: [running('rollout', 101), running('verify', 200)] });
    assert.equal(stuck.status, 'stuck');
    assert.match(stuck.why ?? '', /rollout of run\/rsr-1, attempt 2, without progress for 101 s; verify/);
    const busy = look({ activities: [running('rollout', 101), running('verify', 1)] });
    assert.deepEqual([busy.status, busy.why], ['busy', 'rollout of run/rsr-1, attempt 2, without progress for 101 s']);
  });

  it('is stuck when the trainer has not answered for the limit, and only tells of a shorter silence', () => {
    assert.equal(look({ trainer }).status, 'ok');
    const short = look({ trainer: { ...trainer, responding: false, secondsSinceAnswer: 3, restarts: 4 } });
    assert.equal(short.status, 'ok');
    assert.match(short.why ?? '', /trainer at http:\/\/127\.0\.0\.1:7300 has not answered for 3 s \(4 restarts\)/);
    assert.equal(look({ trainer: { ...trainer, responding: false, secondsSinceAnswer: 101 } }).status, 'stuck');
  });

  it('stays ok without a Temporal server, because another worker could not reach it either, and says so', () => {
    assert.deepEqual(look({ temporal: { answers: false, secondsSinceAnswer: 7 } }), {
      ...{ status: 'ok', why: 'the Temporal server does not answer since 7 s' },
    });
    assert.deepEqual(look({ temporal: { answers: true } }), { status: 'ok' });
  });

  it('is draining while it ends, and failed when the worker or a poller has given up', () => {
    const draining = look({ worker: { ...worker, state: 'DRAINING' }, activities: [running('jointPpo', 500)] });
    assert.deepEqual(draining, { status: 'draining', why: 'the worker is DRAINING, waiting for jointPpo' });
    assert.equal(look({ worker: { ...worker, state: 'FAILED' } }).status, 'failed');
    assert.equal(look({ worker: { ...worker, activityPoller: 'SHUTDOWN' } }).status, 'failed');
    assert.match(look({ worker: { ...worker, workflowPoller: 'FAILED' } }).why ?? '', /workflow poller is FAILED/);
  });

  it('asks a supervisor for a new start only when stuck or failed', () => {
    const statuses = ['starting', 'ok', 'busy', 'draining', 'stuck', 'failed'] as const;
    assert.deepEqual(statuses.map(httpStatus), [200, 200, 200, 200, 503, 503]);
  });
});
