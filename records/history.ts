/**
 * Workflow histories outside Temporal: fetched as the JSON that Temporal exports (and replays), walked from a training run down to
 * its episode batches, and read: which activities ran, where, how often, and how they ended.
 */
import type { Client } from '@temporalio/client';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import { z } from 'zod';
import { canonicalJson } from './canonical-json.ts';

/** A payload of a history in JSON form: base64 of the bytes and of the metadata. */
const payload = z.object({ metadata: z.record(z.string(), z.string()).optional(), data: z.string().optional() });
export type Payload = z.infer<typeof payload>;
const payloads = z.object({ payloads: z.array(payload).optional() });
const failure = z.object({ message: z.string().optional(), applicationFailureInfo: z.object({ type: z.string().optional() }).optional() });
const execution = z.object({ workflowId: z.string(), runId: z.string() });
const scheduledRef = z.object({ scheduledEventId: z.string(), failure: failure.optional(), result: payloads.optional() });
const childRef = z.looseObject({ initiatedEventId: z.string(), result: payloads.optional(), failure: failure.optional() });
const ended = z.looseObject({ result: payloads.optional(), failure: failure.optional() });
const told = z.looseObject({ identity: z.string().optional(), reason: z.string().optional() });
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
      input: payloads.optional(),
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
    .looseObject({ initiatedEventId: z.string(), workflowExecution: execution, workflowType: z.object({ name: z.string() }) })
    .optional(),
  childWorkflowExecutionCompletedEventAttributes: childRef.optional(),
  childWorkflowExecutionFailedEventAttributes: childRef.optional(),
  childWorkflowExecutionTimedOutEventAttributes: childRef.optional(),
  childWorkflowExecutionCanceledEventAttributes: childRef.optional(),
  childWorkflowExecutionTerminatedEventAttributes: childRef.optional(),
  workflowExecutionStartedEventAttributes: z
    .looseObject({
      workflowType: z.object({ name: z.string() }),
      input: payloads.optional(),
      identity: z.string().optional(),
      originalExecutionRunId: z.string().optional(),
    })
    .optional(),
  workflowExecutionCompletedEventAttributes: ended.optional(),
  workflowExecutionFailedEventAttributes: ended.optional(),
  workflowExecutionContinuedAsNewEventAttributes: z.looseObject({ newExecutionRunId: z.string() }).optional(),
  workflowExecutionSignaledEventAttributes: z
    .looseObject({ signalName: z.string(), input: payloads.optional(), identity: z.string().optional() })
    .optional(),
  workflowExecutionUpdateAcceptedEventAttributes: z
    .looseObject({
      acceptedRequest: z
        .looseObject({
          meta: z.looseObject({ updateId: z.string().optional(), identity: z.string().optional() }).optional(),
          input: z.looseObject({ name: z.string().optional(), args: payloads.optional() }).optional(),
        })
        .optional(),
    })
    .optional(),
  workflowExecutionUpdateCompletedEventAttributes: z
    .looseObject({
      acceptedEventId: z.string().optional(),
      outcome: z.looseObject({ success: payloads.optional(), failure: failure.optional() }).optional(),
    })
    .optional(),
  workflowExecutionCancelRequestedEventAttributes: told.optional(),
  workflowExecutionTerminatedEventAttributes: told.optional(),
  workflowTaskStartedEventAttributes: z.looseObject({ scheduledEventId: z.string(), identity: z.string().optional() }).optional(),
  workflowTaskCompletedEventAttributes: z.looseObject({ identity: z.string().optional() }).optional(),
  workflowTaskFailedEventAttributes: z
    .looseObject({ cause: z.string().optional(), identity: z.string().optional(), failure: failure.optional() })
    .optional(),
  workflowTaskTimedOutEventAttributes: z.looseObject({ timeoutType: z.string().optional() }).optional(),
});
export type HistoryEvent = z.infer<typeof eventSchema>;
const historySchema = z.looseObject({ events: z.array(eventSchema).min(1) });

