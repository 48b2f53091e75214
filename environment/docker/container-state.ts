/** What is known of a running container, and whether and why it runs no more. */
import Docker from 'dockerode';
import { EngineLostError, InfrastructureError, SandboxDiedError, TaskError } from '../errors.ts';
import type { Moment } from './processes.ts';

/** What the supervisors of one sandbox share. */
export interface Engine {
  readonly docker: Docker;
  readonly container: Docker.Container;
  /** As the youngest mark of any supervisor says. */
  readonly seen: {
    moment: Moment;
    /** Processes of the sandbox killed for memory since its start; undefined where the kernel does not say. */
    memoryKills: number | undefined;
  };
}

export function newEngine(container: Docker.Container): Engine {
  // The published types do not know that a client can be made of another one's connection.
  const docker = new Docker({ modem: container.modem as unknown } as Docker.DockerOptions);
  return { docker, container, seen: { moment: { ticks: 0, lastPid: 0 }, memoryKills: undefined } };
}

/** @throws SandboxDiedError where it does not run; EngineLostError where nobody can say, or it is forgotten */
export async function assertRunning({ container, seen }: Engine): Promise<void> {
  let state: Docker.ContainerInspectInfo['State'];
  try {
    ({ State: state } = await container.inspect());
  } catch (error) {
    // An engine that cannot be asked is gone itself, or forgot the container in a restart.
    throw new EngineLostError(`the sandbox is lost: ${(error as Error).message}`);
  }
  if (state.Running) return;
  const { ExitCode: exitCode } = state;
  // Docker sets the flag for any process of the container, and keeps it: one that was survived says nothing about the end.
  const outOfMemory = state.OOMKilled && (seen.memoryKills ?? 0) === 0;
  throw new SandboxDiedError(`the sandbox died: exit code ${exitCode}${outOfMemory ? ', out of memory' : ''}`, { exitCode, outOfMemory });
}

/** Why no supervisor could be started. */
export async function reasonOf(engine: Engine, error: unknown, user: string | undefined): Promise<Error> {
  const { message } = error as Error;
  if (user !== undefined && /unable to find user|no matching entries in passwd/.test(message))
    return new TaskError(`the image has no user ${user} (${message})`);
  try {
    await assertRunning(engine);
  } catch (dead) {
    return dead as Error;
  }
  return (await processLimit(engine.container)) ?? (error as Error);
}

/** A shell in a container takes about so many processes and threads to start. */
const startingProcesses = 16;

/** What runs in the sandbox fills its table of processes. */
export class ProcessLimitError extends InfrastructureError {}

async function processLimit(container: Docker.Container): Promise<ProcessLimitError | undefined> {
  const { pids_stats: pids } = (await container.stats({ stream: false, 'one-shot': true })) as {
    pids_stats?: { current?: number; limit?: number };
  };
  const { current = 0, limit = Infinity } = pids ?? {};
  if (current + startingProcesses < limit) return undefined;
  return new ProcessLimitError(`no shell starts in the sandbox: ${current} of ${limit} processes run in it`);
}
