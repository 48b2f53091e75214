/**
 * Disturbs a run according to a plan, one disturbance after the other: waits for its point, does it, and waits until the run has
 * gone on. What is measured, and why so: docs/durability.md.
 */
import { existsSync } from 'node:fs';
import type { Random } from '../../method/seeds.ts';
import { tearNewestCheckpoint, type SmallDisk } from './damage.ts';
import type { DockerDaemon } from './docker.ts';
import { blobFile } from './marks.ts';
import type { AtWork, Observer } from './observer.ts';
import { TRAINING_ACTIVITIES, type Disturbance, type Point } from './plan.ts';
import type { Kill } from './result.ts';
import { sendSignal, untilGone, type ChaosStack, type Pids, type ProcessName } from './stack.ts';
import { pause, type Watch } from './watch.ts';

/** After a disturbance that came too late for its point: somewhere in the next second. */
const LATE_SPREAD_MS = 1_000;

export interface Surroundings {
  readonly stack: ChaosStack;
  readonly watch: Watch;
  readonly observer: Observer;
  readonly disk: SmallDisk | undefined;
  readonly docker: DockerDaemon | undefined;
  /** Groups in the order in which the undisturbed run went through them. */
  readonly groups: readonly string[];
  readonly random: Random;
  readonly signal: AbortSignal;
}

/** What a disturbance came to; undefined when the run had ended before its point. */
export async function disturb(disturbance: Disturbance, around: Surroundings): Promise<Kill | undefined> {
  const { watch, observer, signal, random } = around;
  const { point, delayMs } = disturbance;
  let late = false;
  await watch.untilOrStuck(
    () => (late = isOver(point, around)) || isReached(point, around) || observer.ended,
    signal,
    () => observer.pending,
  );
  if (!observer.ended) await pause(late ? random.int(LATE_SPREAD_MS) : delayMs, signal);
  signal.throwIfAborted();
  if (observer.ended) return undefined;

  const { atWork } = observer;
  const before = observer.pids;
  const lastDurableAt = watch.lastDurable?.at;
  const at = Date.now();
  const done = await inflict(disturbance, before, around);
  watch.settle();
  const seen = watch.marks.size;
  await goneOn(disturbance, before, seen, around);
  const secondsUntilProgress = (Date.now() - at) / 1000;

  const lost = lostAttempts(disturbance, atWork, observer);
  const doing = atWork.map(({ what }) => what).join(', ') || 'between activities';
  const place = late
    ? `${point.moment} was over (${point.name})`
    : `${point.moment} (${point.name}${delayMs > 0 ? ` + ${delayMs} ms` : ''})`;
  return {
    process: disturbance.kind === 'shutdown' || disturbance.kind === 'start-up' ? disturbance.processes.join(', ') : disturbance.kind,
    moment: [doing, place, ...done].join('; '),
    secondsUntilProgress: rounded(secondsUntilProgress),
    repeatedSeconds: rounded(Math.max(0, ...lost.map((activity) => at - unfinishedSince(activity, point, lastDurableAt))) / 1000),
  };
}

function isReached({ trigger }: Point, { watch, stack }: Surroundings): boolean {
  return 'mark' in trigger ? watch.marks.get(trigger.mark) !== undefined : existsSync(blobFile(stack.data, trigger.artifact));
}

/** Whether the run is already at a later group than the point's. */
function isOver({ group }: Point, { watch, groups }: Surroundings): boolean {
  const now = watch.latestGroup;
  return now !== undefined && groups.indexOf(now) > groups.indexOf(group);
}

/** Does it. @returns what there is to tell about it */
async function inflict({ kind, processes, secondMs, point }: Disturbance, before: Pids, around: Surroundings): Promise<string[]> {
  const { stack, disk, docker, random, signal } = around;
  const all = (pids: Pids, name: NodeJS.Signals): number[] =>
    processes.flatMap((process) => {
      const pid = pids[process];
      return pid !== undefined && sendSignal(pid, name) ? [pid] : [];
    });
  const kill = async (pids: Pids): Promise<void> => {
    await Promise.all(all(pids, 'SIGKILL').map(untilGone));
  };
  switch (kind) {
    case 'shutdown':
      all(before, 'SIGTERM');
      await pause(secondMs, signal);
      await kill(before);
      return [`SIGTERM, and SIGKILL ${secondMs} ms into the shutdown`];
    case 'start-up': {
      await kill(before);
      const again = await stack.untilReplaced(processes, before, signal);
      await pause(secondMs, signal);
      await kill(again);
      return [`again ${secondMs} ms into its start-up`];
    }
    case 'torn checkpoint':
      await kill(before);
      return [tearNewestCheckpoint(stack.data, point.group, random)];
    case 'full disk':
      disk?.fill();
      await pause(secondMs, signal);
      disk?.free();
      return [`full for ${(secondMs / 1000).toFixed(1)} s`];
    case 'Docker daemon':
      await docker?.restart();
      return [];
    default:
      await kill(before);
      return [];
  }
}

/** Waits until what died is up again and the run has done durable work since, or has ended. */
async function goneOn({ processes }: Disturbance, before: Pids, seen: number, around: Surroundings): Promise<void> {
  const { watch, observer, stack, signal } = around;
  let from = seen;
  if (processes.length > 0) {
    const noMatter = new AbortController();
    const either = AbortSignal.any([signal, noMatter.signal]);
    const replaced = stack.untilReplaced(withChildren(processes), before, either);
    replaced.catch(() => undefined);
    await Promise.race([replaced, watch.until(() => observer.ended, either)]);
    noMatter.abort();
    watch.settle();
    from = watch.marks.size;
  }
  await watch.untilOrStuck(
    () => watch.marks.size > from || observer.ended,
    signal,
    () => observer.pending,
  );
}

/** Everything that ends with a process: the trainer with its worker, and the workers when a new launcher finds them left behind. */
function withChildren(processes: readonly ProcessName[]): ProcessName[] {
  const lost = new Set(processes);
  if (lost.has('launcher')) for (const name of ['rollout worker', 'GPU worker'] as const) lost.add(name);
  if (lost.has('GPU worker')) lost.add('trainer');
  return [...lost];
}

/** The activities at work whose unfinished pieces begin again. */
function lostAttempts({ processes }: Disturbance, atWork: readonly AtWork[], observer: Observer): AtWork[] {
  const lost = withChildren(processes);
  return atWork.filter(({ type, id, attempt, startedAt }) => {
    if (startedAt === undefined) return false;
    const training = TRAINING_ACTIVITIES.has(type);
    if (lost.includes('rollout worker') && !training) return true;
    if (lost.includes('trainer') && (training || type === 'rollout')) return true;
    // The others kill no attempt; one that failed all the same shows as a higher number.
    return observer.atWork.some((now) => now.id === id && now.attempt > attempt);
  });
}

/**
 * Since when the oldest unfinished piece of an activity had been at work: the episodes of a rollout all begin with the attempt; in
 * the other activities one piece follows the other, so that it began after the last durable work. At the end all pieces are safe.
 */
function unfinishedSince({ type, startedAt = 0 }: AtWork, { moment }: Point, lastDurableAt: number | undefined): number {
  const together = type === 'rollout' && moment !== 'between activity end and its report';
  return together ? startedAt : Math.max(startedAt, lastDurableAt ?? 0);
}

const rounded = (seconds: number): number => Math.round(seconds * 100) / 100;
