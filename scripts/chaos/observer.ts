/** What the run is at, asked of the server again and again, so that it is known at the moment of a kill without a question then. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from '@temporalio/client';
import proto, { type temporal } from '@temporalio/proto';
import type { ChaosStack, Pids } from './stack.ts';

const EVERY_MS = 250;
const { PENDING_ACTIVITY_STATE_STARTED } = proto.temporal.api.enums.v1.PendingActivityState;

export interface AtWork {
  /** e.g. `RSR-1 · rollout · chunk 1 of 2 (16 episodes)`, the activity's summary. */
  readonly what: string;
  readonly type: string;
  /** Workflow and activity id: the same for all attempts. */
  readonly id: string;
  readonly attempt: number;
  /** Milliseconds since the epoch; undefined while the attempt waits for a worker. */
  readonly startedAt?: number;
}
export type RunStatus = 'RUNNING' | 'COMPLETED' | 'FAILED' | 'CANCELLED' | 'TERMINATED' | 'TIMED_OUT' | (string & {});

export class Observer {
  #stack: ChaosStack;
  #workflowId: string;
  #atWork: readonly AtWork[] = [];
  #pids: Pids = {};
  #status: RunStatus = 'RUNNING';
  #closed = false;
  readonly #loops: Promise<unknown>;

  constructor(stack: ChaosStack, workflowId: string) {
    this.#stack = stack;
    this.#workflowId = workflowId;
    this.#loops = Promise.all([this.#repeat(() => this.#askServer()), this.#repeat(() => this.#findProcesses())]);
  }

  get atWork(): readonly AtWork[] {
    return this.#atWork;
  }
  get pids(): Pids {
    return this.#pids;
  }
  /** What is at work, for a person. */
  get pending(): string {
    return this.#atWork.map(({ what, attempt }) => `${what} (attempt ${attempt})`).join(', ') || 'nothing';
  }
  get ended(): boolean {
    return this.#status !== 'RUNNING';
  }
  get status(): RunStatus {
    return this.#status;
  }

  async #repeat(ask: () => Promise<void>): Promise<void> {
    while (!this.#closed) {
      // The server may be dead or starting: what was known last stays.
      await ask().catch(() => undefined);
      await sleep(EVERY_MS);
    }
  }

  async #askServer(): Promise<void> {
    const client = await this.#stack.client();
    const found = await pendingActivities(client, this.#workflowId, 2);
    const { status } = await client.workflow.getHandle(this.#workflowId).describe();
    this.#atWork = found;
    this.#status = status.name;
  }

  async #findProcesses(): Promise<void> {
    this.#pids = await this.#stack.pids();
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#loops;
  }
}

/** Pending activities of a workflow and of its open children, `depth` levels deep (stage → episode batch). */
async function pendingActivities(client: Client, workflowId: string, depth: number): Promise<AtWork[]> {
  const { pendingActivities: own, pendingChildren } = await client.workflowService.describeWorkflowExecution({
    namespace: client.options.namespace,
    execution: { workflowId },
  });
  const here = (own ?? []).map((info) => atWork(workflowId, info));
  if (depth === 0) return here;
  // A child may have ended since.
  const below = (pendingChildren ?? []).map((child) => pendingActivities(client, child.workflowId ?? '', depth - 1).catch(() => []));
  return [...here, ...(await Promise.all(below)).flat()];
}

function atWork(workflowId: string, info: temporal.api.workflow.v1.IPendingActivityInfo): AtWork {
  const type = info.activityType?.name ?? 'activity';
  const started = info.state === PENDING_ACTIVITY_STATE_STARTED ? info.lastStartedTime : undefined;
  const startedAt = started ? Number(started.seconds ?? 0) * 1000 + (started.nanos ?? 0) / 1e6 : undefined;
  const attempt = info.attempt ?? 1;
  const where = workflowId.split('/').slice(1).join('/') || 'run';
  return {
    what: `${where}: ${type}`,
    type,
    id: `${workflowId} ${info.activityId}`,
    attempt,
    ...(startedAt === undefined ? {} : { startedAt }),
  };
}
