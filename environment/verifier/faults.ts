/** What can go wrong while an episode is judged: the verifier's faults, which are `no-verdict`, and the machine's, which are thrown. */
import { InfrastructureError } from '../errors.ts';
import type { Verdict } from '../types.ts';

/** A fault of the task's verifier, with the name Harbor gives it (or ours where Harbor has none: docs/verification.md). */
export class VerifierFault extends Error {
  readonly type: string;

  constructor(type: string, message: string) {
    super(message);
    this.type = type;
  }
}

/** The verdict that a fault stands for. Whatever is no VerifierFault is thrown on. */
export function verdictOfFault(error: unknown): Verdict {
  if (!(error instanceof VerifierFault)) throw error;
  return { outcome: 'no-verdict', checks: [], error: { type: error.type, message: error.message } };
}

export interface Budget {
  /** Seconds; Infinity = no limit. */
  readonly seconds: number;
  /** Harbor's name for its failure. */
  readonly type: string;
  /** What is done, for the message. */
  readonly action: string;
}

/**
 * Runs one part of a verification within its own limit.
 * @throws InfrastructureError of the budget's type when it fails or takes longer. Errors that already say more (a dead sandbox, a lost
 *   engine, a type of their own) and the signal's reason pass unchanged.
 */
export async function within<T>({ seconds, type, action }: Budget, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const fail = (): void => reject(new InfrastructureError(`${action} took longer than ${seconds} s`, { type }));
    if (seconds * 1000 < 2 ** 31) timer = setTimeout(fail, seconds * 1000);
  });
  try {
    return await Promise.race([work(), late]);
  } catch (error) {
    signal?.throwIfAborted();
    if (!(error instanceof InfrastructureError) || error.type !== 'InfrastructureError' || 'code' in error) throw error;
    throw new InfrastructureError(`${action}: ${error.message}`, { type, cause: error });
  } finally {
    clearTimeout(timer);
  }
}
