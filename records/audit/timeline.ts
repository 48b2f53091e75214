/** When what ran where, and what it waited for: from the histories alone. Times in milliseconds since the epoch. */
import { lostWorkflowTasks, messagesOf } from '../history.ts';
import type { ActivityTrace, Message } from '../history.ts';
import type { AuditContext } from './context.ts';
import type { SourcedHistory } from './source.ts';

export interface TimelineActivity extends Pick<
  ActivityTrace,
  'eventId' | 'type' | 'taskQueue' | 'summary' | 'scheduledAt' | 'startedAt' | 'closedAt'
> {
  readonly workflowId: string;
  readonly place: string;
  readonly attempts: number;
  readonly worker: string | undefined;
  readonly outcome: ActivityTrace['outcome'];
  /** Why the last attempt failed, or the one before the last. */
  readonly failure: string | undefined;
  readonly lastFailure: string | undefined;
  /** From scheduled to started, of an activity with one attempt. */
  readonly queueSeconds: number;
  /** From scheduled to the start of the last attempt, where there were several: what earlier attempts and the queue took. */
  readonly lostSeconds: number;
  readonly seconds: number;
}
export interface Shares {
  readonly wallSeconds: number;
  /** Of the wall time: an activity's last attempt was running. */
  readonly active: number;
  /** No activity's last attempt, but an earlier one, or the wait for the next. */
  readonly lost: number;
  /** The run was paused, and nothing ran. */
  readonly paused: number;
  /** What is left: no activity ran. The orchestration overhead, with the wait in queues. */
  readonly idle: number;
}
export interface TimelineStage {
  readonly stage: string;
  readonly startedAt: number;
  readonly endedAt: number;
  readonly shares: Shares;
  readonly activities: readonly TimelineActivity[];
}
export interface WorkerSeen {
  readonly identity: string;
  readonly queues: readonly string[];
  readonly firstAt: number;
  readonly lastAt: number;
  readonly activities: number;
}
export interface Timeline {
  readonly startedAt: number;
  readonly endedAt: number;
  readonly shares: Shares;
  /** In order; what belongs to no stage (report, last record) under `closing`. */
  readonly stages: readonly TimelineStage[];
  /** Executions that a reset made void, and that nothing in `stages` counts. */
  readonly void: readonly TimelineActivity[];
  readonly workers: readonly WorkerSeen[];
  readonly messages: readonly (Message & { readonly workflowId: string })[];
  readonly lostTasks: readonly { readonly place: string; readonly at: number; readonly what: string }[];
}

/** undefined where no history of the training run is here. */
export function timelineOf(context: AuditContext): Timeline | undefined {
  const { root } = context;
  if (!root) return undefined;
  const current = context.below(root);
  const ended = (history: SourcedHistory): number => Date.parse(history.events.at(-1)?.eventTime ?? '');
  const startedAt = Date.parse(root.events[0]?.eventTime ?? '');
  const messages = context.roots.flatMap((history) =>
    messagesOf(history).map((message) => ({ ...message, workflowId: history.workflowId })),
  );
  // A reset copies the events before it: what was sent then is told once.
  const told = [
    ...new Map(messages.map((message) => [`${message.eventId} ${message.at} ${message.kind} ${message.name}`, message])).values(),
  ];
  const paused = pauses(told, ended(root));
  const activities = current.flatMap((history) => activitiesOf(history, context));
  const counted = new Set(current.map(({ runId }) => runId));
  const known = new Set(activities.map(({ place, eventId, scheduledAt }) => `${place.replace(/ \(run .*/, '')} ${eventId} ${scheduledAt}`));
  const others = context.roots.flatMap((history) => context.below(history)).filter(({ runId }) => !counted.has(runId));
  const voided = [...new Set(others)]
    .flatMap((history) => activitiesOf(history, context))
    .filter(({ place, eventId, scheduledAt }) => !known.has(`${place.replace(/ \(run .*/, '')} ${eventId} ${scheduledAt}`));
  const names = [...new Set(activities.map(({ stage }) => stage))].filter((stage) => context.covers(stage));
  const stages = names.map((stage): TimelineStage => {
    const own = activities.filter((activity) => activity.stage === stage);
    const from = stage === 'Base' ? startedAt : Math.min(...own.map(({ scheduledAt }) => scheduledAt));
    const until = Math.max(...own.map((activity) => activity.closedAt ?? activity.startedAt ?? activity.scheduledAt));
    return { stage, startedAt: from, endedAt: until, activities: own, shares: sharesOf(own, paused, from, until) };
  });
  const covered = current.filter(({ workflowId }) => context.only === undefined || context.stageOf(workflowId) === context.only);
  return {
    startedAt,
    endedAt: ended(root),
    shares: sharesOf(activities, paused, startedAt, ended(root)),
    stages,
    void: voided.filter(({ stage }) => context.covers(stage)),
    workers: workersOf([...activities, ...voided]),
    messages: told,
    lostTasks: covered.flatMap((history) =>
      lostWorkflowTasks(history).map(({ eventId, at, what }) => ({ place: `${history.place}, event ${eventId}`, at, what })),
    ),
  };
}

