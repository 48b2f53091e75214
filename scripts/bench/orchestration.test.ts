import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, it } from 'node:test';
import { TemporalServer } from '../../tests/temporal.ts';
import { batchCost, BenchWorker, runCost } from './orchestration.ts';
import { overheadOf } from './overhead.ts';

let server: TemporalServer;
let worker: BenchWorker;
let folder: string;
before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-bench-'));
  server = await TemporalServer.start({ database: path.join(folder, 'temporal.db') });
  worker = await BenchWorker.start(server.address);
});
after(async () => {
  await worker.stop();
  await server.stop();
  await rm(folder, { recursive: true, force: true });
});

it('an episode costs less than one event of its batch, and no history comes near the limits', async () => {
  const cost = await batchCost(server, 200);
  assert.equal(cost.episodes, 200);
  // Seven chunks of 32: at most about 24 events each, with their progress signals.
  assert.ok(cost.eventsPerEpisode < 1, `${cost.eventsPerEpisode} events an episode`);
  assert.ok(cost.largestEvents < 400, `${cost.largestEvents} events`);
  assert.ok(cost.bytesPerEpisode < 2048, `${cost.bytesPerEpisode} bytes an episode`);
});

it('a smoke run is counted by workflow and by stage', async () => {
  const { byWorkflow, byStage, total } = await runCost(server, { profile: 'smoke' });
  assert.deepEqual(Object.keys(byWorkflow).sort(), ['episodeBatch', 'evaluation', 'rprStage', 'rsrStage', 'trainingRun']);
  assert.deepEqual(Object.keys(byStage).sort(), ['BASE', 'RPR-1', 'RSR-1', 'trainingRun']);
  for (const parts of [byWorkflow, byStage]) {
    assert.equal(
      Object.values(parts).reduce((sum, { events }) => sum + events, 0),
      total.events,
    );
  }
});

it('overhead is the time in which no activity runs, split by whether one waits for a worker', () => {
  const at = (seconds: number): string => new Date(1_000 * seconds).toISOString();
  const activity = (id: number, scheduled: number, started: number, closed: number, attempt = 1) => [
    {
      ...{ eventId: `${id}`, eventTime: at(scheduled), eventType: 'EVENT_TYPE_ACTIVITY_TASK_SCHEDULED' },
      activityTaskScheduledEventAttributes: { activityId: `${id}`, activityType: { name: 'rollout' } },
    },
    {
      ...{ eventId: `${id + 1}`, eventTime: at(started), eventType: 'EVENT_TYPE_ACTIVITY_TASK_STARTED' },
      activityTaskStartedEventAttributes: { scheduledEventId: `${id}`, attempt },
    },
    {
      ...{ eventId: `${id + 2}`, eventTime: at(closed), eventType: 'EVENT_TYPE_ACTIVITY_TASK_COMPLETED' },
      activityTaskCompletedEventAttributes: { scheduledEventId: `${id}` },
    },
  ];
  const root = [
    { eventId: '1', eventTime: at(0), eventType: 'EVENT_TYPE_WORKFLOW_EXECUTION_STARTED' },
    ...activity(2, 1, 3, 10),
    { eventId: '9', eventTime: at(20), eventType: 'EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED' },
  ];
  // Overlaps the first, and was tried twice: its first attempt and the wait after it are no orchestration.
  const child = activity(2, 8, 11, 15, 2);
  assert.deepEqual(overheadOf([{ events: root }, { events: child }]), { wallSeconds: 20, waitingSeconds: 2, betweenSeconds: 6 });
});
