/**
 * Workflow histories outside Temporal: fetched as the JSON that Temporal exports (and replays), walked from a training run down to
 * its episode batches, and read: which activities ran, where, how often, and how they ended.
 */
import type { Client } from '@temporalio/client';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import { z } from 'zod';

/** A payload of a history in JSON form: base64 of the bytes and of the metadata. */
const payload = z.object({ metadata: z.record(z.string(), z.string()).optional(), data: z.string().optional() });
const failure = z.object({ message: z.string().optional(), applicationFailureInfo: z.object({ type: z.string().optional() }).optional() });
const execution = z.object({ workflowId: z.string(), runId: z.string() });
const scheduledRef = z.object({ scheduledEventId: z.string(), failure: failure.optional() });
/** The parts of an event that are read here; everything else is kept as it is. */
const eventSchema = z.looseObject({
  eventId: z.string(),
  eventTime: z.string(),
  eventType: z.string(),
  userMetadata: z.object({ summary: payload.optional() }).optional(),
  activityTaskScheduledEventAttributes: z
    .looseObject({
      activityId: z.string(),
      activityType: z.object({ name: z.string() }),
      taskQueue: z.object({ name: z.string() }).optional(),
    })
    .optional(),
  activityTaskStartedEventAttributes: z
    .looseObject({
      scheduledEventId: z.string(),
      identity: z.string().optional(),
      attempt: z.number().optional(),
      lastFailure: failure.optional(),
    })
    .optional(),
  activityTaskCompletedEventAttributes: scheduledRef.loose().optional(),
  activityTaskFailedEventAttributes: scheduledRef.loose().optional(),
  activityTaskTimedOutEventAttributes: scheduledRef.loose().optional(),
  activityTaskCanceledEventAttributes: scheduledRef.loose().optional(),
  childWorkflowExecutionStartedEventAttributes: z
    .looseObject({ workflowExecution: execution, workflowType: z.object({ name: z.string() }) })
    .optional(),
  workflowExecutionStartedEventAttributes: z.looseObject({ workflowType: z.object({ name: z.string() }) }).optional(),
  workflowExecutionContinuedAsNewEventAttributes: z.looseObject({ newExecutionRunId: z.string() }).optional(),
});
export type HistoryEvent = z.infer<typeof eventSchema>;
const historySchema = z.looseObject({ events: z.array(eventSchema).min(1) });

export interface WorkflowHistory {
  readonly workflowId: string;
  readonly runId: string;
  readonly type: string;
  /** As Temporal exports it. */
  readonly json: string;
  readonly events: readonly HistoryEvent[];
  /** Whether the execution is over: its last event says how it ended. */
  readonly complete: boolean;
}

/** Throws ZodError or SyntaxError where `json` is not an exported history. */
export function parseHistory(id: { readonly workflowId: string; readonly runId: string }, json: string): WorkflowHistory {
  const { events } = historySchema.parse(JSON.parse(json));
  const type = events[0]?.workflowExecutionStartedEventAttributes?.workflowType.name ?? 'unknown';
  const complete = /^EVENT_TYPE_WORKFLOW_EXECUTION_(COMPLETED|FAILED|TIMED_OUT|CANCELED|TERMINATED|CONTINUED_AS_NEW)$/.test(
    events.at(-1)?.eventType ?? '',
  );
  return { ...id, type, json, events, complete };
}

export async function fetchHistory(client: Client, id: { readonly workflowId: string; readonly runId: string }): Promise<WorkflowHistory> {
  return parseHistory(id, historyToJSON(await client.workflow.getHandle(id.workflowId, id.runId).fetchHistory()));
}

/**
 * The histories of an execution, of what it continued as, and of all children below it, parents first. `under` limits the first
 * level to children whose workflow id it accepts.
 */
export async function fetchTree(
  client: Client,
  id: { readonly workflowId: string; readonly runId: string },
  under: (workflowId: string) => boolean = () => true,
): Promise<WorkflowHistory[]> {
  const history = await fetchHistory(client, id);
  const found = [history];
  for (const child of childrenOf(history)) if (under(child.workflowId)) found.push(...(await fetchTree(client, child)));
  const next = continuedAs(history);
  if (next !== undefined) found.push(...(await fetchTree(client, { workflowId: id.workflowId, runId: next }, under)));
  return found;
}

