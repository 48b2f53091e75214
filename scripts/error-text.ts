/** What a command prints of an error: what a person can act on is said in the message; for anything else the stack is needed too. */
import { InfrastructureError, TaskError, UserError } from '../environment/errors.ts';

export function errorText(error: unknown): string {
  if (error instanceof UserError || error instanceof TaskError || error instanceof InfrastructureError) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
