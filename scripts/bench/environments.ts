/** What an episode's environment costs: rounds of episodes, so many at a time, with the machine's processor time and this program's memory beside them. */
import { readdirSync, readFileSync } from 'node:fs';

export interface Load {
  readonly rounds: number;
  readonly episodes: number;
  readonly concurrency: number;
}
/** One figure over the rounds. */
export interface Spread {
  readonly median: number;
  readonly least: number;
  readonly most: number;
}
export interface EnvironmentCost {
  readonly name: string;
  readonly concurrency: number;
  readonly episodes: number;
  readonly rounds: number;
  readonly episodesPerMinute: Spread;
  /** Of the whole machine, so that the engine and the containers count: true on a machine that does nothing else. */
  readonly cpuSecondsPerEpisode: Spread;
  /** Largest resident size of this program and its children together (not the engine, not what runs in containers). */
  readonly peakMiB: Spread;
}

/** One round. `seconds`: where the round knows better than the clock around it how long its episodes took. */
export type Round = (load: Load) => Promise<{ readonly seconds?: number } | void>;

const SAMPLE_MS = 100;
/** Of /proc/stat on Linux. */
const TICKS_PER_SECOND = 100;

export async function measure(name: string, load: Load, round: Round): Promise<EnvironmentCost> {
  const rates: number[] = [];
  const cpu: number[] = [];
  const memory: number[] = [];
  // What a first episode costs once (an image, a connection, compiled code) is no cost of an episode.
  await round({ ...load, episodes: 1, concurrency: 1 });
  for (let number = 0; number < load.rounds; number++) {
    let peak = 0;
    const sample = (): void => void (peak = Math.max(peak, treeBytes(process.pid)));
    sample();
    const sampler = setInterval(sample, SAMPLE_MS);
    const busyBefore = busySeconds();
    const started = performance.now();
    try {
      const said = await round(load);
      const seconds = said?.seconds ?? (performance.now() - started) / 1000;
      sample();
      rates.push((60 * load.episodes) / seconds);
      cpu.push((busySeconds() - busyBefore) / load.episodes);
      memory.push(peak / 1024 / 1024);
    } finally {
      clearInterval(sampler);
    }
  }
  const { concurrency, episodes, rounds } = load;
  return {
    ...{ name, concurrency, episodes, rounds },
    ...{ episodesPerMinute: spread(rates), cpuSecondsPerEpisode: spread(cpu), peakMiB: spread(memory) },
  };
}

/** A round of `one`, so many at a time. */
export function roundOf(one: (episode: string) => Promise<void>): Round {
  let made = 0;
  return async ({ episodes, concurrency }) => {
    let left = episodes;
    const lane = async (): Promise<void> => {
      while (left-- > 0) await one(`episode-${made++}`);
    };
    await Promise.all(Array.from({ length: Math.min(concurrency, episodes) }, lane));
  };
}

export function spread(values: readonly number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (place: number): number => sorted[place] ?? NaN;
  const middle = (sorted.length - 1) / 2;
  return { median: (at(Math.floor(middle)) + at(Math.ceil(middle))) / 2, least: at(0), most: at(sorted.length - 1) };
}

/** Processor seconds that the machine was not idle, of all processors together. */
export function busySeconds(): number {
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0] = (readFileSync('/proc/stat', 'utf8').split('\n')[0] ?? '')
    .split(/\s+/)
    .slice(1)
    .map(Number);
  return (user + nice + system + irq + softirq) / TICKS_PER_SECOND;
}

/** Resident bytes of a process and all below it. */
function treeBytes(root: number): number {
  const children = new Map<number, number[]>();
  const resident = new Map<number, number>();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const status = readFileSync(`/proc/${name}/status`, 'utf8');
      const parent = Number(/^PPid:\s+(\d+)/m.exec(status)?.[1] ?? 0);
      resident.set(Number(name), 1024 * Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1] ?? 0));
      children.set(parent, [...(children.get(parent) ?? []), Number(name)]);
    } catch {
      // It ended meanwhile.
    }
  }
  const sum = (pid: number): number => (resident.get(pid) ?? 0) + (children.get(pid) ?? []).reduce((total, child) => total + sum(child), 0);
  return sum(root);
}
