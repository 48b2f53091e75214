/**
 * Whether all engines computed the same function, looked at before anything is timed: a fast engine that computes something else is no
 * engine. Training: loss and gradient norm of the first optimizer steps. Sampling: the log-probabilities that an engine had while it drew,
 * through its cache, beside those of our training forward pass over the finished sequences.
 */
import { InfrastructureError } from '../../../environment/errors.ts';
import type { Model } from '../../../policy/model-parameters.ts';
import { tokenLogprobs } from '../../../policy/evaluation.ts';
import type { Answer, Engine } from './peers.ts';
import { NAMES } from './peers.ts';
import { PROMPT_TOKENS } from './workloads.ts';
import type { Spec } from './workloads.ts';

/** Largest difference: of losses and gradient norms relative to their size, of log-probabilities in nats. */
export const TOLERANCE = 1e-3;

type Answers = ReadonlyMap<Engine, Answer>;

/** @returns the largest difference @throws InfrastructureError naming engine, place and values of one beyond the tolerance */
export function checkTraining(answers: Answers): number {
  const [[first, reference] = []] = [...answers];
  let largest = 0;
  for (const [engine, answer] of answers)
    for (const field of ['losses', 'gradientNorms'] as const)
      reference![field]!.forEach((expected, i) => {
        const found = answer[field]?.[i] ?? NaN;
        const difference = Math.abs(found - expected) / Math.abs(expected);
        largest = Math.max(largest, difference);
        if (!(difference <= TOLERANCE))
          throw new InfrastructureError(
            `${NAMES[engine]}: ${field}[${i}] is ${found}, expected ${expected} as ${NAMES[first!]} has it, within ${TOLERANCE}`,
          );
      });
  return largest;
}

/** As `checkTraining`. `model`: the weights that all engines were given. */
export function checkSampling(answers: Answers, model: Model, { rows, length, tokens: prompts }: Spec): number {
  const count = length - PROMPT_TOKENS;
  let largest = 0;
  for (const [engine, { tokens = [], logprobs = [] }] of answers)
    for (let row = 0; row < rows; row++) {
      const drawn = tokens[row] ?? [];
      if (drawn.length !== count)
        throw new InfrastructureError(`${NAMES[engine]}: row ${row} has ${drawn.length} new tokens, expected ${count}`);
      const sequence = [...prompts.slice(row * PROMPT_TOKENS, (row + 1) * PROMPT_TOKENS), ...drawn];
      const mask = sequence.map((_, i) => (i < PROMPT_TOKENS ? 0 : 1));
      const expected = tokenLogprobs(model, { rows: 1, length, tokens: sequence, mask });
      for (let i = 0; i < count; i++) {
        const found = logprobs[row]?.[i] ?? NaN;
        const difference = Math.abs(found - expected[PROMPT_TOKENS + i]!);
        largest = Math.max(largest, difference);
        if (!(difference <= TOLERANCE))
          throw new InfrastructureError(
            `${NAMES[engine]}: row ${row}, new token ${i} was drawn with log-probability ${found}, expected ${expected[PROMPT_TOKENS + i]} within ${TOLERANCE}`,
          );
      }
    }
  return largest;
}
