/**
 * The real worker processes from outside. The rollout worker samples from a stand-in for the trainer, which the test lets answer or
 * not: so it is busy with progress or stuck as the test wants, with the real activity functions. The GPU worker has its real trainer.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ActivityHandle } from '@temporalio/client';
import type { EpisodeTokens, SampleResult } from '../environment/types.ts';
import { HttpSampler } from '../policy/trainer/client.ts';
import { ArtifactStore } from '../records/artifacts.ts';
import { repoRoot } from '../records/paths.ts';
import type { ArtifactRef } from '../records/types.ts';
import { listTraining } from '../suites/suites.ts';
import { TemporalServer } from '../tests/temporal.ts';
import { WorkerProcesses } from '../tests/worker-processes.ts';
import { GPU_TASK_QUEUE, TASK_QUEUE } from '../workflows/contract.ts';
import type { FineTuneActivityInput, RolloutInput, RolloutResult, VerifyInput } from '../workflows/contract.ts';
import { profiles } from '../workflows/profiles.ts';
import type { Health } from './health.ts';
import { freePort } from '../tests/free-port.ts';

let server: TemporalServer;
let data: string;
let policy: ArtifactRef;
before(async () => {
  server = await TemporalServer.start();
  data = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-observed-'));
  policy = await new ArtifactStore(path.join(data, 'artifacts')).putDirectory('policy', path.join(repoRoot, 'models/tiny-base'));
});
after(async () => {
  await server.stop();
  await rm(data, { recursive: true, force: true });
});

/** One worker with status and metrics on ports of its own. */
class Observed {
  readonly status: number;
  readonly metrics: number;
  constructor(status: number, metrics: number) {
    this.status = status;
    this.metrics = metrics;
  }
  static async make(): Promise<Observed> {
    return new Observed(await freePort(), await freePort());
  }
  get env(): Record<string, string> {
    return { TERMINAL_RSI_STATUS_ADDRESS: `${this.status}`, TERMINAL_RSI_METRICS_ADDRESS: `${this.metrics}` };
  }
  async health(): Promise<Health & { http: number }> {
    const response = await fetch(`http://127.0.0.1:${this.status}/health`, { signal: AbortSignal.timeout(10_000) });
    return { http: response.status, ...((await response.json()) as Health) };
  }
  /** Polls until `reached`; gives every answer on the way, the last one last. */
  async until(reached: (health: Health) => boolean): Promise<(Health & { http: number })[]> {
    const seen = [];
    for (;;) {
      const now = await this.health();
      seen.push(now);
      if (reached(now)) return seen;
      await sleep(300);
    }
  }
  /** The value of the series whose name and labels contain all of `parts`; 0 where there is none. */
  async metric(name: string, ...parts: string[]): Promise<number> {
    const text = await (await fetch(`http://127.0.0.1:${this.metrics}/metrics`)).text();
    const lines = text
      .split('\n')
      .filter((line) => (line.startsWith(`${name}{`) || line.startsWith(`${name} `)) && parts.every((part) => line.includes(part)));
    return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
  }
}
const last = <T>(values: readonly T[]): T => values.at(-1)!;

let activities = 0;
/** One activity by itself, without a workflow. */
async function start<R>(type: string, taskQueue: string, input: unknown): Promise<ActivityHandle<R>> {
  return await server.client.activity.start(type, {
    ...{ id: `${type}-${++activities}`, taskQueue, args: [input] },
    ...{ startToCloseTimeout: '10m', heartbeatTimeout: '60s', retry: { maximumAttempts: 1 } },
  });
}

