/**
 * One workload by all engines, in turns: every round measures each engine once, in an order that rotates, so that a slow minute of the
 * machine hits all alike. Ratios are taken within a round, and their median and spread over the rounds are what is reported.
 */
import { spread } from '../environments.ts';
import type { Spread } from '../environments.ts';
import type { Answer, Engine, Peer } from './peers.ts';
import { NAMES } from './peers.ts';
import type { Workload } from './workloads.ts';

export interface Row {
  readonly engine: Engine;
  readonly variant: string | undefined;
  readonly variants: Answer['variants'];
  readonly prepareSeconds: number;
  readonly versions: Answer['versions'];
  /** training: of a step; sampling: of the whole batch. */
  readonly seconds: Spread;
  /** The same, by round; a round of training has one value per step. */
  readonly rounds: readonly (readonly number[])[];
  /** training: time by PyTorch's time; sampling: rate by PyTorch's rate. */
  readonly toTorch: Spread | undefined;
  /** Processors that other programs kept busy meanwhile, mean over the rounds. */
  readonly others: number;
}

/** More processor time of others than this, and a round is measured once more. */
const DISTURBED = 0.2;

export interface Compared {
  readonly rows: Row[];
  readonly largestDifference: number;
  /** Engines that could not be measured, with the reason. */
  readonly skipped: string[];
}

export interface Comparison {
  readonly engines: readonly Engine[];
  readonly rounds: number;
  readonly workload: Workload;
  readonly start: (engine: Engine) => Peer;
  /** @returns the largest difference @throws when the engines do not compute the same */
  readonly check: (answers: ReadonlyMap<Engine, Answer>) => number;
  readonly progress: (text: string) => void;
}

/** @throws InfrastructureError when an engine of ours fails, or the engines do not compute the same */
export async function compare({ engines, rounds, workload, start, check, progress }: Comparison): Promise<Compared> {
  const peers: Peer[] = [];
  const answers = new Map<Engine, Answer>();
  const skipped: string[] = [];
  try {
    for (const engine of engines) {
      const peer = start(engine);
      try {
        answers.set(engine, await peer.ready());
        peers.push(peer);
        progress(`${NAMES[engine]}: ready after ${answers.get(engine)!.prepareSeconds.toFixed(1)} s`);
      } catch (error) {
        await peer.stop();
        if (peer.ours) throw error;
        skipped.push((error as Error).message);
      }
    }
    const largestDifference = check(answers);
    const measured = new Map(peers.map((peer) => [peer.engine, [] as Awaited<ReturnType<Peer['round']>>[]]));
    for (let round = 0; round < rounds; round++) {
      for (let turn = 0; turn < peers.length; turn++) {
        const peer = peers[(round + turn) % peers.length]!;
        measured.get(peer.engine)!.push(await undisturbed(peer));
      }
      progress(`round ${round + 1} of ${rounds}`);
    }
    const seconds = new Map([...measured].map(([engine, all]) => [engine, all.map((one) => one.seconds)]));
    const rows = peers.map(({ engine }): Row => {
      const { variant, variants, prepareSeconds, versions } = answers.get(engine)!;
      const own = seconds.get(engine)!;
      return {
        ...{ engine, variant, variants, prepareSeconds, versions, rounds: own },
        seconds: spread(own.flat()),
        toTorch: ratios(workload, own, seconds.get('torch')),
        others: measured.get(engine)!.reduce((sum, { others }) => sum + others, 0) / rounds,
      };
    });
    return { rows, largestDifference, skipped };
  } finally {
    await Promise.all(peers.map((peer) => peer.stop()));
  }
}

/** A round, or where other programs took too much of the machine the better of two. */
async function undisturbed(peer: Peer): ReturnType<Peer['round']> {
  const first = await peer.round();
  if (first.others <= DISTURBED) return first;
  const second = await peer.round();
  return second.others < first.others ? second : first;
}

/** Round by round: time by PyTorch's time for training, rate by PyTorch's rate for sampling. undefined without PyTorch. */
export function ratios(
  workload: Workload,
  own: readonly (readonly number[])[],
  torch: readonly (readonly number[])[] | undefined,
): Spread | undefined {
  if (torch === undefined) return undefined;
  const times = own.map((seconds, round) => spread(seconds).median / spread(torch[round] ?? []).median);
  return spread(workload === 'training' ? times : times.map((time) => 1 / time));
}
