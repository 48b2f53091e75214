/** What a request for tokens must be, whoever sends it. */
import { UserError } from '../environment/errors.ts';
import type { SampleRequest } from '../environment/types.ts';

/** @throws UserError naming the field, its value and what was expected */
export function checkSampleRequest(request: SampleRequest, vocabulary: number): void {
  const { tokens, maxTokens, temperature, topK, topP, stopTokens = [], timeoutMs } = request;
  const expect = (holds: boolean, field: string, value: unknown, expected: string): void => {
    if (!holds) throw new UserError(`sample: ${field} is ${String(value)}, expected ${expected}`);
  };
  const isToken = (token: number): boolean => Number.isInteger(token) && token >= 0 && token < vocabulary;
  const isCount = (value: number): boolean => Number.isInteger(value) && value >= 1;
  if (tokens.length === 0) throw new UserError('sample: tokens is empty, expected at least one token');
  for (const [field, list] of Object.entries({ tokens, stopTokens })) {
    const bad = list.findIndex((token) => !isToken(token));
    expect(bad < 0, `${field}[${bad}]`, list[bad], `an integer in 0..${vocabulary - 1}`);
  }
  expect(temperature >= 0 && temperature < Infinity, 'temperature', temperature, 'a number of at least 0');
  expect(isCount(maxTokens), 'maxTokens', maxTokens, 'an integer above 0');
  expect(topK === undefined || isCount(topK), 'topK', topK, 'an integer above 0');
  expect(topP === undefined || (topP > 0 && topP <= 1), 'topP', topP, 'a number above 0 and at most 1');
  expect(
    timeoutMs === undefined || (isCount(timeoutMs) && timeoutMs <= 2 ** 31 - 1),
    'timeoutMs',
    timeoutMs,
    'an integer above 0, below 2^31',
  );
}
