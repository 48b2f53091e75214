/**
 * From errors to Temporal failures. Whose fault it is decides whether another attempt can help:
 *
 *   InfrastructureError (with TrainerLostError, SessionLostError)    retried, as long as the activity's options allow
 *   TaskError, UserError, NumericalError, ArtifactError, LedgerError not retried: the same input gives the same error
 *   a full or failing disk, too many open files (environment/errors.ts)  retried like InfrastructureError
 *   anything else                                                    retried a few times: a bug looks the same each time
 */
import { activityInfo, cancellationSignal } from '@temporalio/activity';
import { ApplicationFailure, TemporalFailure } from '@temporalio/common';
import { InfrastructureError, storageError, TaskError, UserError } from '../environment/errors.ts';
import { NumericalError } from '../policy/errors.ts';
import { TrainerLostError } from '../policy/trainer/errors.ts';
import { ArtifactError } from '../records/artifacts.ts';
import { LedgerError } from '../records/ledger.ts';

const UNEXPECTED_ATTEMPTS = 5;
/** The next attempt waits for the trainer itself; the back-off would go on to a minute where it is lost again and again. */
const TRAINER_RETRY = '1s';
/** The server cuts failures at 4 KB; the log has the whole text. */
const MESSAGE_LENGTH = 2_000;
/** Far below the server's 2 MiB, which fails retryably: results are references and counts. */
const RESULT_BYTES = 1024 * 1024;

/** An activity function whose errors are Temporal failures, and whose result is small enough for a history. */
export function activity<I, O>(work: (input: I) => Promise<O>): (input: I) => Promise<O> {
  return async (input) => {
    let result: O;
    try {
      result = await work(input);
    } catch (error) {
      const cancelled = cancellationSignal();
      // The CancelledFailure itself, not the AbortError that a library made of it: only so are pause and reset told from cancellation.
      if (cancelled.aborted) throw cancelled.reason;
      throw toFailure(error, activityInfo().attempt);
    }
    const bytes = JSON.stringify(result)?.length ?? 0;
    if (bytes > RESULT_BYTES) {
      throw ApplicationFailure.nonRetryable(
        `${activityInfo().activityType}: result of ${bytes} bytes, expected at most ${RESULT_BYTES}`,
        'ResultTooLarge',
      );
    }
    return result;
  };
}

/** `attempt` counts from 1. */
export function toFailure(thrown: unknown, attempt: number): Error {
  if (thrown instanceof TemporalFailure) return thrown;
  const error = thrown instanceof InfrastructureError ? thrown : (storageError(thrown) ?? thrown);
  const failure = (type: string, nonRetryable: boolean): ApplicationFailure => {
    const message = error instanceof Error ? error.message : String(error);
    return ApplicationFailure.create({
      type,
      nonRetryable,
      message: message.slice(0, MESSAGE_LENGTH),
      ...(error instanceof Error ? { cause: error } : {}),
      ...(error instanceof TrainerLostError ? { nextRetryDelay: TRAINER_RETRY } : {}),
    });
  };
  if (error instanceof InfrastructureError) return failure('InfrastructureError', false);
  for (const kind of [TaskError, UserError, NumericalError, ArtifactError, LedgerError]) {
    if (error instanceof kind) return failure(error.name, true);
  }
  return failure(error instanceof Error ? error.name : 'Error', attempt >= UNEXPECTED_ATTEMPTS);
}
