/**
 * Resets and `npm run resume` with a real server, real workflows and real ledgers; only the work inside the stages is made up
 * (tests/ledger-activities.ts). The same with real processes: tests/resume.slow.test.ts.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { WorkflowHandle } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import { UserError } from '../environment/errors.ts';
import { ArtifactStore } from '../records/artifacts.ts';
import { effectiveStages, Ledger } from '../records/ledger.ts';
import { stageFolders } from '../records/lineage.ts';
import { failurePoint, stagePoint } from '../scripts/launcher/reset-points.ts';
import { forkRun, goOn, lookUpRun, restartFrom } from '../scripts/launcher/resume.ts';
import { fetchHistory } from '../records/history.ts';
import { TASK_QUEUE } from '../workflows/contract.ts';
import type { TrainingRunInput, TrainingRunResult } from '../workflows/contract.ts';
import { approveStage } from '../workflows/messages.ts';
import { ledgerActivities } from './ledger-activities.ts';
import type { Behaviour, Call } from './recorded-activities.ts';
import { TemporalServer, withWorkers } from './temporal.ts';

let server: TemporalServer;
let data: string;
let store: ArtifactStore;
before(async () => {
  server = await TemporalServer.start();
  data = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-resume-'));
  store = new ArtifactStore(path.join(data, 'artifacts'));
});
after(async () => {
  await server.stop();
  await rm(data, { recursive: true, force: true });
});

const small = { profile: 'smoke', evaluation: { tasksPerSuite: 1 } } as const;
const silent = (): void => undefined;
let runs = 0;

interface Started {
  readonly id: string;
  readonly handle: WorkflowHandle;
  readonly runKey: string;
  readonly calls: readonly Call[];
}

async function withRun(input: TrainingRunInput, behaviour: Behaviour, check: (run: Started) => Promise<void>): Promise<void> {
  const { calls, rollout, gpu } = ledgerActivities({ store, data }, behaviour);
  await withWorkers(server, { rollout, gpu }, async () => {
    const id = `resume-${++runs}`;
    const handle = await server.client.workflow.start('trainingRun', { taskQueue: TASK_QUEUE, workflowId: id, args: [input] });
    await check({ id, handle, runKey: handle.firstExecutionRunId, calls });
  });
}

/** Holds every call of that activity until `release` is called. */
function held(name: Call['name'], purpose: string): { behaviour: Behaviour; arrived: Promise<void>; release: () => void } {
  let [release, arrive] = [silent, silent];
  const open = new Promise<void>((resolve) => (release = resolve));
  const arrived = new Promise<void>((resolve) => (arrive = resolve));
  const behaviour: Behaviour = {
    before(call) {
      if (call.name !== name || call.input.key?.purpose !== purpose) return undefined;
      arrive();
      return open;
    },
  };
  return { behaviour, arrived, release };
}

/** As the Temporal UI does it. */
async function reset(id: string, runId: string, eventId: string): Promise<void> {
  await server.client.workflowService.resetWorkflowExecution({
    namespace: 'default',
    workflowExecution: { workflowId: id, runId },
    workflowTaskFinishEventId: Number(eventId) as never,
    requestId: randomUUID(),
    reason: 'test',
  });
}
const result = async (id: string): Promise<TrainingRunResult> => (await server.client.workflow.getHandle(id).result()) as TrainingRunResult;
const names = (list: readonly Call[], name: Call['name']): string[] =>
  list.filter((call) => call.name === name).map(({ input }) => (input['stage'] as string | undefined) ?? input.key?.stage ?? '');
const shown = ({ stages }: TrainingRunResult): string[] => stages.map(({ name, record }) => `${name}${record.reusedFrom ? ' ‡' : ''}`);
const eventsOf = async (id: string, runId: string) => (await fetchHistory(server.client, { workflowId: id, runId })).events;
const pointOf = async (id: string, runId: string, stage: string): Promise<string> =>
  stagePoint(await eventsOf(id, runId), stage) ?? assert.fail(`${stage} was not opened`);
/** The first workflow task that ended after the child of that name had started. */
async function inTheMiddleOf(id: string, runId: string, child: string): Promise<string> {
  const events = await eventsOf(id, runId);
  const started = events.findIndex((event) => event.childWorkflowExecutionStartedEventAttributes?.workflowExecution.workflowId === child);
  const next = events.find((event, index) => index > started && event.eventType === 'EVENT_TYPE_WORKFLOW_TASK_COMPLETED');
  return next?.eventId ?? assert.fail(`nothing after the start of ${child}`);
}
function rootOf(error: Error): string {
  return error.cause instanceof Error ? rootOf(error.cause) : error.message;
}
async function open(id: string): Promise<string[]> {
  const found: string[] = [];
  for await (const { workflowId } of server.client.workflow.list({ query: `ExecutionStatus = 'Running'` }))
    if (workflowId.startsWith(`${id}/`)) found.push(workflowId);
  return found;
}
const stagesIn = async (runKey: string): Promise<string[]> =>
  effectiveStages(await new Ledger(data, runKey).read()).map(({ content, index }) => `${content.stage} ${index}`);

