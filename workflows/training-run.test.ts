import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { WorkflowFailedError } from '@temporalio/client';
import type { WorkflowHandle } from '@temporalio/client';
import { artifact, recordedActivities } from '../tests/recorded-activities.ts';
import type { Behaviour, Call } from '../tests/recorded-activities.ts';
import { TemporalServer, withWorkers } from '../tests/temporal.ts';
import { TASK_QUEUE } from './contract.ts';
import type { RunProgress, TrainingRunInput, TrainingRunResult } from './contract.ts';
import { countTexts } from './details.ts';
import { approveStage, pause, pauseRun, progress, resume, resumeRun } from './messages.ts';
import { resolveConfig } from './profiles.ts';
import type { trainingRun } from './training-run.ts';

let server: TemporalServer;
before(async () => {
  server = await TemporalServer.start();
});
after(async () => {
  await server.stop();
});

const small = {
  profile: 'smoke',
  rounds: 2,
  rollout: { chunkSize: 8, chunksInFlight: 2 },
  evaluation: { repeats: 2 },
  rpr: { iterations: [2, 3], tasksPerIteration: 2, samplesPerTask: 3, actorLearningRate: [0.001, 0.002] },
} as const;

interface Started {
  readonly handle: WorkflowHandle<typeof trainingRun>;
  readonly calls: readonly Call[];
}
let runs = 0;

/** Runs workers with recorded activities while `check` watches a run of theirs. */
async function withRun<T>(input: unknown, behaviour: Behaviour, check: (run: Started) => Promise<T>): Promise<T> {
  const { calls, rollout, gpu } = recordedActivities(behaviour);
  return await withWorkers(server, { rollout, gpu }, async () => {
    const handle = await server.client.workflow.start<typeof trainingRun>('trainingRun', {
      taskQueue: TASK_QUEUE,
      workflowId: `run-${++runs}`,
      args: [input as TrainingRunInput],
      workflowExecutionTimeout: '10m',
    });
    return await check({ handle, calls });
  });
}
const finished = (input: unknown, behaviour: Behaviour = {}): Promise<{ result: TrainingRunResult; calls: readonly Call[]; id: string }> =>
  withRun(input, behaviour, async ({ handle, calls }) => ({ result: await handle.result(), calls, id: handle.workflowId }));

async function until(what: string, condition: () => Promise<boolean> | boolean): Promise<void> {
  for (let tries = 0; tries < 300; tries++) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail(`not within 15 s: ${what}`);
}
const inputs = (calls: readonly Call[], name: Call['name']): Call['input'][] =>
  calls.filter((call) => call.name === name).map(({ input }) => input);

