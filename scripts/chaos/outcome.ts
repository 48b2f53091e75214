/**
 * What a finished run came to, by name: every activity's result, with the artifacts in it, out of the histories of the run and
 * its children. The names are made of stage, purpose and chunk and not of ids, so that two runs can be laid side by side.
 */
import type { Client } from '@temporalio/client';
import { canonicalHash } from '../../records/canonical-json.ts';
import { activityTraces, fetchTree, payloadValue, type ActivityTrace, type WorkflowHistory } from '../../records/history.ts';
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
const NAMES_THE_RUN: ReadonlySet<string> = new Set(['prepareRun', 'recordStage', 'closeRun', 'report', 'sweep']);

/** Activities of the workflow and of all its children that completed, in the order of their ends. */
export async function activityOutcomes(client: Client, execution: { workflowId: string; runId: string }): Promise<ActivityOutcome[]> {
  const histories = await fetchTree(client, execution);
  const outcomes = histories.flatMap((history) =>
    activityTraces(history).flatMap((trace) => (trace.outcome === 'completed' ? [outcomeOf(history, trace)] : [])),
  );
  return outcomes.sort((a, b) => a.endedAt - b.endedAt);
}

function outcomeOf({ events }: WorkflowHistory, { eventId, type, attempts, closedAt = 0 }: ActivityTrace): ActivityOutcome {
  const scheduled = events.find((event) => event.eventId === eventId)?.activityTaskScheduledEventAttributes;
  const completed = events.find((event) => event.activityTaskCompletedEventAttributes?.scheduledEventId === eventId);
  const input = firstValue(scheduled?.['input']) as
    { key?: { stage?: string; purpose?: string }; stage?: unknown; chunk?: number } | undefined;
  const result = firstValue(completed?.activityTaskCompletedEventAttributes?.['result']);
  const stage = input?.key?.stage ?? stageName(input?.stage) ?? 'run';
  const purpose = input?.key?.purpose ?? '';
  const name = [stage, purpose, type, input?.chunk].filter((part) => part !== undefined && part !== '').join('/');
  const whole = NAMES_THE_RUN.has(type) ? {} : { result: canonicalHash(result ?? null) };
  return { name, type, stage, purpose, artifacts: [...artifactsIn(result)], attempts, endedAt: closedAt, ...whole };
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

/** Of `{payloads: […]}` in the JSON form of a history; the fields that records/history.ts leaves as they are. */
function firstValue(payloads: unknown): unknown {
  const [first] = (payloads as { payloads?: Parameters<typeof payloadValue>[0][] } | undefined)?.payloads ?? [];
  return first ? payloadValue(first) : undefined;
}
