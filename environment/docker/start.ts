/**
 * Creating and starting a container so that a lost answer does no harm. An overloaded engine answers with errors or not at all, and
 * may have done its work all the same; the name is settled beforehand and the labels carry this attempt's own word, so what stands
 * under the name is either ours, and is taken, or an earlier attempt's, and is removed.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type Docker from 'dockerode';
import { InfrastructureError } from '../errors.ts';
import { isLost, remove, statusOf } from './engine.ts';
import { label } from './labels.ts';

export interface Patience {
  /** Milliseconds for one answer. */
  readonly answerMs: number;
  readonly signal?: AbortSignal;
}

const attempts = 5;
const pauseMs = 250;

/** @returns the container of this name and attempt, created now or by a request whose answer was lost */
export async function createContainer(
  docker: Docker,
  options: Docker.ContainerCreateOptions & { name: string },
  patience: Patience,
): Promise<Docker.Container> {
  const attempt = options.Labels?.[label.attempt];
  for (let tries = 1; ; tries++) {
    patience.signal?.throwIfAborted();
    try {
      return await docker.createContainer({ ...options, abortSignal: limited(patience) });
    } catch (error) {
      patience.signal?.throwIfAborted();
      const taken = statusOf(error) === 409;
      if (!taken && (!isLost(error) || tries >= attempts)) throw error;
      const found = await find(docker, options.name);
      if (found?.attempt === attempt && found !== undefined) return docker.getContainer(found.id);
      if (found) await remove(docker.getContainer(found.id));
      else if (taken && tries >= attempts) throw error;
      else await sleep(pauseMs * 2 ** (tries - 1), undefined, { signal: patience.signal });
    }
  }
}

/** Starts a container; one that runs already is success. */
export async function startContainer(container: Docker.Container, patience: Patience): Promise<void> {
  for (let tries = 1; ; tries++) {
    patience.signal?.throwIfAborted();
    try {
      await container.start({ abortSignal: limited(patience) });
      return;
    } catch (error) {
      patience.signal?.throwIfAborted();
      if (statusOf(error) === 304) return;
      if (!isLost(error) || tries >= attempts) throw error;
      const { State: state } = await container.inspect();
      if (state.Running) return;
      if (state.Status !== 'created')
        throw new InfrastructureError(`the container ended at its start: ${state.Status}, ${state.Error || `exit code ${state.ExitCode}`}`);
      await sleep(pauseMs * 2 ** (tries - 1), undefined, { signal: patience.signal });
    }
  }
}

async function find(docker: Docker, name: string): Promise<{ readonly id: string; readonly attempt: string | undefined } | undefined> {
  try {
    const { Id, Config } = await docker.getContainer(name).inspect();
    return { id: Id, attempt: Config.Labels[label.attempt] };
  } catch (error) {
    if (statusOf(error) === 404) return undefined;
    throw error;
  }
}

function limited({ answerMs, signal }: Patience): AbortSignal {
  const limit = AbortSignal.timeout(answerMs);
  return signal ? AbortSignal.any([signal, limit]) : limit;
}