describe('a reset in the UI', () => {
  it('of a finished run reuses its stages, under the same key, and shows them so', async () => {
    await withRun(small, {}, async ({ id, runKey, calls }) => {
      const first = await result(id);
      assert.deepEqual(shown(first), ['Base', 'RSR-1', 'RPR-1']);
      const before = calls.length;
      await reset(id, runKey, await pointOf(id, runKey, 'RSR-1'));
      const again = await result(id);
      assert.equal(again.runKey, runKey);
      assert.deepEqual(shown(again), ['Base', 'RSR-1 ‡', 'RPR-1 ‡']);
      assert.match(again.table, /RPR-1 ‡/);
      assert.deepEqual(again.finalPolicy, first.finalPolicy);
      assert.deepEqual([names(calls.slice(before), 'rollout'), names(calls.slice(before), 'recordStage')], [[], []]);
      assert.deepEqual(await stagesIn(runKey), ['Base 1', 'RSR-1 2', 'RPR-1 3']);
    });
  });

  it('to the first task begins again from what is finished', async () => {
    await withRun(small, {}, async ({ id, runKey, calls }) => {
      await result(id);
      const before = calls.length;
      const first = (await eventsOf(id, runKey)).find(({ eventType }) => eventType === 'EVENT_TYPE_WORKFLOW_TASK_COMPLETED');
      await reset(id, runKey, first?.eventId ?? '');
      assert.deepEqual(shown(await result(id)), ['Base ‡', 'RSR-1 ‡', 'RPR-1 ‡']);
      assert.deepEqual(names(calls.slice(before), 'rollout'), []);
    });
  });

  it('in the middle of a stage takes up the child that has ended meanwhile', async () => {
    await withRun(small, {}, async ({ id, runKey, calls }) => {
      await result(id);
      const before = calls.length;
      await reset(id, runKey, await inTheMiddleOf(id, runKey, `${id}/rsr-1`));
      assert.deepEqual(shown(await result(id)), ['Base', 'RSR-1', 'RPR-1 ‡']);
      assert.deepEqual(names(calls.slice(before), 'fineTuneActor'), []);
    });
  });

  for (const stage of ['RPR-1', 'RSR-1', 'the middle of RPR-1'])
    it(`of an open run to ${stage} goes on, and leaves no workflow behind`, async () => {
      const { behaviour, arrived, release } = held('jointPpo', 'ppo-1');
      await withRun({ ...small, reuse: stage === 'RSR-1' ? 'never' : 'lineage' }, behaviour, async ({ id, runKey, calls }) => {
        await arrived;
        const before = calls.length;
        await reset(id, runKey, await (stage.startsWith('the') ? inTheMiddleOf(id, runKey, `${id}/rpr-1`) : pointOf(id, runKey, stage)));
        // The reset stage must be seen to end what was open, while the held activity of old still runs.
        if (stage === 'RSR-1')
          while (!names(calls.slice(before), 'rollout').includes('RSR-1')) await new Promise((resolve) => setTimeout(resolve, 50));
        if (stage === 'RSR-1') assert.ok(!(await open(id)).includes(`${id}/rpr-1`), 'RPR-1 of the execution before is at work');
        release();
        assert.deepEqual(shown(await result(id)), ['Base', 'RSR-1', 'RPR-1']);
        assert.deepEqual(await open(id), []);
      });
    });

  for (const how of ['cancelled', 'terminated'])
    it(`of a run that was ${how} goes on, and resume takes it out of the middle of the stage that was ended`, async () => {
      const { behaviour, arrived, release } = held('rollout', 'warm-up');
      await withRun(small, behaviour, async ({ id, handle, runKey }) => {
        await arrived;
        await (how === 'cancelled' ? handle.cancel() : handle.terminate());
        release();
        await assert.rejects(result(id));
        // The server ends the children of a terminated workflow a moment after it.
        while ((await open(id)).length > 0) await new Promise((resolve) => setTimeout(resolve, 50));
        // The server does not start the ended child again: the run fails, or waits in vain.
        await reset(id, runKey, await inTheMiddleOf(id, runKey, `${id}/rpr-1`));
        if (how === 'cancelled') await assert.rejects(result(id));
        await goOn(server.client, data, await lookUpRun(data, id), silent);
        assert.deepEqual(shown(await result(id)), ['Base', 'RSR-1', 'RPR-1']);
        await reset(id, runKey, await pointOf(id, runKey, 'RPR-1'));
        assert.deepEqual(shown(await result(id)), ['Base', 'RSR-1', 'RPR-1 ‡']);
      });
    });

  it('refuses to go on from a stage that was made again since', async () => {
    const behaviour: { kept?: number } = {};
    await withRun(small, behaviour, async ({ id, runKey }) => {
      await result(id);
      const point = await pointOf(id, runKey, 'RPR-1');
      // Made again with another outcome: there is nothing to train on, so it is not adopted.
      behaviour.kept = 0;
      await restartFrom(server.client, data, await lookUpRun(data, id), { from: 'RSR-1', by: 'test' }, silent);
      await result(id);
      await reset(id, runKey, point);
      await assert.rejects(result(id), (error: Error) => /RPR-1 of run .* would start from policy/.test(rootOf(error)));
    });
  });
});

