/** What can go wrong between a rollout and the sampler, typed by what the rollout must do about it. */
import { InfrastructureError, UserError } from '../environment/errors.ts';

/**
 * The sampler does not hold this episode any more (trainer restarted, its policy was dropped, or too much was kept). The
 * episode starts again from its beginning: feeding the long prefix afresh could change the last bits, and with them the tokens.
 */
export class SessionLostError extends InfrastructureError {
  readonly code = 'session-lost';
}
/** The request's tokens do not extend what the session has seen: an episode is one append-only sequence. */
export class SessionPrefixError extends UserError {
  readonly code = 'session-prefix';
}
/** Too much waits already, or no memory is free for the policy. Nothing has happened: the same request may be sent again. */
export class SamplerBusyError extends InfrastructureError {
  readonly code = 'sampler-busy';
  /** When another try is worth it. */
  readonly retryAfterSeconds: number;

  constructor(message: string, retryAfterSeconds: number) {
    super(message);
    this.retryAfterSeconds = retryAfterSeconds;
  }
}
/** The request's own time limit passed. Its session is over, and its slot is free. */
export class SampleTimeoutError extends InfrastructureError {
  readonly code = 'sample-timeout';
}
