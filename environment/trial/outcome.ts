/** From what ended an episode to a trial's error, by Harbor's names; and the phases' times. */
import { createHash } from 'node:crypto';
import { InfrastructureError, storageError, TaskError, UserError } from '../errors.ts';
import type { StopReason, Verdict } from '../types.ts';
import { errorPolicy } from '../verifier/error-policy.ts';
import type { Period, TrialError, TrialPhase } from './types.ts';

/** `code` of errors that say that a part is being restarted: no outcome of a trial, which starts again (activities/lost-parts.ts). */
const LOST = new Set<unknown>(['engine-lost', 'session-lost', 'trainer-lost']);

/** @throws the error itself where it is no outcome: a part that is being restarted, or a bug */
export function errorOf(thrown: unknown): TrialError {
  const error = thrown instanceof InfrastructureError ? thrown : (storageError(thrown) ?? thrown);
  if (error instanceof InfrastructureError && LOST.has((error as { code?: unknown }).code)) throw error;
  if (error instanceof UserError) return typed('UserError', error.message);
  if (error instanceof InfrastructureError || error instanceof TaskError) return typed(error.type, error.message);
  throw error;
}

/** What Harbor calls the end of an agent that did not say that it is done; undefined where that is no error. */
export function errorOfStop(stopReason: StopReason, limitSec: number): TrialError | undefined {
  if (stopReason === 'agent-timeout') return typed('AgentTimeoutError', `the agent took longer than ${limitSec} s`);
  if (stopReason === 'context') return typed('ContextLengthExceededError', 'the context of the agent is full');
  if (stopReason === 'output-length') return typed('OutputLengthExceededError', 'a reply did not end within its limit');
  return undefined;
}

export function errorOfVerdict({ error }: Verdict): TrialError | undefined {
  return error && typed(error.type, error.message);
}

/** The verdict of a trial, or step, that was not judged. */
export function unjudged({ type, message }: TrialError): Verdict {
  return { outcome: 'no-verdict', checks: [], error: { type, message } };
}

function typed(type: string, message: string): TrialError {
  return { type, message, policy: errorPolicy(type) };
}

/** `<task id, at most 32 characters>__<7 characters>`; the same for the same job, task and sample. */
export function trialName(job: string, taskId: string, sample: number): string {
  const hash = createHash('sha256')
    .update(JSON.stringify([job, taskId, sample]))
    .digest('hex');
  const digits = BigInt(`0x${hash.slice(0, 12)}`)
    .toString(36)
    .padStart(7, '0')
    .slice(-7);
  return `${taskId.slice(0, 32)}__${digits}`;
}

/** When each phase began and ended. A phase that comes again goes on: its end is the last one's. */
export class Phases {
  readonly #periods: Partial<Record<TrialPhase, Period>> = {};
  readonly #entered: (phase: TrialPhase) => void;

  constructor(entered: (phase: TrialPhase) => void = () => undefined) {
    this.#entered = entered;
  }

  async time<T>(phase: TrialPhase, work: () => Promise<T>): Promise<T> {
    const startedAt = this.#periods[phase]?.startedAt ?? now();
    this.#entered(phase);
    try {
      return await work();
    } finally {
      this.#periods[phase] = { startedAt, finishedAt: now() };
    }
  }

  get periods(): Readonly<Partial<Record<TrialPhase, Period>>> {
    return { ...this.#periods };
  }
}

export const now = (): string => new Date().toISOString();
