/** Looks at the marks of a data folder many times a second, and lets others wait for one. */
import { setTimeout as sleep } from 'node:timers/promises';
import { InfrastructureError } from '../../environment/errors.ts';
import { isDurable, Marks, type Mark } from './marks.ts';

/** A run that does nothing durable for so long does not go on by itself. */
const STUCK_MS = 240_000;
/** Short against what is to be hit: a checkpoint of a tiny model is written in some 50 ms. */
const TICK_MS = 4;

export class Watch {
  readonly marks: Marks;
  readonly #waiting = new Set<() => void>();
  readonly #timer: NodeJS.Timeout;
  #lastDurable: Mark | undefined;
  #latestGroup: string | undefined;

  constructor(data: string) {
    this.marks = new Marks(data);
    this.#timer = setInterval(() => this.#tick(), TICK_MS);
  }

  /** The newest piece of durable work. */
  get lastDurable(): Mark | undefined {
    return this.#lastDurable;
  }

  /** Stage and purpose of the newest mark. */
  get latestGroup(): string | undefined {
    return this.#latestGroup;
  }

  #tick(): void {
    for (const mark of this.marks.scan()) {
      if (isDurable(mark)) this.#lastDurable = mark;
      if (mark.group !== '') this.#latestGroup = mark.group;
    }
    for (const check of this.#waiting) check();
  }

  /** Resolves within milliseconds of `reached()` being true. @throws the signal's reason */
  until(reached: () => boolean, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = (settle: () => void): void => {
        this.#waiting.delete(check);
        signal.removeEventListener('abort', abort);
        settle();
      };
      const check = (): void => {
        try {
          if (reached()) end(resolve);
        } catch (error) {
          end(() => reject(error instanceof Error ? error : new Error(String(error))));
        }
      };
      const abort = (): void => end(() => reject(signal.reason as Error));
      if (signal.aborted) return abort();
      signal.addEventListener('abort', abort);
      this.#waiting.add(check);
      check();
    });
  }

  /**
   * As `until`, for something that needs the run to go on.
   * @throws InfrastructureError, with `pending()` in it, when the run has done nothing durable for four minutes
   */
  async untilOrStuck(reached: () => boolean, signal: AbortSignal, pending: () => string): Promise<void> {
    let since = Date.now();
    let size = this.marks.size;
    await this.until(() => {
      if (this.marks.size !== size) [size, since] = [this.marks.size, Date.now()];
      if (Date.now() - since > STUCK_MS) throw new InfrastructureError(`no durable work for ${STUCK_MS / 1000} s; pending: ${pending()}`);
      return reached();
    }, signal);
  }

  /** What was done up to now, also by a process that has just died, counts as seen. */
  settle(): void {
    this.#tick();
  }

  close(): void {
    clearInterval(this.#timer);
  }
}

/** A pause that ends early, without an error, when `signal` does. */
export async function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  await sleep(milliseconds, undefined, { signal }).catch(() => undefined);
}
