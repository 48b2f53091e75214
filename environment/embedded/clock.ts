/**
 * The clock and the dice of an embedded sandbox. just-bash runs in the worker's process and would show its commands the
 * worker's time (`date`, `find -mmin`, `time`, `timeout`, `$SECONDS`, file times) and random numbers (`$RANDOM`, awk's `rand`):
 * an episode that starts again, or runs beside others, would see other ones and end otherwise.
 *
 * Invariants:
 *  1. Inside a sandbox time stands still but for `sleep`, which moves it and waits for nobody; outside nothing changes.
 *  2. The wall clock decides one thing: a command that is not done after `safetyMs` is given up (`overdue`). What a
 *     command may do is bounded by counts (embedded.ts), so this is a fault of the machine and never an outcome.
 *
 * Import it before just-bash, which keeps the timers and the stop watch that it finds when it is loaded.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { Random } from '../../method/seeds.ts';

interface Timer {
  /** Milliseconds of the sandbox's clock. */
  readonly at: number;
  readonly fire: () => void;
}

/** What a sandbox's clock shows when it is started. */
const START = Date.parse('2026-01-01T00:00:00Z');
const running = new AsyncLocalStorage<SandboxClock>();
const RealDate = Date;
const real = { now: Date.now, random: Math.random, stopWatch: performance.now.bind(performance), setTimeout, clearTimeout };

/** One sandbox's time and random numbers, over all its commands. */
export class SandboxClock {
  readonly #random: Random;
  readonly #safetyMs: number;
  readonly #timers = new Set<Timer>();
  #elapsedMs = 0;
  #commandStart = 0;
  #limitMs = Infinity;
  #giveUpAt = Infinity;
  #overdue = false;

  constructor(seed: number, safetyMs: number) {
    this.#random = new Random(seed);
    this.#safetyMs = safetyMs;
  }

  /** Work on the sandbox from outside of its commands, e.g. writing files: the clock shows its time, the safety net is not spread. */
  inside<T>(work: () => T): T {
    return running.run(this, work);
  }

  /** Runs one command, which may sleep for less than `limitMs`. */
  async command<T>(limitMs: number, work: () => Promise<T>): Promise<T> {
    this.#commandStart = this.#elapsedMs;
    this.#limitMs = limitMs;
    this.#overdue = false;
    this.#giveUpAt = real.stopWatch() + this.#safetyMs;
    try {
      return await running.run(this, work);
    } finally {
      this.#giveUpAt = Infinity;
      this.#timers.clear();
    }
  }

  /** Milliseconds that the last command slept. */
  get sleptMs(): number {
    return Math.min(this.#elapsedMs - this.#commandStart, this.#limitMs);
  }
  /** The last command wanted to sleep to its limit or beyond. */
  get expired(): boolean {
    return this.#elapsedMs - this.#commandStart >= this.#limitMs;
  }
  /** The safety net caught the last command: its result means nothing. */
  get overdue(): boolean {
    return this.#overdue;
  }

  /** just-bash's `sleep`. All timers there are belong to commands around this one (`timeout 1 sleep 5`): the first one due ends it. */
  sleep(durationMs: number): Promise<void> {
    // One beyond the limit, because just-bash ends what is later than its deadline.
    const target = Math.min(this.#elapsedMs + durationMs, this.#commandStart + this.#limitMs + 1);
    const [due] = [...this.#timers].filter(({ at }) => at <= target).sort((a, b) => a.at - b.at);
    this.#elapsedMs = due?.at ?? target;
    if (due) {
      this.#timers.delete(due);
      due.fire();
    }
    return Promise.resolve();
  }

  now(): number {
    // just-bash compares this with its own deadline at every step, also in loops that never let go of the thread.
    if (real.stopWatch() > this.#giveUpAt) this.#overdue = true;
    return this.#overdue ? 8.64e15 : START + this.#elapsedMs;
  }
  random(): number {
    return this.#random.next();
  }
  addTimer(fire: () => void, afterMs: number): Timer {
    const timer = { at: this.#elapsedMs + afterMs, fire };
    this.#timers.add(timer);
    return timer;
  }
  removeTimer(timer: Timer): void {
    this.#timers.delete(timer);
  }
}

// For code outside of a sandbox all of these are what they were.
Date.now = () => running.getStore()?.now() ?? real.now();
Math.random = () => running.getStore()?.random() ?? real.random();
globalThis.Date = new Proxy(RealDate, {
  construct(target, parts: unknown[], made) {
    const clock = parts.length === 0 ? running.getStore() : undefined;
    return Reflect.construct(target, clock ? [clock.now()] : parts, made) as Date;
  },
});
performance.now = () => {
  const clock = running.getStore();
  return clock ? clock.now() - START : real.stopWatch();
};
globalThis.setTimeout = Object.assign(
  (fire: (...parts: unknown[]) => void, ms = 0, ...parts: unknown[]): unknown => {
    const clock = running.getStore();
    return clock ? clock.addTimer(() => fire(...parts), ms) : real.setTimeout(fire, ms, ...parts);
  },
  { __promisify__: real.setTimeout.__promisify__ },
) as typeof setTimeout;
globalThis.clearTimeout = ((timer: NodeJS.Timeout | Timer | undefined) => {
  if (timer && 'fire' in timer) running.getStore()?.removeTimer(timer);
  else real.clearTimeout(timer);
}) as typeof clearTimeout;

/** just-bash has kept what it found; everything else of the process need not go through here. */
export function restoreTimers(): void {
  Object.assign(globalThis, { setTimeout: real.setTimeout, clearTimeout: real.clearTimeout });
  performance.now = real.stopWatch;
}