describe('resume', () => {
  const restart = async (id: string, from: string): Promise<unknown> =>
    await restartFrom(server.client, data, await lookUpRun(data, id), { from, by: 'test' }, silent);

  it('--from runs the stage again with what was made before it, and removes what it had finished', async () => {
    await withRun(small, {}, async ({ id, runKey, calls }) => {
      const first = await result(id);
      const before = calls.length;
      const folders = [...stageFolders(data, runKey, 'RSR-1'), ...stageFolders(data, runKey, 'RPR-1')];
      for (const folder of folders) await mkdir(folder, { recursive: true });
      await restart(id, 'RPR-1');
      const again = await result(id);
      assert.deepEqual(folders.map(existsSync), [true, true, false, false]);
      assert.deepEqual([shown(again), again.runKey], [['Base', 'RSR-1', 'RPR-1'], runKey]);
      assert.deepEqual(again.finalPolicy, first.finalPolicy);
      assert.deepEqual([names(calls.slice(before), 'fineTuneActor'), names(calls.slice(before), 'jointPpo')], [[], ['RPR-1']]);
      const records = await new Ledger(data, runKey).read();
      assert.deepEqual(
        records.map(({ kind }) => kind),
        ['opened', 'stage', 'stage', 'stage', 'closed', 'restarted', 'stage', 'closed'],
      );
      assert.deepEqual(await stagesIn(runKey), ['Base 1', 'RSR-1 2', 'RPR-1 6']);
    });
  });

  it('--from ends an open run first, and is refused for a stage that has not begun', async () => {
    const { behaviour, arrived, release } = held('fineTuneActor', 'fine-tune');
    await withRun(small, behaviour, async ({ id, runKey, calls }) => {
      await arrived;
      const refusal = (expected: RegExp) => (error: unknown) => error instanceof UserError && expected.test(error.message);
      await assert.rejects(restart(id, 'RPR-1'), refusal(/has not come to that stage \(finished: Base\)/));
      await assert.rejects(restart(id, 'RSR-3'), refusal(/--from is RSR-3, expected one of Base, RSR-1, RPR-1/));
      await assert.rejects(lookUpRun(data, 'nothing'), refusal(new RegExp(`"nothing" is not in .*${id}`)));
      const asked = restart(id, 'Base');
      await new Promise((resolve) => setTimeout(resolve, 500));
      release();
      await asked;
      assert.deepEqual(shown(await result(id)), ['Base', 'RSR-1', 'RPR-1']);
      assert.deepEqual(names(calls, 'openStage'), ['Base', 'RSR-1', 'Base', 'RSR-1', 'RPR-1']);
      assert.deepEqual(await stagesIn(runKey), ['Base 3', 'RSR-1 4', 'RPR-1 5']);
      assert.deepEqual(await open(id), []);
    });
  });

  it('--from goes on where an earlier call of it was lost before the reset', async () => {
    await withRun(small, {}, async ({ id, runKey }) => {
      await result(id);
      const content = { from: 'RPR-1', kept: ['Base', 'RSR-1'] };
      await new Ledger(data, runKey).append({ kind: 'restarted', content, observed: { recordedAt: '', by: 'lost' } });
      await restart(id, 'RPR-1');
      assert.deepEqual(shown(await result(id)), ['Base', 'RSR-1', 'RPR-1']);
      const restarts = (await new Ledger(data, runKey).read()).filter(({ kind }) => kind === 'restarted');
      assert.equal(restarts.length, 1);
    });
  });

  it('without options a failed run goes on where it failed', async () => {
    let broken = true;
    const behaviour: Behaviour = {
      before: ({ name }) => (name === 'warmUpCritic' && broken ? Promise.reject(ApplicationFailure.nonRetryable('broken')) : undefined),
    };
    await withRun(small, behaviour, async ({ id, runKey, calls }) => {
      await assert.rejects(result(id));
      const point = failurePoint(await eventsOf(id, runKey));
      assert.equal(point?.what, `${id}/rpr-1`);
      broken = false;
      await goOn(server.client, data, await lookUpRun(data, id), silent);
      assert.deepEqual(shown(await result(id)), ['Base', 'RSR-1', 'RPR-1']);
      assert.deepEqual(names(calls, 'openStage'), ['Base', 'RSR-1', 'RPR-1']);
      // A finished run is only shown.
      const { handle } = await goOn(server.client, data, await lookUpRun(data, id), silent);
      assert.deepEqual(shown((await handle.result()) as TrainingRunResult), ['Base', 'RSR-1', 'RPR-1']);
    });
  });

  it('--fork shares the stages before, records what changed, and needs no history', async () => {
    await withRun(small, {}, async ({ id, runKey, calls }) => {
      await result(id);
      const before = calls.length;
      const changes = { rpr: { epochs: 2 }, seed: 7 };
      // A run that the server has never heard of.
      const parent = { ...(await lookUpRun(data, runKey.slice(0, 13))), workflowId: 'lost' };
      const forked = await forkRun(server.client, data, store, parent, { from: 'RPR-1', changes }, silent);
      const done = await result(forked.handle.workflowId);
      assert.deepEqual(shown(done), ['Base ‡', 'RSR-1 ‡', 'RPR-1']);
      assert.notEqual(done.runKey, runKey);
      assert.deepEqual(new Set(names(calls.slice(before), 'rollout')), new Set(['RPR-1']));
      const [opened] = await new Ledger(data, done.runKey).read();
      assert.ok(opened?.kind === 'opened');
      assert.deepEqual(
        opened.content.fork?.changes.map((change) => [change.path, change.before, change.after]),
        [
          ['seed', 1, 7],
          ['rpr.epochs', 1, 2],
        ],
      );
      await assert.rejects(
        restart(forked.handle.workflowId, 'RSR-1'),
        (error: Error) => error instanceof UserError && /took that stage over/.test(error.message),
      );
      await restart(forked.handle.workflowId, 'RPR-1');
      assert.deepEqual(shown(await result(forked.handle.workflowId)), ['Base ‡', 'RSR-1 ‡', 'RPR-1']);
    });
  });
});