export function childrenOf({ events }: Pick<WorkflowHistory, 'events'>): { workflowId: string; runId: string }[] {
  return events.flatMap((event) => event.childWorkflowExecutionStartedEventAttributes?.workflowExecution ?? []);
}
export function continuedAs({ events }: Pick<WorkflowHistory, 'events'>): string | undefined {
  return events.at(-1)?.workflowExecutionContinuedAsNewEventAttributes?.newExecutionRunId;
}

/** One activity of a workflow, as its history tells it: of several attempts only the last one has a start. Times in ms since the epoch. */
export interface ActivityTrace {
  readonly eventId: string;
  readonly activityId: string;
  readonly type: string;
  readonly taskQueue: string;
  readonly summary: string | undefined;
  readonly scheduledAt: number;
  readonly startedAt: number | undefined;
  readonly closedAt: number | undefined;
  /** Attempts begun. */
  readonly attempts: number;
  /** Identity of the last attempt's worker. */
  readonly worker: string | undefined;
  readonly outcome: 'completed' | 'failed' | 'timed-out' | 'cancelled' | 'open';
  /** Of the last attempt, where the activity failed. */
  readonly failure: string | undefined;
  /** Of the attempt before the last one. */
  readonly lastFailure: string | undefined;
}

export function activityTraces({ events }: Pick<WorkflowHistory, 'events'>): ActivityTrace[] {
  const traces = new Map<string, { -readonly [K in keyof ActivityTrace]: ActivityTrace[K] }>();
  for (const event of events) {
    const at = Date.parse(event.eventTime);
    const scheduled = event.activityTaskScheduledEventAttributes;
    if (scheduled) {
      traces.set(event.eventId, {
        ...{ eventId: event.eventId, activityId: scheduled.activityId, type: scheduled.activityType.name },
        ...{ taskQueue: scheduled.taskQueue?.name ?? '', summary: textOf(event.userMetadata?.summary), scheduledAt: at },
        ...{ startedAt: undefined, closedAt: undefined, attempts: 0, worker: undefined, outcome: 'open' },
        ...{ failure: undefined, lastFailure: undefined },
      });
    }
    const started = event.activityTaskStartedEventAttributes;
    const begun = started && traces.get(started.scheduledEventId);
    if (begun) {
      begun.startedAt = at;
      begun.attempts = started.attempt ?? 1;
      begun.worker = started.identity;
      begun.lastFailure = describeFailure(started.lastFailure);
    }
    for (const [outcome, ended] of endings(event)) {
      const trace = traces.get(ended.scheduledEventId);
      if (trace) Object.assign(trace, { outcome, closedAt: at, failure: describeFailure(ended.failure) });
    }
  }
  return [...traces.values()];
}

function endings(event: HistoryEvent): [ActivityTrace['outcome'], z.infer<typeof scheduledRef>][] {
  const all = [
    ['completed', event.activityTaskCompletedEventAttributes],
    ['failed', event.activityTaskFailedEventAttributes],
    ['timed-out', event.activityTaskTimedOutEventAttributes],
    ['cancelled', event.activityTaskCanceledEventAttributes],
  ] as const;
  return all.flatMap(([outcome, ended]) => (ended ? [[outcome, ended]] : []));
}

function describeFailure(given: z.infer<typeof failure> | undefined): string | undefined {
  if (!given) return undefined;
  const type = given.applicationFailureInfo?.type;
  return `${type ? `${type}: ` : ''}${given.message ?? ''}`;
}

/** Text of a JSON payload; undefined where it holds none. */
function textOf(given: z.infer<typeof payload> | undefined): string | undefined {
  const value = given && payloadValue(given);
  return typeof value === 'string' ? value : undefined;
}

/** The value of a `json/plain` payload in JSON form; undefined for an empty one. */
export function payloadValue(given: z.infer<typeof payload>): unknown {
  const text = Buffer.from(given.data ?? '', 'base64').toString('utf8');
  return text === '' ? undefined : (JSON.parse(text) as unknown);
}
