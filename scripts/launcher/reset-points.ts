/** Where a training run's history can be reset to: the workflow task that decided on what is to be done again. */
import { payloadValue } from '../../records/history.ts';
import type { HistoryEvent } from '../../records/history.ts';
import type { StageName } from '../../workflows/contract.ts';

/** Event id of the workflow task after which the stage was opened for the last time; undefined when it was not opened. */
export function stagePoint(events: readonly HistoryEvent[], stage: StageName): string | undefined {
  const opening = events.findLast((event) => {
    const scheduled = event.activityTaskScheduledEventAttributes;
    return scheduled?.activityType.name === 'openStage' && (inputOf(scheduled) as { stage?: unknown } | undefined)?.stage === stage;
  });
  return decidedBy(opening?.activityTaskScheduledEventAttributes);
}

export interface FailurePoint {
  readonly eventId: string;
  /** What is done again, e.g. `RPR-1 · record in the ledger` or the id of a child. */
  readonly what: string;
}

/**
 * Where a run that ended goes on: before its first activity or child that has not ended well, because a reset to a later task would
 * replay that failure. Without one (a run that was terminated while it waited) before its last task; undefined where no task ended.
 */
export function failurePoint(events: readonly HistoryEvent[]): FailurePoint | undefined {
  const done = new Set(events.flatMap((event) => wellEnded(event) ?? []));
  for (const event of events) {
    const activity = event.activityTaskScheduledEventAttributes;
    const child = attributesOf(event, 'startChildWorkflowExecutionInitiatedEventAttributes');
    const eventId = decidedBy(activity ?? child);
    if (eventId === undefined || done.has(event.eventId)) continue;
    return { eventId, what: activity?.activityType.name ?? String(child?.['workflowId']) };
  }
  const last = events.findLast(({ eventType }) => eventType === 'EVENT_TYPE_WORKFLOW_TASK_COMPLETED');
  const worked = events.some((event) => event.activityTaskScheduledEventAttributes);
  return last && worked ? { eventId: last.eventId, what: 'its last decision' } : undefined;
}

/** Id of the event that began what ended well here. */
function wellEnded(event: HistoryEvent): string | undefined {
  const child = attributesOf(event, 'childWorkflowExecutionCompletedEventAttributes')?.['initiatedEventId'];
  return event.activityTaskCompletedEventAttributes?.scheduledEventId ?? (typeof child === 'string' ? child : undefined);
}

function decidedBy(attributes: Readonly<Record<string, unknown>> | undefined): string | undefined {
  const id = attributes?.['workflowTaskCompletedEventId'];
  return typeof id === 'string' ? id : undefined;
}

function inputOf(scheduled: Readonly<Record<string, unknown>>): unknown {
  const input = scheduled['input'] as { payloads?: Parameters<typeof payloadValue>[0][] } | undefined;
  return input?.payloads?.[0] && payloadValue(input.payloads[0]);
}

function attributesOf(event: HistoryEvent, name: string): Readonly<Record<string, unknown>> | undefined {
  return event[name] as Readonly<Record<string, unknown>> | undefined;
}