describe('reuse', () => {
  const own = { ...small, seed: 11 };
  it('any: takes equal stages from any run, and those with other settings not', async () => {
    await withRun(own, {}, async ({ id }) => void (await result(id)));
    await withRun({ ...own, reuse: 'any', rpr: { epochs: 3 } }, {}, async ({ id, calls }) => {
      assert.deepEqual(shown(await result(id)), ['Base ‡', 'RSR-1 ‡', 'RPR-1']);
      assert.deepEqual(names(calls, 'jointPpo'), ['RPR-1']);
    });
    await withRun(own, {}, async ({ id }) => assert.deepEqual(shown(await result(id)), ['Base', 'RSR-1', 'RPR-1']));
  });

  it('a stage whose artifact is damaged is run again; a fork names the artifact', async () => {
    await withRun({ ...small, seed: 12 }, {}, async ({ id, runKey, calls }) => {
      const { stages } = await result(id);
      const sha256 = stages[1]?.evaluation.table.sha256 ?? '';
      await writeFile(path.join(store.root, 'sha256', sha256.slice(0, 2), sha256), 'damaged');
      const parent = await lookUpRun(data, id);
      await assert.rejects(
        forkRun(server.client, data, store, parent, { from: 'RPR-1', changes: {} }, silent),
        (error: Error) => error instanceof UserError && error.message.includes(sha256),
      );
      const before = calls.length;
      await reset(id, runKey, await pointOf(id, runKey, 'RSR-1'));
      assert.deepEqual(shown(await result(id)), ['Base', 'RSR-1', 'RPR-1 ‡']);
      assert.deepEqual(names(calls.slice(before), 'fineTuneActor'), ['RSR-1']);
    });
  });

  it('waits for approval again only where the approval came after the reset', async () => {
    await withRun({ ...small, seed: 13, requireApproval: true }, {}, async ({ id, handle, runKey }) => {
      await handle.executeUpdate(approveStage, { args: [{ stage: 'RSR-1', by: 'Ada' }] });
      await handle.executeUpdate(approveStage, { args: [{ stage: 'RPR-1', by: 'Ada' }] });
      await result(id);
      await restart_(id);
      const again = await result(id);
      assert.deepEqual(shown(again), ['Base', 'RSR-1', 'RPR-1']);
      assert.equal(again.stages[2]?.decidedBy.start, 'Ada');
      assert.equal(again.runKey, runKey);
    });
    async function restart_(id: string): Promise<void> {
      await restartFrom(server.client, data, await lookUpRun(data, id), { from: 'RPR-1', by: 'test' }, silent);
    }
  });
});