describe('a rollout worker', () => {
  const worker = { observed: undefined as unknown as Observed, processes: undefined as unknown as WorkerProcesses };
  /** Answers one waiting turn. */
  const waiting: (() => void)[] = [];
  let answersAtOnce = false;
  const trainer = http.createServer((request, response) => {
    request.resume();
    const answer = (): void => {
      // One token that is no end of turn: the episode stops with `output-length`.
      const result: SampleResult = { tokens: [100], logprobs: [-1], stopReason: 'max-tokens' };
      response.setHeader('content-type', 'application/json').end(request.url === '/v1/sample' ? JSON.stringify(result) : '{}');
    };
    if (request.url !== '/v1/sample' || answersAtOnce) answer();
    else waiting.push(answer);
  });
  const rollout = (chunk: number, episodes: number): RolloutInput => {
    const config = profiles.smoke;
    return {
      ...{
        key: { runKey: 'observed', stage: 'RSR-1', purpose: 'rollout' },
        chunk,
        runSeed: 1,
        policy,
        sandbox: 'embedded',
        temperature: 1,
      },
      rollout: config.rollout,
      episodes: Array.from({ length: episodes }, (_, sample) => ({
        task: listTraining()[0]!,
        harness: 'shell',
        sample: 100 * chunk + sample,
      })),
    };
  };

  before(async () => {
    trainer.listen(0, '127.0.0.1');
    await once(trainer, 'listening');
    const trainerUrl = `http://127.0.0.1:${(trainer.address() as AddressInfo).port}`;
    worker.observed = await Observed.make();
    worker.processes = new WorkerProcesses({ address: server.address, data, trainerUrl });
    await worker.processes.start('rollout-worker', { ...worker.observed.env, TERMINAL_RSI_STUCK_SECONDS: '8' });
  });
  after(async () => {
    await worker.processes.stop();
    trainer.close();
    trainer.closeAllConnections();
  });

  it('is ok when idle, and serves the reports of its data folder', async () => {
    const { observed } = worker;
    const now = last(await observed.until(({ status }) => status === 'ok'));
    assert.equal(now.http, 200);
    assert.deepEqual(now.activities, []);
    assert.deepEqual(
      [now.worker?.queue, now.worker?.slots, now.worker?.workflowPoller, now.temporal?.answers],
      [TASK_QUEUE, 64, 'POLLING', true],
    );
    await mkdir(path.join(data, 'runs', 'abc', 'report'), { recursive: true });
    await writeFile(path.join(data, 'runs', 'abc', 'report', 'report.html'), 'the report');
    assert.equal(await (await fetch(`http://127.0.0.1:${observed.status}/reports/abc/`)).text(), 'the report');
  });

  it('is stuck when an activity gets nowhere, busy when it does, and does not answer when it is stopped', async () => {
    const { observed } = worker;
    const handle = await start<RolloutResult>('rollout', TASK_QUEUE, rollout(0, 40));
    const stuck = await observed.until(({ status }) => status === 'stuck');
    assert.ok(stuck.some(({ status, http }) => status === 'busy' && http === 200));
    assert.equal(last(stuck).http, 503);
    assert.match(last(stuck).why ?? '', /nothing that runs has made progress for 8 s: rollout of .*attempt 1/);
    assert.equal(await waitFor(() => observed.metric('terminal_rsi_worker_stuck'), 1), 1);

    // A turn every 300 ms: far longer than the limit in all, and progress all the way.
    const feeding = setInterval(() => waiting.shift()?.(), 300);
    await observed.until(({ status }) => status === 'busy');
    const busy = await observed.until(
      ({ activities: [running] }) => ((running?.details as { turns?: number } | undefined)?.turns ?? 99) >= 35,
    );
    assert.deepEqual(new Set(busy.map(({ status }) => status)), new Set(['busy']));
    const [running] = busy[0]!.activities;
    assert.deepEqual([running?.activity, running?.stage, running?.purpose, running?.chunk], ['rollout', 'RSR-1', 'rollout', 0]);

    process.kill(busy[0]!.process.pid, 'SIGSTOP');
    await assert.rejects(fetch(`http://127.0.0.1:${observed.status}/health`, { signal: AbortSignal.timeout(1_000) }), {
      name: 'TimeoutError',
    });
    process.kill(busy[0]!.process.pid, 'SIGCONT');
    answersAtOnce = true;
    clearInterval(feeding);
    for (const answer of waiting.splice(0)) answer();
    await handle.result();
    await observed.until(({ status }) => status === 'ok');
    assert.equal(await waitFor(() => observed.metric('terminal_rsi_worker_stuck'), 0), 0);
  });

  it('counts episodes, verdicts, tokens, artifacts and failures in the metrics', async () => {
    answersAtOnce = true;
    const { observed } = worker;
    const before = await observed.metric('terminal_rsi_episodes_total');
    const rolled = await (await start<RolloutResult>('rollout', TASK_QUEUE, rollout(1, 3))).result();
    assert.equal(
      (await observed.metric(
        'terminal_rsi_episodes_total',
        'stage_kind="rsr"',
        'purpose="training"',
        'harness="shell"',
        'stop_reason="output-length"',
      )) - before,
      3,
    );
    // Taken from the journal, not done again: not counted again.
    await (await start('rollout', TASK_QUEUE, rollout(1, 3))).result();
    assert.equal((await observed.metric('terminal_rsi_episodes_total')) - before, 3);
    assert.equal(
      await observed.metric('terminal_rsi_agent_tokens_total', 'harness="shell"'),
      await observed.metric('terminal_rsi_episodes_total'),
    );

    const { key, chunk, sandbox } = rollout(1, 3);
    const verify: VerifyInput = { key, chunk, sandbox, episodes: rolled.episodes, snapshots: rolled.snapshots };
    await (await start('verify', TASK_QUEUE, verify)).result();
    assert.equal(await observed.metric('terminal_rsi_verdicts_total', 'outcome="failed"', 'stage_kind="rsr"'), 3);
    for (const kind of ['episodes', 'tokens', 'snapshots', 'verdicts'])
      assert.notEqual(await observed.metric('terminal_rsi_artifact_written_bytes_total', `kind="${kind}"`), 0, kind);

    const nothing = { ...policy, sha256: 'f'.repeat(64) };
    await assert.rejects((await start('rollout', TASK_QUEUE, { ...rollout(2, 1), policy: nothing })).result());
    assert.equal(
      await observed.metric(
        'terminal_rsi_activity_failures_total',
        'activity="rollout"',
        'error_type="ArtifactError"',
        'retryable="false"',
      ),
      1,
    );
    assert.notEqual(await observed.metric('temporal_activity_schedule_to_start_latency_seconds_count', 'task_queue="terminal-rsi"'), 0);
    assert.notEqual(await observed.metric('temporal_activity_schedule_to_start_latency_seconds_bucket', 'le="14400"'), 0);
  });
});

