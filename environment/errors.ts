/**
 * Errors from outside, typed by whose fault they are. Activities map them to Temporal failures: InfrastructureError is
 * retried; TaskError and UserError are not.
 */
export class InfrastructureError extends Error {
  override readonly name = 'InfrastructureError';
}
/** The task directory is wrong or asks for what this sandbox cannot give. */
export class TaskError extends Error {
  override readonly name = 'TaskError';
}
/** The configuration, path or option a person gave is wrong. The message names place, value and what was expected. */
export class UserError extends Error {
  override readonly name = 'UserError';
}
