/** What the Docker engine's answers mean, and removing a container for good. */
import { setTimeout as sleep } from 'node:timers/promises';
import type Docker from 'dockerode';
import { EngineLostError, InfrastructureError, TaskError, UserError } from '../errors.ts';

/** How often, and how long after each other, a removal is tried and looked after: about ten seconds in all. */
const removalAttempts = 8;
const removalPauseMs = 80;

/** Removes a container by force, with its volumes, and sees it gone. One that is gone or going is success. */
export async function remove(container: Docker.Container): Promise<void> {
  let failure: unknown = new InfrastructureError(`the container ${container.id} does not go away`);
  for (let attempt = 0; attempt < removalAttempts; attempt++) {
    if (attempt > 0) await sleep(removalPauseMs * 2 ** (attempt - 1));
    try {
      await container.remove({ force: true, v: true });
    } catch (error) {
      if (statusOf(error) === 404) return;
      // In progress: by another caller, or by an earlier call whose answer was lost.
      if (statusOf(error) !== 409) failure = error;
    }
    if (await isGone(container)) return;
  }
  throw failure;
}

async function isGone(container: Docker.Container): Promise<boolean> {
  return container.inspect().then(
    () => false,
    (error: unknown) => statusOf(error) === 404,
  );
}

/** An error of the engine as one of ours; `action` completes "cannot …". */
export function typed(error: unknown, action: string): Error {
  if (error instanceof InfrastructureError || error instanceof TaskError || error instanceof UserError) return error;
  const { code = '', message } = error as NodeJS.ErrnoException;
  if (['ENOENT', 'ECONNREFUSED', 'EACCES', 'ECONNRESET', 'EPIPE'].includes(code)) {
    return new EngineLostError(
      `cannot ${action}: no Docker engine answers (${message}); start Docker, or set DOCKER_HOST, or use the embedded sandbox`,
    );
  }
  const type = poolsExhausted.test(message) ? { type: 'NetworkPoolExhaustedError' } : {};
  return new InfrastructureError(`cannot ${action}: ${message}`, type);
}

/** The engine has no subnet or address left, or the kernel no port on the bridge. */
const poolsExhausted = /fully subnetted|address pool|no available ipv4 addresses|exchange full/i;

/** The HTTP status of an engine's refusal. */
export function statusOf(error: unknown): number | undefined {
  return (error as { statusCode?: number }).statusCode;
}

/** Whether the answer to a request is missing: the engine may have done what it was asked, or may still do it. */
export function isLost(error: unknown): boolean {
  if (error instanceof InfrastructureError || error instanceof TaskError || error instanceof UserError) return false;
  const status = statusOf(error);
  // What its storage cannot do is said as an error of the server, and for good.
  return status === undefined || (status >= 500 && !/storage-opt/.test((error as Error).message));
}

/** Lets a number of actions run at the same time; the others wait in order. */
export class Semaphore {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(slots: number) {
    this.#free = slots;
  }

  async run<T>(action: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await action();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free++;
    }
  }
}