function activitiesOf(history: SourcedHistory, context: AuditContext): (TimelineActivity & { readonly stage: string })[] {
  const own = context.stageOf(history.workflowId);
  return context.calls(history).map(({ trace, input, place }) => {
    const named = (input as { stage?: unknown } | undefined)?.stage;
    const first = ['prepareRun', 'calibrate'].includes(trace.type) ? 'Base' : 'closing';
    const { startedAt, scheduledAt, closedAt, attempts } = trace;
    const waited = startedAt === undefined ? 0 : (startedAt - scheduledAt) / 1000;
    return {
      ...{ eventId: trace.eventId, type: trace.type, taskQueue: trace.taskQueue, summary: trace.summary, scheduledAt, startedAt, closedAt },
      ...{ workflowId: history.workflowId, place, attempts, worker: trace.worker, outcome: trace.outcome },
      ...{ failure: trace.failure, lastFailure: trace.lastFailure },
      stage: own ?? (typeof named === 'string' ? named : first),
      queueSeconds: attempts > 1 ? 0 : waited,
      lostSeconds: attempts > 1 ? waited : 0,
      seconds: startedAt === undefined || closedAt === undefined ? 0 : (closedAt - startedAt) / 1000,
    };
  });
}

type Interval = readonly [number, number];

function sharesOf(activities: readonly TimelineActivity[], paused: readonly Interval[], from: number, until: number): Shares {
  const running = activities.flatMap(({ startedAt, closedAt }): Interval[] =>
    startedAt === undefined ? [] : [[startedAt, closedAt ?? until]],
  );
  const trying = activities.flatMap(({ attempts, scheduledAt, startedAt }): Interval[] =>
    attempts > 1 && startedAt !== undefined ? [[scheduledAt, startedAt]] : [],
  );
  const wall = Math.max(until - from, 1);
  const active = length(running, from, until);
  const withLost = length([...running, ...trying], from, until);
  const withPaused = length([...running, ...trying, ...paused], from, until);
  return {
    wallSeconds: (until - from) / 1000,
    active: active / wall,
    lost: (withLost - active) / wall,
    paused: (withPaused - withLost) / wall,
    idle: 1 - withPaused / wall,
  };
}

/** Length of the union of the intervals inside a window. */
function length(intervals: readonly Interval[], from: number, until: number): number {
  let total = 0;
  let end = from;
  for (const [a, b] of [...intervals].sort((x, y) => x[0] - y[0])) {
    const [start, stop] = [Math.max(a, end), Math.min(b, until)];
    if (stop <= start) continue;
    total += stop - start;
    end = stop;
  }
  return total;
}

function pauses(messages: readonly Message[], until: number): Interval[] {
  const intervals: Interval[] = [];
  let since: number | undefined;
  for (const { name, at } of [...messages].sort((a, b) => a.at - b.at)) {
    if (name === 'pause' || name === 'pauseRun') since ??= at;
    if ((name !== 'resume' && name !== 'resumeRun') || since === undefined) continue;
    intervals.push([since, at]);
    since = undefined;
  }
  return since === undefined ? intervals : [...intervals, [since, until]];
}

function workersOf(activities: readonly TimelineActivity[]): WorkerSeen[] {
  const seen = new Map<string, { queues: Set<string>; firstAt: number; lastAt: number; activities: number }>();
  for (const { worker, taskQueue, startedAt, closedAt } of activities) {
    if (worker === undefined || startedAt === undefined) continue;
    const known = seen.get(worker) ?? { queues: new Set<string>(), firstAt: startedAt, lastAt: startedAt, activities: 0 };
    known.queues.add(taskQueue);
    known.firstAt = Math.min(known.firstAt, startedAt);
    known.lastAt = Math.max(known.lastAt, closedAt ?? startedAt);
    known.activities++;
    seen.set(worker, known);
  }
  return [...seen]
    .map(([identity, { queues, ...rest }]) => ({ identity, queues: [...queues].sort(), ...rest }))
    .sort((a, b) => a.firstAt - b.firstAt);
}
