/** What can go wrong between a rollout and the sampler, typed by what the rollout must do about it. */
import { InfrastructureError, UserError } from '../environment/errors.ts';

/**
 * The sampler does not hold this episode any more (trainer restarted, or the session idled too long). The episode starts
 * again from its beginning: feeding the long prefix afresh could change the last bits, and with them the tokens.
 */
export class SessionLostError extends InfrastructureError {
  readonly code = 'session-lost';
}
/** The request's tokens do not extend what the session has seen: an episode is one append-only sequence. */
export class SessionPrefixError extends UserError {
  readonly code = 'session-prefix';
}