describe('a whole run', () => {
  it('goes Base → RSR-1 → RPR-1 → RSR-2 → RPR-2, each stage evaluated, and hands policy and critic on', async () => {
    const { result, calls, id } = await finished(small, { dev: { Base: 0.2, 'RSR-1': 0.4, 'RPR-1': 0.5, 'RSR-2': 0.6, 'RPR-2': 0.7 } });
    assert.deepEqual(
      result.stages.map(({ name, adopted }) => [name, adopted]),
      [
        ['Base', true],
        ['RSR-1', true],
        ['RPR-1', true],
        ['RSR-2', true],
        ['RPR-2', true],
      ],
    );
    assert.deepEqual(
      inputs(calls, 'evaluate').map(({ policy }) => policy),
      [
        artifact('policy', 'base'),
        artifact('policy', 'RSR-1'),
        artifact('policy', 'RPR-1/ppo-2'),
        artifact('policy', 'RSR-2'),
        artifact('policy', 'RPR-2/ppo-3'),
      ],
    );
    assert.deepEqual(result.finalPolicy, artifact('policy', 'RPR-2/ppo-3'));

    const [first, second] = inputs(calls, 'warmUpCritic');
    assert.equal(first?.['critic'], undefined);
    assert.deepEqual(second?.['critic'], artifact('critic', 'RPR-1/ppo-2'));
    assert.deepEqual(second?.['actor'], artifact('policy', 'RSR-2'));

    const ppo = inputs(calls, 'jointPpo');
    assert.deepEqual(
      ppo.map(({ actorLearningRate, initialTokensPerTurn, actorOptimizer, reference }) => [
        actorLearningRate,
        initialTokensPerTurn,
        actorOptimizer !== undefined,
        reference,
      ]),
      [
        [0.001, undefined, false, artifact('policy', 'RSR-1')],
        [0.001, 7, true, artifact('policy', 'RSR-1')],
        [0.002, undefined, false, artifact('policy', 'RSR-2')],
        [0.002, 7, true, artifact('policy', 'RSR-2')],
        [0.002, 7, true, artifact('policy', 'RSR-2')],
      ],
    );
    assert.deepEqual(
      [...new Set(inputs(calls, 'reward').map(({ key, reward }) => `${key?.stage} ${String(reward)}`))],
      ['RPR-1 fdr', 'RPR-2 spr'],
    );

    const names = (await server.executions()).map(({ workflowId }) => workflowId).filter((name) => name.startsWith(`${id}/`));
    for (const name of ['base/evaluation', 'base/evaluation/2', 'rsr-1', 'rsr-1/rollout', 'rpr-1/warm-up', 'rpr-2/ppo-3'])
      assert.ok(names.includes(`${id}/${name}`), name);

    const description = await server.client.workflow.getHandle(id).describe();
    const { RsiStage, RsiStatus, RsiProfile, RsiScore, RsiPolicy } = description.searchAttributes;
    assert.deepEqual([RsiStage, RsiStatus, RsiProfile, RsiScore, RsiPolicy].flat(), [
      'RPR-2',
      'finished',
      'smoke',
      70,
      result.finalPolicy.sha256.slice(0, 12),
    ]);
    assert.match(result.table, /\| core\\\* \| 20\.0 .* \| 70\.0/);
  });

  it('rolls out every episode of a batch once, in chunks of the configured size', async () => {
    const { calls } = await finished({ ...small, rounds: 1 });
    const rollouts = inputs(calls, 'rollout').filter(({ key }) => key?.stage === 'RSR-1' && key.purpose === 'rollout');
    const chunks = rollouts.map(({ episodes }) => episodes as { task: { id: string }; harness: string; sample: number }[]);
    assert.ok(chunks.every((chunk) => chunk.length <= 8));
    const all = chunks.flat().map(({ task, harness, sample }) => `${task.id} ${harness} ${sample}`);
    // 6 tasks, 4 samples in the target harness and 1 in the complementary one.
    assert.equal(all.length, 30);
    assert.equal(new Set(all).size, 30);
  });

  it('leaves out the tasks that calibration rejects', async () => {
    const { calls } = await finished({ ...small, rounds: 1 }, { rejected: ['train/train-0', 'core/core-1'] });
    const used = inputs(calls, 'rollout').flatMap(({ episodes }) => (episodes as { task: { id: string } }[]).map(({ task }) => task.id));
    assert.ok(used.includes('train-1') && used.includes('core-2'));
    assert.ok(!used.includes('train-0') && !used.includes('core-1'));
  });
});

describe('adoption', () => {
  it('a stage that falls on dev is not adopted and leaves the policy as it was', async () => {
    const { result, calls } = await finished(small, { dev: { Base: 0.8, 'RSR-1': 0.1, 'RPR-1': 0.9, 'RSR-2': 0.9, 'RPR-2': 0.9 } });
    assert.deepEqual(
      result.stages.map(({ adopted }) => adopted),
      [true, false, true, true, true],
    );
    assert.match(result.stages[1]?.decision ?? '', /dev 80\.0 % → 10\.0 %/);
    assert.deepEqual(inputs(calls, 'warmUpCritic')[0]?.['actor'], artifact('policy', 'base'));
  });

  it('a round of RSR without anything to train on is evaluated, not adopted, and the run goes on', async () => {
    const { result, calls } = await finished({ ...small, rounds: 1 }, { kept: 0 });
    assert.equal(inputs(calls, 'fineTuneActor').length, 0);
    assert.deepEqual([result.stages[1]?.adopted, result.stages[2]?.name], [false, 'RPR-1']);
    assert.match(result.stages[1]?.decision ?? '', /nothing to train on/);
  });
});

describe('stop rules', () => {
  it('end the stage with what it has', async () => {
    const stop = { 'RPR-1/ppo-1': { rule: 'maxKl', value: 0.9, limit: 0.2 } } as const;
    const { result } = await finished({ ...small, rounds: 1 }, { stop });
    const stage = result.stages[2];
    assert.equal(stage?.ppo?.length, 1);
    assert.deepEqual(stage?.policy, artifact('policy', 'RPR-1/ppo-1'));
    assert.equal(stage?.stopped, 'iteration 1: maxKl = 0.9, limit 0.2');
  });

  it('numbers out of the finite range end the stage with the iteration before', async () => {
    const { result } = await finished({ ...small, rounds: 1 }, { numericalError: 'RPR-1/ppo-2' });
    assert.deepEqual(result.stages[2]?.policy, artifact('policy', 'RPR-1/ppo-1'));
    assert.equal(result.stages[2]?.stopped, 'iteration 2: loss is NaN at step 2');
  });
});

