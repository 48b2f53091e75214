/**
 * When to disturb what. The undisturbed run's marks are the timetable: the disturbed run does the same pieces of work, so a
 * disturbance that is tied to a piece of work happens before the run's end, however slow the run has become by then.
 *
 * The timetable is cut into as many stretches as there are disturbances; each stretch gets one, at a point drawn by the seed. Kinds
 * of disturbances are dealt in turn, so that a few already cover every process, and points in favour of the rarer moments.
 */
import { Random } from '../../method/seeds.ts';
import type { Mark } from './marks.ts';
import type { ActivityOutcome } from './outcome.ts';
import type { ProcessName } from './stack.ts';

export const MOMENTS = [
  'in the gate',
  'mid-rollout',
  'mid-verify',
  'mid-rewrite',
  'during evaluation',
  'between minibatches',
  'while a checkpoint is being written',
  'between activity end and its report',
] as const;
export type Moment = (typeof MOMENTS)[number];

/** A piece of work at which something may be disturbed. */
export interface Point {
  readonly moment: Moment;
  /** The mark's name, or the artifact's. */
  readonly name: string;
  /** Stage and purpose, e.g. `RSR-1/rollout`. */
  readonly group: string;
  /** Whether a training activity is at work. */
  readonly training: boolean;
  readonly trigger: { readonly mark: string } | { readonly artifact: string };
  /** Longest pause after the trigger, in milliseconds: the disturbance comes somewhere in it. */
  readonly spreadMs: number;
}

export type DisturbanceKind = ProcessName | 'torn checkpoint' | 'shutdown' | 'full disk' | 'start-up' | 'Docker daemon';

export interface Disturbance {
  readonly kind: DisturbanceKind;
  /** What is killed; empty where nothing is. */
  readonly processes: readonly ProcessName[];
  readonly point: Point;
  /** Pause after the trigger, in milliseconds. */
  readonly delayMs: number;
  /** `shutdown`: from SIGTERM to SIGKILL; `start-up`: from the new process to its death; `full disk`: how long. In milliseconds. */
  readonly secondMs: number;
}

export const TRAINING_ACTIVITIES: ReadonlySet<string> = new Set(['fineTuneActor', 'warmUpCritic', 'jointPpo']);

/** In the order in which they are dealt: the first six are what the shortest test needs. */
const DECK: readonly DisturbanceKind[] = [
  'rollout worker',
  'trainer',
  'GPU worker',
  'Temporal server',
  'launcher',
  'torn checkpoint',
  'shutdown',
  'full disk',
  'start-up',
  'Docker daemon',
];
/** The trainer serves the samples of rollouts too. */
const SAMPLING: ReadonlySet<Moment> = new Set(['mid-rollout', 'during evaluation']);
/** Artifacts are written soon after. */
const STORING: ReadonlySet<Moment> = new Set(['mid-verify', 'mid-rewrite', 'between minibatches', 'between activity end and its report']);

/** Whether a disturbance of this kind meets somebody at work at such a moment. */
export function fits(kind: DisturbanceKind, { moment, training }: Point): boolean {
  const atEnd = moment === 'between activity end and its report';
  switch (kind) {
    case 'rollout worker':
      return !training;
    case 'GPU worker':
      return training || SAMPLING.has(moment);
    case 'trainer':
      return (training && !atEnd) || SAMPLING.has(moment);
    case 'torn checkpoint':
      return training && !atEnd;
    case 'full disk':
      return STORING.has(moment);
    case 'Docker daemon':
      return !training && !atEnd;
    default:
      return true;
  }
}

