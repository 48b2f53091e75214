/** Errors of the trainer's clients. Bad requests arrive as UserError, non-finite numbers as NumericalError (policy/errors.ts). */
import { InfrastructureError } from '../../environment/errors.ts';

/**
 * The trainer process died, was restarted (its handles are gone), or cannot be reached. Retryable: the stage loop loads
 * its newest checkpoint and goes on.
 */
export class TrainerLostError extends InfrastructureError {
  readonly code = 'trainer-lost';
}
