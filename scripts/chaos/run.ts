/** The two runs that are compared: one left alone, and one disturbed according to a plan. Each has a data folder and a stack of its own. */
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { WorkflowFailedError, type WorkflowHandle } from '@temporalio/client';
import { InfrastructureError } from '../../environment/errors.ts';
import { Random } from '../../method/seeds.ts';
import { canonicalHash } from '../../records/canonical-json.ts';
import { Ledger } from '../../records/ledger.ts';
import { TASK_QUEUE, type TrainingRunInput, type TrainingRunResult } from '../../workflows/contract.ts';
import type { RunOutcome } from './compare.ts';
import { SmallDisk } from './damage.ts';
import { disturb } from './disturb.ts';
import type { DockerDaemon } from './docker.ts';
import type { Mark } from './marks.ts';
import { Observer } from './observer.ts';
import { activityOutcomes } from './outcome.ts';
import type { Disturbance, Point } from './plan.ts';
import type { Kill } from './result.ts';
import { ChaosStack } from './stack.ts';
import { Watch } from './watch.ts';

const WORKFLOW_ID = 'chaos';

export interface RunSettings {
  readonly data: string;
  readonly input: TrainingRunInput;
  readonly docker: DockerDaemon | undefined;
  readonly signal: AbortSignal;
}

/** Everything that belongs to one run. */
interface Going {
  readonly stack: ChaosStack;
  readonly watch: Watch;
  readonly observer: Observer;
}

/** A run from its start to its end, with nobody in its way. */
export async function undisturbedRun(settings: RunSettings): Promise<{ outcome: RunOutcome; marks: readonly Mark[] }> {
  return withRun(settings, async (going) => {
    const startedAt = Date.now();
    await untilEnded(going, settings.signal);
    const outcome = await outcomeOf(going, settings.data, startedAt);
    return { outcome, marks: going.watch.marks.all };
  });
}

export interface DisturbedSettings extends RunSettings {
  readonly plan: readonly Disturbance[];
  readonly points: readonly Point[];
  readonly seed: number;
  /** Whether the artifacts lie on a disk that can be filled. */
  readonly smallDisk: boolean;
  /** Called after each disturbance. */
  readonly onKill: (kill: Kill, number: number) => void;
  /** Asked at the end: whether the data folder is to be kept. */
  readonly keep: () => boolean;
}
export interface Disturbed {
  readonly kills: readonly Kill[];
  readonly skipped: readonly string[];
  readonly startedAt: number;
  /** Set when the run did not finish. */
  readonly failure?: string;
}

/** A run with disturbances. `inspect` sees its outcome while its files are all there; a run that fails has none. */
export async function disturbedRun(settings: DisturbedSettings, inspect: (outcome: RunOutcome) => void): Promise<Disturbed> {
  const { data, plan, points, signal, docker } = settings;
  const disk = settings.smallDisk ? await SmallDisk.mount(path.join(data, 'artifacts')) : undefined;
  const kills: Kill[] = [];
  const skipped: string[] = [];
  const groups = [...new Set(points.map(({ group }) => group))];
  const random = new Random(settings.seed);
  try {
    return await withRun(settings, async (going) => {
      const startedAt = Date.now();
      try {
        for (const disturbance of plan) {
          const kill = await disturb(disturbance, { ...going, disk, docker, groups, random, signal });
          if (!kill) {
            skipped.push(`${disturbance.kind} at ${disturbance.point.name}: the run had ended`);
            continue;
          }
          kills.push(kill);
          settings.onKill(kill, kills.length);
        }
        await untilEnded(going, signal);
        inspect(await outcomeOf(going, data, startedAt));
        return { kills, skipped, startedAt };
      } catch (error) {
        if (!(error instanceof InfrastructureError)) throw error;
        return { kills, skipped, startedAt, failure: error.message };
      }
    });
  } finally {
    await disk?.unmount(settings.keep());
  }
}

/** Brings a stack up, starts the run on it, and takes it down in every outcome: gracefully when all went well, else at once. */
async function withRun<T>({ data, input, docker, signal }: RunSettings, body: (going: Going) => Promise<T>): Promise<T> {
  const stack = new ChaosStack(data, docker ? { DOCKER_HOST: docker.host } : {});
  const watch = new Watch(data);
  let observer: Observer | undefined;
  try {
    await stack.start(signal);
    const client = await stack.client();
    await client.workflow.start('trainingRun', { workflowId: WORKFLOW_ID, taskQueue: TASK_QUEUE, args: [input] });
    observer = new Observer(stack, WORKFLOW_ID);
    const result = await body({ stack, watch, observer });
    await observer.close();
    await stack.stop();
    return result;
  } finally {
    watch.close();
    await observer?.close();
    await stack.kill();
  }
}

function untilEnded({ watch, observer }: Going, signal: AbortSignal): Promise<void> {
  return watch.untilOrStuck(
    () => observer.ended,
    signal,
    () => observer.pending,
  );
}

/** @throws InfrastructureError with the run's own words when it did not complete */
async function outcomeOf({ stack, observer }: Going, data: string, startedAt: number): Promise<RunOutcome> {
  const seconds = (Date.now() - startedAt) / 1000;
  const client = await stack.client();
  const handle = client.workflow.getHandle(WORKFLOW_ID);
  if (observer.status !== 'COMPLETED') throw new InfrastructureError(`the run ended as ${observer.status}: ${await whyNot(handle)}`);
  // The server may have been the last to be killed.
  for (let tries = 0; ; tries++) {
    try {
      const result = (await handle.result()) as TrainingRunResult;
      const { runId } = await handle.describe();
      const activities = await activityOutcomes(client, { workflowId: handle.workflowId, runId });
      return { data, seconds, result, activities, ledger: await ledgerContents(data, result.runKey) };
    } catch (error) {
      if (tries === 20) throw error;
      await sleep(500);
    }
  }
}

async function ledgerContents(data: string, runKey: string): Promise<RunOutcome['ledger']> {
  const records = await new Ledger(data, runKey).read();
  return records.map(({ kind, content }) => ({ name: 'stage' in content ? content.stage : kind, sha256: canonicalHash(content) }));
}

async function whyNot(handle: WorkflowHandle): Promise<string> {
  try {
    await handle.result();
    return '';
  } catch (error) {
    const messages: string[] = [];
    for (let cause: unknown = error instanceof WorkflowFailedError ? error.cause : error; cause instanceof Error; cause = cause.cause)
      messages.push(cause.message);
    return [...new Set(messages)].join(': ');
  }
}