/** The points of an undisturbed run, in the order of their times. */
export function pointsOf(marks: readonly Mark[], activities: readonly ActivityOutcome[]): Point[] {
  const ordered = marks.filter(({ kind }) => kind !== 'artifact').sort((a, b) => a.at - b.at);
  const last = new Map<string, string>();
  for (const { name } of ordered) last.set(series(name), name);
  const timed: { at: number; point: Point }[] = [];
  for (const { kind, name, group, at } of ordered) {
    const training = kind === 'checkpoint' || kind === 'training-end';
    const add = (moment: Moment, mark: string, spreadMs: number): number =>
      timed.push({ at, point: { moment, name: mark, group, training, trigger: { mark }, spreadMs } });
    if (kind === 'training-end') add('between activity end and its report', name, 0);
    // After the last one of a file or activity nothing of it is in progress any more.
    if (last.get(series(name)) === name) continue;
    if (kind === 'task') add('in the gate', name, 50);
    if (kind === 'episode') add(group.includes('/evaluation-') ? 'during evaluation' : 'mid-rollout', name, 300);
    if (kind === 'verdict') add('mid-verify', name, 30);
    if (kind === 'rewrite') add('mid-rewrite', name, 30);
    if (kind === 'checkpoint') {
      add('while a checkpoint is being written', name.replace('/checkpoint#', '/unfinished-checkpoint#'), 0);
      add('between minibatches', name, 200);
    }
  }
  for (const { name, type, stage, purpose, artifacts, endedAt } of activities) {
    const ref = artifacts.at(-1)?.ref;
    // Training tells its end by itself, with a result on disk.
    if (ref === undefined || purpose === '' || TRAINING_ACTIVITIES.has(type)) continue;
    timed.push({
      at: endedAt,
      point: {
        moment: 'between activity end and its report',
        name,
        group: `${stage}/${purpose}`,
        training: false,
        trigger: { artifact: ref.sha256 },
        spreadMs: 0,
      },
    });
  }
  return timed.sort((a, b) => a.at - b.at).map(({ point }) => point);
}

/** `RSR-1/rollout/0.jsonl` of `RSR-1/rollout/0.jsonl#7`. */
const series = (name: string): string => name.replace(/#\d+$/, '');

export interface PlanOptions {
  readonly kills: number;
  readonly seed: number;
  /** Kinds that cannot happen here. */
  readonly without: ReadonlySet<DisturbanceKind>;
}

/** `kills` disturbances in the order of their points. @throws RangeError when the run has fewer points than that */
export function planDisturbances(points: readonly Point[], { kills, seed, without }: PlanOptions): Disturbance[] {
  if (points.length < kills) throw new RangeError(`the undisturbed run has ${points.length} points to disturb, expected at least ${kills}`);
  const random = new Random(seed);
  const deck = DECK.filter((kind) => !without.has(kind));
  const stretches = Array.from({ length: kills }, (_, i) =>
    points.slice(Math.floor((i * points.length) / kills), Math.floor(((i + 1) * points.length) / kills)),
  );
  const kinds = dealt(deck, stretches, random);
  const used = new Map<Moment, number>();
  return stretches.map((stretch, i) => {
    const kind = kinds[i] as DisturbanceKind; // dealt() gives one per stretch
    const fitting = stretch.filter((point) => fits(kind, point));
    const least = Math.min(...fitting.map(({ moment }) => used.get(moment) ?? 0));
    const point = random.pick(fitting.filter(({ moment }) => (used.get(moment) ?? 0) === least));
    used.set(point.moment, (used.get(point.moment) ?? 0) + 1);
    const secondMs = kind === 'full disk' ? 2_000 + random.int(3_000) : random.int(kind === 'shutdown' ? 1_500 : 2_500);
    return { kind, processes: processesOf(kind, point, random), point, delayMs: random.int(point.spreadMs + 1), secondMs };
  });
}

function processesOf(kind: DisturbanceKind, point: Point, random: Random): ProcessName[] {
  if (kind === 'torn checkpoint') return ['trainer', 'GPU worker'];
  if (kind === 'full disk' || kind === 'Docker daemon') return [];
  if (kind !== 'shutdown' && kind !== 'start-up') return [kind];
  const restartable = (['rollout worker', 'GPU worker', 'Temporal server', 'launcher'] as const).filter((name) => fits(name, point));
  return [random.pick(restartable)];
}

/** One kind per stretch: the pickiest kinds choose first, among the stretches that have a point for them. */
function dealt(deck: readonly DisturbanceKind[], stretches: readonly (readonly Point[])[], random: Random): DisturbanceKind[] {
  const kinds = stretches.map((_, i) => deck[i % deck.length] as DisturbanceKind);
  const places = (kind: DisturbanceKind): number[] =>
    stretches.flatMap((stretch, i) => (stretch.some((point) => fits(kind, point)) ? [i] : []));
  const chosen = new Map<number, DisturbanceKind>();
  for (const kind of [...kinds].sort((a, b) => places(a).length - places(b).length)) {
    const free = places(kind).filter((i) => !chosen.has(i));
    if (free.length > 0) chosen.set(random.pick(free), kind);
  }
  // A kind that found no place gives it up to those that can happen anywhere.
  return stretches.map((_, i) => chosen.get(i) ?? random.pick(['Temporal server', 'launcher'] as const));
}
