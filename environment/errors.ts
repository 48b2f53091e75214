/**
 * Errors from outside, typed by whose fault they are. Activities map them to Temporal failures: InfrastructureError is
 * retried; TaskError and UserError are not.
 */
export class InfrastructureError extends Error {
  override readonly name = 'InfrastructureError';
  /** Harbor's name for it, where it has one; the error policy goes by it (verifier/error-policy.ts). */
  readonly type: string;

  constructor(message: string, { type = 'InfrastructureError', ...options }: ErrorOptions & { readonly type?: string } = {}) {
    super(message, options);
    this.type = type;
  }
}
/** The sandbox is dead, and no outage of the engine is known: what ran in it killed it, or the machine did (see control.ts). */
export class SandboxDiedError extends InfrastructureError {
  readonly code = 'sandbox-died';
  readonly exitCode: number | undefined;
  /** The kernel killed the sandbox's own first process for memory. */
  readonly outOfMemory: boolean;

  constructor(message: string, { exitCode, outOfMemory = false }: { exitCode?: number; outOfMemory?: boolean } = {}) {
    super(message);
    this.exitCode = exitCode;
    this.outOfMemory = outOfMemory;
  }
}
/** The Docker engine does not answer, or its restart took a sandbox with it. What ran there may start again. */
export class EngineLostError extends InfrastructureError {
  readonly code = 'engine-lost';
}
/** The task directory is wrong or asks for what this sandbox cannot give. */
export class TaskError extends Error {
  override readonly name = 'TaskError';
  /** Harbor's name for it, where it has one. */
  readonly type: string;

  constructor(message: string, { type = 'TaskError', ...options }: ErrorOptions & { readonly type?: string } = {}) {
    super(message, options);
    this.type = type;
  }
}
/** The configuration, path or option a person gave is wrong. The message names place, value and what was expected. */
export class UserError extends Error {
  override readonly name = 'UserError';
}

/** What to do about a machine that cannot store or open files, by the system's code. */
const REMEDIES: Readonly<Record<string, string>> = {
  ENOSPC: 'free space on its disk; the work goes on by itself',
  EDQUOT: 'raise the disk quota or free space; the work goes on by itself',
  EROFS: 'its file system is read-only: mount it writable, or set TERMINAL_RSI_DATA to another folder',
  EIO: 'its disk answers with errors: look at the system log',
  EMFILE: 'the process has too many files open: raise the limit (ulimit -n)',
  ENFILE: 'the machine has too many files open: raise the limit (sysctl fs.file-max)',
  ENOMEM: 'the machine is out of memory: free some',
  ESTALE: 'its network file system lost it: mount it again',
};

/** The error as InfrastructureError where it, or what caused it, is a full or failing disk; else undefined. `place`: the path, where the error does not know it. */
export function storageError(error: unknown, place?: string): InfrastructureError | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const { code = '', path = place, message } = cause as NodeJS.ErrnoException;
    const remedy = REMEDIES[code];
    if (remedy !== undefined)
      return new InfrastructureError(`${message}${path === undefined || message.includes(path) ? '' : ` (${path})`}: ${remedy}`, {
        cause: error,
      });
  }
  return undefined;
}

/** `work` on files below `place`; a full or failing disk is an InfrastructureError that names it. */
export async function onStorage<T>(place: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw storageError(error, place) ?? error;
  }
}
