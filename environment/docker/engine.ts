/** What the Docker engine's answers mean, and removing a container for good. */
import type Docker from 'dockerode';
import { EngineLostError, InfrastructureError, TaskError, UserError } from '../errors.ts';

/** Removes a container by force, with its volumes. One that is gone or going is success. */
export async function remove(container: Docker.Container): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await container.remove({ force: true, v: true });
      return;
    } catch (error) {
      if (statusOf(error) === 404) return;
      if (statusOf(error) === 409 && /already in progress/.test((error as Error).message)) return;
      if (attempt === 3) throw error;
      await new Promise((resolve) => setTimeout(resolve, 200 * attempt));
    }
  }
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
  return new InfrastructureError(`cannot ${action}: ${message}`);
}

/** The HTTP status of an engine's refusal. */
export function statusOf(error: unknown): number | undefined {
  return (error as { statusCode?: number }).statusCode;
}
