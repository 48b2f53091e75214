/** Harbor's viewer, started as a person starts it, opens a job of ours. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { it } from 'node:test';
import { freePort } from '../tests/free-port.ts';
import { harborPython } from '../tests/harbor-python.ts';
import { writeJob, writeTrial } from './harbor-job.ts';
import { failed, passed, stepped } from './trial-fixture.ts';

const harbor = await harborPython();
const START_MS = 60_000;

it('harbor view lists the job, its trials, their trajectories and files', { skip: 'skip' in harbor ? harbor.skip : false }, async () => {
  assert.ok(!('skip' in harbor));
  const folder = await mkdtemp(join(tmpdir(), 'harbor-view-'));
  const directory = join(folder, 'jobs', 'a-job');
  for (const trial of [passed, failed, stepped]) await writeTrial(directory, trial);
  const at = { startedAt: '2026-03-01T10:00:00.000Z', finishedAt: '2026-03-01T10:01:00.000Z' };
  await writeJob({ name: 'a-job', directory, ...at, totalTrials: 3, concurrency: 8 });
  const port = await freePort();
  const viewer = spawn(join(dirname(harbor.python), 'harbor'), ['view', join(folder, 'jobs'), '--port', String(port), '--no-build'], {
    env: { ...process.env, HOME: folder },
    stdio: 'ignore',
  });
  const get = async (place: string): Promise<unknown> => {
    const response = await fetch(`http://127.0.0.1:${port}/api${place}`);
    assert.equal(response.status, 200, place);
    return await response.json();
  };
  try {
    for (const end = Date.now() + START_MS; ; await sleep(200)) {
      if (await get('/health').catch(() => undefined)) break;
      assert.ok(viewer.exitCode === null && Date.now() < end, 'the viewer does not answer');
    }
    const { items: jobs } = (await get('/jobs')) as { items: { name: string; n_completed_trials: number }[] };
    assert.deepEqual(
      jobs.map((job) => [job.name, job.n_completed_trials]),
      [['a-job', 3]],
    );
    const { items: trials } = (await get('/jobs/a-job/trials')) as { items: { name: string; reward: number; error_type: string | null }[] };
    assert.deepEqual(
      trials.map((trial) => [trial.name, trial.reward, trial.error_type]),
      [
        [passed.name, 1, null],
        [failed.name, 0, 'AgentTimeoutError'],
        [stepped.name, 1, null],
      ],
    );
    const { steps } = (await get(`/jobs/a-job/trials/${failed.name}/trajectory`)) as { steps: unknown[] };
    assert.equal(steps.length, 2 + failed.record.turns.length);
    const files = (await get(`/jobs/a-job/trials/${passed.name}/files`)) as { path: string }[];
    assert.ok(files.some((file) => file.path === 'agent/tokens.jsonl'));
  } finally {
    if (viewer.exitCode === null && viewer.kill()) await once(viewer, 'exit');
    await rm(folder, { recursive: true });
  }
});
