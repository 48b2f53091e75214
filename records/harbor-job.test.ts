/** Harbor's job folder: its own models and viewer read ours, writing is done once and whole, names stay inside. */
import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import type { Trial } from '../environment/trial/types.ts';
import { harborPython } from '../tests/harbor-python.ts';
import { readTrials, writeJob, writeTrial } from './harbor-job.ts';
import { broken, failed, passed, stepped } from './trial-fixture.ts';

const harbor = await harborPython();
const skip = 'skip' in harbor ? harbor.skip : false;
const jobs = await mkdtemp(join(tmpdir(), 'harbor-job-'));
after(() => rm(jobs, { recursive: true }));

const trials = [passed, failed, broken, stepped];
const directory = join(jobs, 'a-job');
const info = {
  name: 'a-job',
  directory,
  startedAt: '2026-03-01T10:00:00.000Z',
  finishedAt: '2026-03-01T10:01:00.000Z',
  totalTrials: 5,
  concurrency: 8,
};
for (const trial of trials) assert.equal(await writeTrial(directory, trial), true);
await writeJob(info);
const files = async (place: string): Promise<string[]> =>
  (await readdir(join(directory, place), { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(join(directory, place).length + 1))
    .sort();
const read = async (place: string): Promise<Record<string, unknown>> =>
  JSON.parse(await readFile(join(directory, place), 'utf8')) as Record<string, unknown>;

describe('a job’s folder', () => {
  it('is what Harbor’s models and its viewer expect, counted as Harbor counts', { skip }, async () => {
    assert.ok(!('skip' in harbor));
    const script = `
import json, sys
from pathlib import Path
from harbor.models.job.result import JobStats
from harbor.models.trajectories.trajectory import Trajectory
from harbor.viewer.scanner import JobScanner
scanner = JobScanner(Path(sys.argv[1]))
[job] = scanner.list_jobs()
config, result = scanner.get_job_config(job), scanner.get_job_result(job)
names = scanner.list_trials(job)
trials = [scanner.get_trial_result(job, name) for name in names]
assert all(scanner.get_trial_config(job, name).trial_name == name for name in names)
trajectories = [Trajectory.model_validate_json(file.read_text()) for file in sorted(Path(sys.argv[1]).rglob("trajectory.json"))]
stats = JobStats.from_trial_results(trials, n_total_trials=5)
for one in stats.evals.values():
    one.metrics = []
ours = result.stats.model_copy(deep=True)
for one in ours.evals.values():
    one.metrics = []
print(json.dumps({
    "job": [config.job_name, len(config.tasks), len(config.agents), result.n_total_trials],
    "names": names,
    "valid": [trial.reward_valid for trial in trials],
    "rewards": [trial.verifier_result and trial.verifier_result.rewards for trial in trials],
    "trajectories": len(trajectories),
    "counts": ours == stats or [ours.model_dump(mode="json"), stats.model_dump(mode="json")],
}))`;
    const found = JSON.parse(await harbor.run(script, jobs)) as Record<string, unknown>;
    assert.deepEqual(found.job, ['a-job', 1, 3, 5]);
    assert.deepEqual(found.names, trials.map(({ name }) => name).sort());
    assert.deepEqual(found.valid, [true, true, false, true]);
    assert.deepEqual(found.rewards, [{ reward: 1 }, { reward: 0, style: 0.5 }, null, { reward: 1 }]);
    assert.equal(found.trajectories, 5);
    assert.equal(found.counts, true, JSON.stringify(found.counts));
  });

  it('says the means of the valid rewards', async () => {
    const { stats } = (await read('result.json')) as { stats: { evals: Record<string, { metrics: unknown; n_trials: number }> } };
    const means = Object.fromEntries(Object.entries(stats.evals).map(([key, { metrics, n_trials: n }]) => [key, [metrics, n]]));
    assert.deepEqual(means, {
      'terminal-rsi__policy:bbbbbbbbbbbb__fixtures': [[{ mean: 1 }], 2],
      'terminal-rsi__org/some-model__fixtures': [[{ reward: 0, style: 0.5 }], 1],
      oracle__fixtures: [[], 0],
    });
  });

  it('holds what each trial left', async () => {
    assert.deepEqual(await files(passed.name), [
      'agent/notes/log.txt',
      'agent/tokens.jsonl',
      'agent/trajectory.json',
      'artifacts/app/out.txt',
      'artifacts/manifest.json',
      'config.json',
      'result.json',
      'trial.log',
      'verifier/reward.txt',
      'verifier/test-stdout.txt',
    ]);
    assert.deepEqual(await read(`${passed.name}/artifacts/manifest.json`), [
      { source: '/app/out.txt', destination: 'app/out.txt', type: 'file', status: 'ok' },
    ]);
    assert.equal(await readFile(join(directory, broken.name, 'exception.txt'), 'utf8'), 'EnvironmentStartTimeoutError: no start\n');
    assert.match(await readFile(join(directory, failed.name, 'trial.log'), 'utf8'), /AgentTimeoutError: the agent took longer than 9 s\n$/);
  });

  it('holds each step’s own part of a trial of several', async () => {
    const names = await files(`${stepped.name}/steps`);
    assert.deepEqual(
      names.filter((name) => name.startsWith('second/')),
      ['second/agent/tokens.jsonl', 'second/agent/trajectory.json', 'second/artifacts/manifest.json'],
    );
    const first = (await read(`${stepped.name}/steps/first/agent/trajectory.json`)) as { steps: { message: string }[] };
    assert.deepEqual(
      first.steps.map(({ message }) => message),
      ['Begin.', 'cat names.txt', 'nosuch'],
    );
    const { step_results: steps } = (await read(`${stepped.name}/result.json`)) as { step_results: { step_name: string }[] };
    assert.deepEqual(
      steps.map((step) => step.step_name),
      ['first', 'second'],
    );
  });
});

describe('writing a trial', () => {
  it('is done once: a repeated attempt changes nothing', async () => {
    const before = await readFile(join(directory, passed.name, 'result.json'), 'utf8');
    const other: Trial = { ...passed, verdict: { outcome: 'failed', checks: [], reward: 0 } };
    assert.equal(await writeTrial(directory, other), false);
    assert.equal(await readFile(join(directory, passed.name, 'result.json'), 'utf8'), before);
  });

  it('of two attempts at once leaves one, whole, and nothing else', async () => {
    const place = join(jobs, '../', `${jobs.split('/').at(-1)}-race`);
    after(() => rm(place, { recursive: true }));
    const wrote = await Promise.all([1, 2, 3].map(() => writeTrial(place, passed)));
    assert.deepEqual(wrote.filter(Boolean), [true]);
    assert.deepEqual(await readdir(place), [passed.name]);
    assert.deepEqual(await readdir(join(place, passed.name)), [
      'agent',
      'artifacts',
      'config.json',
      'result.json',
      'trial.log',
      'verifier',
    ]);
  });

  it('replaces what has no result, and skips it when reading', async () => {
    const place = join(jobs, '../', `${jobs.split('/').at(-1)}-half`);
    after(() => rm(place, { recursive: true }));
    await writeTrial(place, passed);
    await rm(join(place, passed.name, 'result.json'));
    await writeFile(join(place, 'job.log'), '');
    assert.deepEqual(await readTrials(place), []);
    assert.equal(await writeTrial(place, passed), true);
    assert.deepEqual(
      (await readTrials(place)).map((trial) => trial.trial_name),
      [passed.name],
    );
    assert.deepEqual(await readTrials(join(place, 'missing')), []);
  });

  it('stays inside its folder, whatever an agent called its files', async () => {
    const evil = (name: string): Trial => ({
      ...passed,
      name: 'evil__1234567',
      files: { ...passed.files, agent: new Map([[name, { data: new Uint8Array(), mode: 0o644 }]]) },
    });
    for (const name of ['../../../escaped', 'a/../../b', '/etc/x', 'a\0b'])
      await assert.rejects(writeTrial(directory, evil(name)), /file name/);
    await assert.rejects(writeTrial(directory, { ...passed, name: '../up' }), /file name/);
    assert.ok(!(await readdir(directory)).includes('evil__1234567'));
  });
});