describe('a wrong input', () => {
  it('fails the run at once, with every bad field', async () => {
    await withRun({ rpr: { gamma: 1.5 }, sed: 1 }, {}, async ({ handle, calls }) => {
      await assert.rejects(handle.result(), (error: unknown) => {
        assert.ok(error instanceof WorkflowFailedError);
        const { type, message } = error.cause as unknown as { type: string; message: string };
        assert.equal(type, 'InvalidConfig');
        assert.match(message, /^rpr\.gamma: got 1\.5, expected a number between 0 and 1\nsed: got 1, .*nearest known one is seed$/);
        return true;
      });
      assert.equal(calls.length, 0);
    });
  });
});

describe('messages', () => {
  const status = async (handle: Started['handle']): Promise<RunProgress> => await handle.query(progress);

  it('pause holds every child before its next activity, resume lets them go on', async () => {
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    const isFirst = ({ name, input }: Call): boolean =>
      name === 'rollout' && input.key?.stage === 'RSR-1' && input.key.purpose === 'rollout';
    await withRun({ ...small, rounds: 1 }, { before: (call) => (isFirst(call) ? held : undefined) }, async ({ handle, calls }) => {
      await until('the first rollout of RSR-1', () => calls.some(isFirst));
      assert.match(await handle.executeUpdate(pause), /^paused in RSR-1/);
      await assert.rejects(handle.executeUpdate(pause), (error: Error) => /paused already/.test(String(error.cause)));
      assert.equal((await status(handle)).status, 'paused');
      // The batch is a grandchild: the pause goes down by signals.
      const history = async (): Promise<number> =>
        Number((await server.client.workflow.getHandle(`${handle.workflowId}/rsr-1/rollout`).describe()).historyLength);
      const lengthBefore = await history();
      release();
      await until('the held rollouts to finish', async () => (await history()) >= lengthBefore + 6);
      const before = calls.length;
      await new Promise((resolve) => setTimeout(resolve, 1_000));
      assert.equal(calls.length, before, 'nothing starts while the run is paused');
      assert.equal(inputs(calls, 'verify').filter(({ key }) => key?.stage === 'RSR-1').length, 0);
      await handle.executeUpdate(resume);
      assert.equal((await handle.result()).stages.length, 3);
    });
  });

  it('the signals pauseRun and resumeRun do the same', async () => {
    await withRun({ ...small, rounds: 1 }, {}, async ({ handle }) => {
      await handle.signal(pauseRun);
      await until('paused', async () => (await status(handle)).status === 'paused');
      await assert.rejects(handle.executeUpdate(approveStage, { args: [{}] }), (error: Error) =>
        /requireApproval is false/.test(String(error.cause)),
      );
      await handle.signal(resumeRun);
      assert.equal((await handle.result()).stages.length, 3);
    });
  });

  it('with requireApproval each stage waits for approveStage', async () => {
    await withRun({ ...small, rounds: 1, requireApproval: true }, {}, async ({ handle, calls }) => {
      await until('waiting', async () => (await status(handle)).status === 'waiting-for-approval');
      assert.equal((await status(handle)).stage, 'RSR-1');
      await assert.rejects(handle.executeUpdate(approveStage, { args: [{ stage: 'RSR-7' }] }), (error: Error) =>
        /expected one of RSR-1, RPR-1/.test(String(error.cause)),
      );
      assert.ok(!calls.some(({ input }) => input.key?.stage === 'RSR-1'));
      assert.equal(await handle.executeUpdate(approveStage, { args: [{ stage: 'RPR-1' }] }), 'approved RPR-1');
      assert.equal(await handle.executeUpdate(approveStage, { args: [{}] }), 'approved RSR-1');
      const result = await handle.result();
      assert.equal(result.stages.length, 3);
    });
  });

  it('progress tells which activity is at work, and counts in its unit', async () => {
    const seen: string[] = [];
    let handle: Started['handle'] | undefined;
    const before = async ({ name }: Call): Promise<void> => {
      if (!handle || !['rewrite', 'fineTuneActor', 'warmUpCritic', 'jointPpo'].includes(name)) return;
      const { stage, activity, count, loss } = await status(handle);
      seen.push([name, stage, activity, ...(count ? countTexts(count) : []), ...(loss === undefined ? [] : [`loss ${loss}`])].join(' · '));
    };
    // Calibration is held until the handle is known here.
    let known = (): void => undefined;
    const started = new Promise<void>((resolve) => (known = resolve));
    const behaviour: Behaviour = { before: (call) => (call.name === 'calibrate' ? started : before(call)) };
    await withRun({ ...small, rounds: 1 }, behaviour, async (run) => {
      handle = run.handle;
      known();
      await run.handle.result();
    });
    const epochs = resolveConfig({ ...small }).rsr.epochs;
    assert.deepEqual(seen, [
      'rewrite · RSR-1 · rewrite · task groups 0/1 · 0 kept',
      `fineTuneActor · RSR-1 · fine-tune · epochs 0/${epochs}`,
      'warmUpCritic · RPR-1 · critic warm-up',
      'jointPpo · RPR-1 · PPO · iterations 0/2 · loss 1',
      'jointPpo · RPR-1 · PPO · iterations 1/2 · loss 0.1',
    ]);
  });

  it('progress tells stage and scores', async () => {
    await withRun({ ...small, rounds: 1 }, {}, async ({ handle }) => {
      await handle.result();
      const { status: now, stages, plannedStages, profile } = await status(handle);
      assert.deepEqual([now, profile, plannedStages], ['finished', 'smoke', ['Base', 'RSR-1', 'RPR-1']]);
      assert.deepEqual(
        stages.map(({ name, fourSuiteMean }) => [name, fourSuiteMean]),
        [
          ['Base', 0.5],
          ['RSR-1', 0.5],
          ['RPR-1', 0.5],
        ],
      );
    });
  });
});

