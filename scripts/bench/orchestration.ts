/** What orchestration costs: histories and times of runs whose activities answer at once, on a server with a database file. */
import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { fetchTree } from '../../records/history.ts';
import type { WorkflowHistory } from '../../records/history.ts';
import { repoRoot } from '../../records/paths.ts';
import type { TemporalServer } from '../../tests/temporal.ts';
import { artifact, tasks } from '../../tests/recorded-activities.ts';
import { TASK_QUEUE } from '../../workflows/contract.ts';
import type { EpisodeBatchInput, TrainingRunInput } from '../../workflows/contract.ts';
import type { episodeBatch } from '../../workflows/episodes.ts';
import { profiles, signalsPerBatch } from '../../workflows/profiles.ts';
import type { trainingRun } from '../../workflows/training-run.ts';
import type { MemorySample, WorkerMessage } from './worker.ts';

/** A history's size as the server counts it, which is what its limits are about. */
export interface Size {
  readonly executions: number;
  readonly events: number;
  readonly bytes: number;
  /** Of a single execution. */
  readonly largestEvents: number;
  readonly largestBytes: number;
}
export interface BatchCost extends Size {
  readonly episodes: number;
  readonly seconds: number;
  readonly eventsPerEpisode: number;
  readonly bytesPerEpisode: number;
  readonly millisecondsPerEpisode: number;
}
export interface RunCost {
  readonly input: TrainingRunInput;
  readonly episodes: number;
  readonly seconds: number;
  readonly total: Size;
  readonly byWorkflow: Readonly<Record<string, Size>>;
  /** `trainingRun` for what belongs to no stage. */
  readonly byStage: Readonly<Record<string, Size>>;
}

/** A worker in a process of its own, so that its memory is nobody else's. */
export class BenchWorker {
  /** One sample for each thousand episodes. */
  readonly memory: MemorySample[] = [];
  readonly #child: ChildProcess;
  private constructor(child: ChildProcess) {
    this.#child = child;
    child.on('message', (message: WorkerMessage) => {
      if (message.type === 'memory') this.memory.push({ episodes: message.episodes, rssBytes: message.rssBytes });
    });
  }
  static async start(address: string): Promise<BenchWorker> {
    const env = { ...process.env, TEMPORAL_ADDRESS: address };
    const child = fork(path.join(repoRoot, 'scripts', 'bench', 'worker.ts'), { env, execArgv: ['--import', 'tsx'] });
    const worker = new BenchWorker(child);
    const ended = once(child, 'exit').then(([code]) => Promise.reject(new Error(`the bench worker ended with ${String(code)}`)));
    await Promise.race([once(child, 'message'), ended]);
    ended.catch(() => undefined);
    return worker;
  }
  async stop(): Promise<void> {
    this.#child.disconnect();
    if (this.#child.exitCode === null) await once(this.#child, 'exit');
  }
}

/** One batch of `episodes` episodes with the settings of `quick`, started by itself; a waiting run takes its progress signals. */
export async function batchCost(server: TemporalServer, episodes: number): Promise<BatchCost> {
  const { client } = server;
  const config = profiles.quick;
  const root = `root-of-${episodes}`;
  const running = await client.workflow.start<typeof trainingRun>('trainingRun', {
    ...{ taskQueue: TASK_QUEUE, workflowId: root },
    args: [{ profile: 'smoke', requireApproval: true }],
  });
  const workflowId = `batch-of-${episodes}`;
  const input: EpisodeBatchInput = {
    ...{ key: { runKey: running.firstExecutionRunId, stage: 'RSR-1', purpose: 'rollout' }, root, runSeed: 1 },
    ...{ policy: artifact('policy', 'base'), sandbox: 'embedded', temperature: 1, rollout: config.rollout },
    // The same tasks for every size: what grows is the number of their samples.
    groups: [{ tasks: tasks('train', Math.min(episodes, TASKS)), harness: 'shell', samples: Math.ceil(episodes / TASKS) }],
    signals: signalsPerBatch(config),
  };
  const started = performance.now();
  const handle = await client.workflow.start<typeof episodeBatch>('episodeBatch', { taskQueue: TASK_QUEUE, workflowId, args: [input] });
  const { counts } = await handle.result();
  const seconds = (performance.now() - started) / 1000;
  await running.terminate('measured');
  const size = await sizeOf(server, await fetchTree(client, { workflowId, runId: handle.firstExecutionRunId }));
  return {
    ...{ episodes: counts.episodes, seconds, ...size },
    eventsPerEpisode: size.events / counts.episodes,
    bytesPerEpisode: size.bytes / counts.episodes,
    millisecondsPerEpisode: (1000 * seconds) / counts.episodes,
  };
}
const TASKS = 100;

/** A whole run with the built-in tasks and the numbers of samples, chunks and iterations that the input asks for. */
export async function runCost(server: TemporalServer, input: TrainingRunInput): Promise<RunCost> {
  const { client } = server;
  const workflowId = 'whole-run';
  const started = performance.now();
  const handle = await client.workflow.start<typeof trainingRun>('trainingRun', { taskQueue: TASK_QUEUE, workflowId, args: [input] });
  const { stages } = await handle.result();
  const seconds = (performance.now() - started) / 1000;
  const histories = await fetchTree(client, { workflowId, runId: handle.firstExecutionRunId });
  const sizes = async (keyOf: (history: WorkflowHistory) => string): Promise<Record<string, Size>> => {
    const groups = new Map<string, WorkflowHistory[]>();
    for (const history of histories) groups.set(keyOf(history), [...(groups.get(keyOf(history)) ?? []), history]);
    const entries = [...groups].map(async ([key, group]): Promise<[string, Size]> => [key, await sizeOf(server, group)]);
    return Object.fromEntries(await Promise.all(entries));
  };
  return {
    ...{ input, seconds, episodes: stages.reduce((sum, { counts, evaluation }) => sum + counts.episodes + evaluation.episodes, 0) },
    total: await sizeOf(server, histories),
    byWorkflow: await sizes(({ type }) => type),
    byStage: await sizes((history) => history.workflowId.split('/')[1]?.toUpperCase() ?? 'trainingRun'),
  };
}

async function sizeOf({ client }: TemporalServer, histories: readonly WorkflowHistory[]): Promise<Size> {
  const described = await Promise.all(
    histories.map(async ({ workflowId, runId }) => {
      const { historyLength, historySize = 0 } = await client.workflow.getHandle(workflowId, runId).describe();
      return { events: historyLength, bytes: historySize };
    }),
  );
  const sum = (values: number[]): number => values.reduce((total, value) => total + value, 0);
  const [events, bytes] = [described.map((one) => one.events), described.map((one) => one.bytes)];
  return {
    ...{ executions: histories.length, events: sum(events), bytes: sum(bytes) },
    ...{ largestEvents: Math.max(0, ...events), largestBytes: Math.max(0, ...bytes) },
  };
}
