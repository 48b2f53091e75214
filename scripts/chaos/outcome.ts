/**
 * What a finished run came to, by name: every activity's result, with the artifacts in it, out of the histories of the run and
 * its children. The names are made of stage, purpose and chunk and not of ids, so that two runs can be laid side by side.
 */
import { createHash } from 'node:crypto';
import { defaultPayloadConverter, type Client } from '@temporalio/client';
import type { temporal } from '@temporalio/proto';
import { canonicalJson } from '../../records/canonical-json.ts';
import type { ArtifactRef } from '../../records/types.ts';

/** One activity that ended, e.g. `RSR-1/rollout/rollout/0`. */
export interface ActivityOutcome {
  readonly name: string;
  readonly type: string;
  readonly stage: string;
  readonly purpose: string;
  /** Field of the result → artifact, e.g. `chunks[0].verify.verdicts`. */
  readonly artifacts: readonly { readonly field: string; readonly ref: ArtifactRef }[];
  /** SHA-256 of the whole result in canonical JSON; undefined where it carries addresses or times. */
  readonly result?: string;
  /** Attempt that ended it, 1 for one that was never disturbed. */
  readonly attempts: number;
  /** Milliseconds since the epoch. */
  readonly endedAt: number;
}

/** Their results name the run, its folders or the code: nothing that training went on from. */
const NAMES_THE_RUN: ReadonlySet<string> = new Set(['prepareRun', 'report', 'sweep', 'recordStage']);

type Event = temporal.api.history.v1.IHistoryEvent;

/** Activities of the workflow and of all its children that completed, in the order of their ends. */
export async function activityOutcomes(client: Client, workflowId: string): Promise<ActivityOutcome[]> {
  const outcomes: ActivityOutcome[] = [];
  const queue: { workflowId: string; runId?: string }[] = [{ workflowId }];
  for (let next = queue.shift(); next; next = queue.shift()) {
    const { events } = await client.workflow.getHandle(next.workflowId, next.runId).fetchHistory();
    const scheduled = new Map<string, Event>();
    const attempts = new Map<string, number>();
    for (const event of events ?? []) {
      const started = event.activityTaskStartedEventAttributes;
      const completed = event.activityTaskCompletedEventAttributes;
      const child = event.childWorkflowExecutionStartedEventAttributes?.workflowExecution;
      const continued = event.workflowExecutionContinuedAsNewEventAttributes;
      if (event.activityTaskScheduledEventAttributes) scheduled.set(String(event.eventId), event);
      if (started) attempts.set(String(started.scheduledEventId), started.attempt ?? 1);
      if (completed) {
        const id = String(completed.scheduledEventId);
        const from = scheduled.get(id)?.activityTaskScheduledEventAttributes;
        if (from) outcomes.push(outcomeOf(from, completed, attempts.get(id) ?? 1, milliseconds(event)));
      }
      if (child?.workflowId && child.runId) queue.push({ workflowId: child.workflowId, runId: child.runId });
      if (continued?.newExecutionRunId) queue.push({ workflowId: next.workflowId, runId: continued.newExecutionRunId });
    }
  }
  return outcomes.sort((a, b) => a.endedAt - b.endedAt);
}

function outcomeOf(
  scheduled: temporal.api.history.v1.IActivityTaskScheduledEventAttributes,
  completed: temporal.api.history.v1.IActivityTaskCompletedEventAttributes,
  attempts: number,
  endedAt: number,
): ActivityOutcome {
  const type = scheduled.activityType?.name ?? 'activity';
  const input = decoded(scheduled.input?.payloads) as { key?: { stage?: string; purpose?: string }; stage?: unknown; chunk?: number };
  const result = decoded(completed.result?.payloads);
  const stage = input.key?.stage ?? stageName(input.stage) ?? 'run';
  const purpose = input.key?.purpose ?? '';
  const name = [stage, purpose, type, input.chunk].filter((part) => part !== undefined && part !== '').join('/');
  const artifacts = [...artifactsIn(result)];
  const hash = createHash('sha256')
    .update(canonicalJson(result ?? null))
    .digest('hex');
  return { name, type, stage, purpose, artifacts, attempts, endedAt, ...(NAMES_THE_RUN.has(type) ? {} : { result: hash }) };
}

/** `recordStage` gets the whole stage, the others its name or nothing. */
function stageName(stage: unknown): string | undefined {
  if (typeof stage === 'string') return stage;
  const name: unknown = typeof stage === 'object' && stage !== null ? (stage as { name?: unknown }).name : undefined;
  return typeof name === 'string' ? name : undefined;
}

/** Every artifact reference in a value, with the place where it stands. */
export function* artifactsIn(value: unknown, field = ''): Generator<{ field: string; ref: ArtifactRef }> {
  if (typeof value !== 'object' || value === null) return;
  if (isReference(value)) {
    yield { field, ref: value };
    return;
  }
  for (const [key, item] of Object.entries(value)) {
    const place = Array.isArray(value) ? `${field}[${key}]` : field === '' ? key : `${field}.${key}`;
    yield* artifactsIn(item, place);
  }
}

function isReference(value: object): value is ArtifactRef {
  const { kind, uri, sha256 } = value as Partial<Record<keyof ArtifactRef, unknown>>;
  return typeof kind === 'string' && typeof sha256 === 'string' && uri === `artifact:${sha256}`;
}

function decoded(payloads: temporal.api.common.v1.IPayload[] | null | undefined): unknown {
  const [payload] = payloads ?? [];
  return payload ? defaultPayloadConverter.fromPayload(payload) : undefined;
}

function milliseconds({ eventTime }: Event): number {
  return Number(eventTime?.seconds ?? 0) * 1000 + (eventTime?.nanos ?? 0) / 1e6;
}