export interface WorkflowHistory {
  readonly workflowId: string;
  readonly runId: string;
  readonly type: string;
  /** As Temporal exports it, keys sorted. */
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

/** In canonical JSON: the server gives maps such as search attributes in another order each time, and equal histories need equal hashes. */
export async function fetchHistory(client: Client, id: { readonly workflowId: string; readonly runId: string }): Promise<WorkflowHistory> {
  const json = historyToJSON(await client.workflow.getHandle(id.workflowId, id.runId).fetchHistory());
  return parseHistory(id, canonicalJson(JSON.parse(json)));
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
  /** First argument, and what came back. */
  readonly input: Payload | undefined;
  readonly result: Payload | undefined;
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
        ...{ input: scheduled.input?.payloads?.[0], result: undefined },
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
      if (trace)
        Object.assign(trace, { outcome, closedAt: at, failure: describeFailure(ended.failure), result: ended.result?.payloads?.[0] });
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

export interface ChildTrace {
  /** Of the event that started it. */
  readonly eventId: string;
  readonly workflowId: string;
  readonly runId: string;
  readonly type: string;
  readonly result: Payload | undefined;
  readonly closedAt: number | undefined;
  /** Of the event that tells its end. */
  readonly closedEventId: string | undefined;
  readonly outcome: 'completed' | 'failed' | 'timed-out' | 'cancelled' | 'terminated' | 'open';
}

/** The children as their parent's history tells them. */
export function childTraces({ events }: Pick<WorkflowHistory, 'events'>): ChildTrace[] {
  const traces = new Map<string, { -readonly [K in keyof ChildTrace]: ChildTrace[K] }>();
  for (const event of events) {
    const started = event.childWorkflowExecutionStartedEventAttributes;
    if (started) {
      traces.set(started.initiatedEventId, {
        ...{ eventId: event.eventId, ...started.workflowExecution, type: started.workflowType.name },
        ...{ result: undefined, closedAt: undefined, closedEventId: undefined, outcome: 'open' },
      });
    }
    const all = [
      ['completed', event.childWorkflowExecutionCompletedEventAttributes],
      ['failed', event.childWorkflowExecutionFailedEventAttributes],
      ['timed-out', event.childWorkflowExecutionTimedOutEventAttributes],
      ['cancelled', event.childWorkflowExecutionCanceledEventAttributes],
      ['terminated', event.childWorkflowExecutionTerminatedEventAttributes],
    ] as const;
    for (const [outcome, end] of all) {
      const trace = end && traces.get(end.initiatedEventId);
      const closed = { outcome, closedAt: Date.parse(event.eventTime), closedEventId: event.eventId };
      if (trace) Object.assign(trace, { ...closed, result: end.result?.payloads?.[0] });
    }
  }
  return [...traces.values()];
}

/** What a person, or another program, told a workflow. */
export interface Message {
  readonly eventId: string;
  readonly at: number;
  readonly kind: 'start' | 'signal' | 'update' | 'cancel request' | 'termination' | 'reset';
  /** Name of the signal or update; the reason of a termination or reset. */
  readonly name: string;
  /** Identity of the client that sent it. */
  readonly by: string | undefined;
  readonly value: unknown;
  /** What an update answered. */
  readonly answer: unknown;
}

/** In order of their events. Signals between the workflows of a run (`progressUpdate`) are left out. */
export function messagesOf({ events }: Pick<WorkflowHistory, 'events'>): Message[] {
  const messages = new Map<string, { -readonly [K in keyof Message]: Message[K] }>();
  const add = (event: HistoryEvent, kind: Message['kind'], name: string, by: string | undefined, value?: Payload): void => {
    const at = Date.parse(event.eventTime);
    messages.set(event.eventId, { eventId: event.eventId, at, kind, name, by, value: value && payloadValue(value), answer: undefined });
  };
  for (const event of events) {
    const started = event.workflowExecutionStartedEventAttributes;
    if (started) add(event, 'start', started.workflowType.name, started.identity, started.input?.payloads?.[0]);
    const signal = event.workflowExecutionSignaledEventAttributes;
    if (signal && signal.signalName !== 'progressUpdate')
      add(event, 'signal', signal.signalName, signal.identity, signal.input?.payloads?.[0]);
    const update = event.workflowExecutionUpdateAcceptedEventAttributes?.acceptedRequest;
    if (update) add(event, 'update', update.input?.name ?? '', update.meta?.identity, update.input?.args?.payloads?.[0]);
    const answered = event.workflowExecutionUpdateCompletedEventAttributes;
    const asked = messages.get(answered?.acceptedEventId ?? '');
    const success = answered?.outcome?.success?.payloads?.[0];
    if (answered && asked) asked.answer = success ? payloadValue(success) : describeFailure(answered.outcome?.failure);
    const cancel = event.workflowExecutionCancelRequestedEventAttributes;
    if (cancel) add(event, 'cancel request', cancel.reason ?? '', cancel.identity);
    const terminated = event.workflowExecutionTerminatedEventAttributes;
    if (terminated) add(event, 'termination', terminated.reason ?? '', terminated.identity);
    const failed = event.workflowTaskFailedEventAttributes;
    if (failed?.cause?.includes('RESET_WORKFLOW')) add(event, 'reset', failed.failure?.message ?? '', failed.identity);
  }
  return [...messages.values()];
}

/** Workflow tasks that were lost with their worker, or failed: the trace that the loss of an idle worker leaves. */
export function lostWorkflowTasks({ events }: Pick<WorkflowHistory, 'events'>): { eventId: string; at: number; what: string }[] {
  return events.flatMap((event) => {
    const failed = event.workflowTaskFailedEventAttributes;
    const timedOut = event.workflowTaskTimedOutEventAttributes;
    if (!timedOut && (!failed || failed.cause?.includes('RESET_WORKFLOW'))) return [];
    const what = timedOut
      ? `timed out (${(timedOut.timeoutType ?? '').replace('TIMEOUT_TYPE_', '').toLowerCase().replaceAll('_', ' ')})`
      : `failed: ${describeFailure(failed?.failure) ?? failed?.cause ?? ''}`;
    return [{ eventId: event.eventId, at: Date.parse(event.eventTime), what }];
  });
}

/** First argument and result of a workflow, as its own history tells them. */
export function inputOf({ events }: Pick<WorkflowHistory, 'events'>): unknown {
  const given = events[0]?.workflowExecutionStartedEventAttributes?.input?.payloads?.[0];
  return given && payloadValue(given);
}
export function resultOf({ events }: Pick<WorkflowHistory, 'events'>): unknown {
  const given = events.at(-1)?.workflowExecutionCompletedEventAttributes?.result?.payloads?.[0];
  return given && payloadValue(given);
}
/** Key of the run that a training run's execution belongs to: survives resets. */
export function originalRunId({ events }: Pick<WorkflowHistory, 'events'>): string | undefined {
  return events[0]?.workflowExecutionStartedEventAttributes?.originalExecutionRunId;
}

/** What `fetchHistory` gave when the history had `count` events. */
export function prefixJson(json: string, count: number): string {
  const { events } = JSON.parse(json) as { events: unknown[] };
  return canonicalJson({ events: events.slice(0, count) });
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