describe('a GPU worker', () => {
  it('tells of its trainer: tokens, steps and restarts', async () => {
    const observed = await Observed.make();
    const trainerUrl = `http://127.0.0.1:${await freePort()}`;
    const processes = new WorkerProcesses({ address: server.address, data, trainerUrl });
    const starting = processes.start('gpu-worker', observed.env);
    try {
      await starting;
      const now = last(await observed.until(({ status, trainer }) => status === 'ok' && trainer?.responding === true));
      assert.deepEqual(
        [now.worker?.queue, now.worker?.slots, now.worker?.workflowPoller, now.trainer?.restarts],
        [GPU_TASK_QUEUE, 1, undefined, 0],
      );

      const tokens = Array.from({ length: 24 }, (_, index) => 10 + index);
      const sampled = await new HttpSampler(trainerUrl).sample({
        ...{ sessionId: 's', policy: policy.sha256, tokens, seed: 1, maxTokens: 16, temperature: 1 },
      });
      const turnIds = tokens.map((_, index) => (index < 4 ? -1 : 0));
      const episodes: EpisodeTokens[] = [0, 1, 2].map((id) => ({ episodeId: `e${id}`, tokens, turnIds, logprobs: tokens.map(() => 0) }));
      const examples = await new ArtifactStore(path.join(data, 'artifacts')).putJsonLines('examples', episodes);
      const fineTune: FineTuneActivityInput = {
        ...{ key: { runKey: 'observed', stage: 'RSR-1', purpose: 'fine-tune' }, runSeed: 1, actor: policy, examples: [examples] },
        ...{ epochs: 2, sequencesPerStep: 1, learningRate: 1e-4 },
      };
      await (await start('fineTuneActor', GPU_TASK_QUEUE, fineTune)).result();
      assert.equal(await observed.metric('terminal_rsi_training_steps_total', 'activity="fineTuneActor"', 'stage_kind="rsr"'), 6);
      const { trainer: sampler } = await observed.health();
      assert.deepEqual([sampler?.queued, (sampler?.secondsToFirstToken ?? 0) > 0], [0, true]);
      assert.equal(await observed.metric('terminal_rsi_sampled_tokens_total'), sampled.tokens.length);

      const { pid } = now.trainer ?? {};
      assert.ok(pid);
      process.kill(pid, 'SIGKILL');
      const again = last(await observed.until(({ trainer }) => trainer?.responding === true && trainer.pid !== pid));
      assert.equal(again.trainer?.restarts, 1);
      assert.equal(await waitFor(() => observed.metric('terminal_rsi_trainer_restarts_total'), 1), 1);
      assert.equal(await waitFor(() => observed.metric('terminal_rsi_trainer_up'), 1), 1);
    } catch (error) {
      process.stderr.write((await readFile(path.join(data, 'gpu-worker.log'), 'utf8')).slice(-2_000));
      throw error;
    } finally {
      await processes.stop();
    }
  });
});

/** Gauges are told every five seconds. Gives the last value read. */
async function waitFor(read: () => Promise<number>, wanted: number): Promise<number> {
  let found = await read();
  for (let tries = 0; found !== wanted && tries < 60; tries++) {
    await sleep(500);
    found = await read();
  }
  return found;
}
