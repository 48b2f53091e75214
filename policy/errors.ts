/** Errors of training that retrying cannot cure, or that a stage loop must tell apart. */

/** A loss or gradient is not finite. Raised before the optimizer step: weights and moments are as they were. */
export class NumericalError extends Error {
  override readonly name = 'NumericalError';
}