it('a large batch continues as new and still returns every chunk in order', async () => {
  const { calls, id } = await finished({
    ...small,
    rounds: 1,
    rollout: { chunkSize: 1, chunksInFlight: 4 },
    evaluation: { repeats: 1 },
    rsr: { samplesPerTask: 20 },
  });
  const batches = (await server.executions()).filter(({ workflowId }) => workflowId === `${id}/rsr-1/rollout`);
  assert.ok(batches.length > 1, `${batches.length} executions`);
  const chunks = inputs(calls, 'rollout')
    .filter(({ key }) => key?.stage === 'RSR-1' && key.purpose === 'rollout')
    .map(({ chunk }) => chunk as number);
  assert.deepEqual(
    [...chunks].sort((a, b) => a - b),
    Array.from({ length: 126 }, (_, index) => index),
  );
  const [rewrite] = inputs(calls, 'rewrite');
  assert.deepEqual(rewrite?.['places'], [...Array(126).keys()]);
  // Each execution stored the chunks of its own; the batch names the parts in order.
  const parts = inputs(calls, 'collectChunks').filter(({ key }) => key?.stage === 'RSR-1' && key.purpose === 'rollout');
  const sizes = parts.map(({ chunks: part }) => (part as unknown[]).length);
  assert.equal(sizes.length, batches.length);
  assert.equal(
    sizes.reduce((sum, size) => sum + size, 0),
    126,
  );
  assert.deepEqual(
    rewrite['chunks'],
    parts.map(({ chunks: part }) => artifact('chunks', JSON.stringify(part))),
  );
});

it('a stage of many iterations continues as new and hands everything on', async () => {
  const rpr = { iterations: [34], tasksPerIteration: 1, samplesPerTask: 1 };
  const { result, calls, id } = await finished({ ...small, rounds: 1, evaluation: { repeats: 1 }, rpr });
  const executions = (await server.executions()).filter(({ workflowId }) => workflowId === `${id}/rpr-1`);
  assert.equal(executions.length, 2);
  const stage = result.stages[2];
  assert.equal(stage?.ppo?.length, 34);
  assert.equal(stage.batches.length, 35);
  assert.equal(stage.counts.episodes, 35);
  assert.equal(inputs(calls, 'warmUpCritic').length, 1);
  const last = inputs(calls, 'jointPpo').at(-1);
  assert.deepEqual([last?.['actor'], last?.['initialTokensPerTurn']], [artifact('policy', 'RPR-1/ppo-33'), 7]);
});

it('a finished stage is taken as it is: nothing of it runs, and the next stage starts from its policy', async () => {
  const { result } = await finished({ ...small, rounds: 1 });
  const [, rsr] = result.stages;
  assert.ok(rsr);
  const reused = { ...rsr, record: { ...rsr.record, reusedFrom: { runKey: 'other', index: 2, hash: 'h' } } };
  const again = await finished({ ...small, rounds: 1 }, { finished: { 'RSR-1': reused } });
  assert.deepEqual(again.result.stages[1], reused);
  assert.equal(inputs(again.calls, 'fineTuneActor').length, 0);
  assert.deepEqual(inputs(again.calls, 'warmUpCritic')[0]?.['actor'], rsr.policy);
  assert.deepEqual(
    inputs(again.calls, 'recordStage').map(({ stage }) => stage),
    ['Base', 'RPR-1'],
  );
  assert.match(again.result.table, /RSR-1 ‡/);
});
