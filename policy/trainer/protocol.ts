/**
 * The trainer's HTTP interface: paths, bodies and error codes, shared by server and client. JSON both ways.
 *
 *   GET    /health
 *   POST   /v1/sample                              sampleSchema → SampleResult
 *   DELETE /v1/sessions/:id
 *   POST   /v1/models                              loadSchema → {handle}
 *   POST   /v1/models/:handle/forward              forwardSchema → {values}
 *   POST   /v1/models/:handle/forward-backward     forwardBackwardSchema → LossSums
 *   POST   /v1/models/:handle/optim-step           optimStepSchema → {gradientNorm, step}
 *   POST   /v1/models/:handle/save                 saveSchema → {}
 *   DELETE /v1/models/:handle
 *
 * Errors: {error: {code, message}} with the status of `statusOf`; a 503 says in Retry-After how many seconds to wait.
 */
import { z } from 'zod';
import { UserError } from '../../environment/errors.ts';

const token = z.number().int().min(0);
const numbers = z.array(z.number());

export const sampleSchema = z.strictObject({
  sessionId: z.string().min(1).max(500),
  policy: z.string().regex(/^[0-9a-f]{64}$/, 'expected the hex SHA-256 of a policy artifact'),
  tokens: z.array(token).min(1),
  seed: z.number().int().min(0).max(4294967295),
  maxTokens: z.number().int().min(1),
  temperature: z.number().min(0),
  topK: z.number().int().min(1).optional(),
  topP: z.number().positive().max(1).optional(),
  stopTokens: z.array(token).max(64).optional(),
  timeoutMs: z.number().int().min(1).max(2147483647).optional(),
  /** true: an earlier request of this session was answered; false: the session's first request. */
  continued: z.boolean().optional(),
});
export const loadSchema = z.strictObject({
  role: z.enum(['actor', 'critic']),
  directory: z.string().min(1),
  optimizer: z.string().min(1).optional(),
});
const batchSchema = z
  .strictObject({
    rows: z.number().int().min(1),
    length: z.number().int().min(1),
    tokens: z.array(token),
    mask: z.array(z.union([z.literal(0), z.literal(1)])),
  })
  .refine(
    (batch) => batch.tokens.length === batch.rows * batch.length && batch.mask.length === batch.tokens.length,
    'expected rows x length tokens and as many mask entries',
  );
export const forwardSchema = z.strictObject({ output: z.enum(['logprobs', 'values']), batch: batchSchema });
const lossSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('sft'), denominator: z.number().positive() }),
  z.strictObject({
    kind: z.literal('ppo'),
    denominator: z.number().positive(),
    advantages: numbers,
    oldLogprobs: numbers,
    clipLow: z.number(),
    clipHigh: z.number(),
    dualClip: z.number(),
    klCoefficient: z.number(),
    referenceLogprobs: numbers,
    entropyCoefficient: z.number(),
  }),
  z.strictObject({
    kind: z.literal('value'),
    denominator: z.number().positive(),
    returns: numbers,
    oldValues: numbers,
    clip: z.number().min(0),
  }),
]);
export const forwardBackwardSchema = z.strictObject({ loss: lossSchema, batch: batchSchema });
export const optimStepSchema = z.strictObject({
  learningRate: z.number().min(0),
  beta1: z.number().min(0).lt(1),
  beta2: z.number().min(0).lt(1),
  epsilon: z.number().positive(),
  weightDecay: z.number().min(0),
  maxGradientNorm: z.number().positive(),
});
export const saveSchema = z.strictObject({ directory: z.string().min(1), optimizer: z.string().min(1).optional() });

export type ErrorCode =
  | 'bad-request'
  | 'session-prefix'
  | 'session-lost'
  | 'sampler-busy'
  | 'sample-timeout'
  | 'numerical'
  | 'unknown-handle'
  | 'unauthorized'
  | 'not-found'
  | 'storage'
  | 'internal';
export const statusOf: Readonly<Record<ErrorCode, number>> = {
  'bad-request': 400,
  unauthorized: 401,
  'not-found': 404,
  'unknown-handle': 410,
  'session-prefix': 409,
  'session-lost': 409,
  'sampler-busy': 503,
  'sample-timeout': 504,
  numerical: 422,
  storage: 507,
  internal: 500,
};

/** @throws UserError naming each bad field, its value and what was expected */
export function parseBody<T extends z.ZodType>(schema: T, place: string, body: unknown): z.output<T> {
  const parsed = schema.safeParse(body, { reportInput: true });
  if (parsed.success) return parsed.data;
  const issues = parsed.error.issues.slice(0, 3).map((issue) => {
    const value = JSON.stringify(issue.input)?.slice(0, 80);
    return `${issue.path.join('.') || '(body)'} is ${value}: ${issue.message}`;
  });
  throw new UserError(`${place}: ${issues.join('; ')}`);
}

/** JSON has no NaN and no infinities, and a non-finite loss must arrive as what it is. */
export function encode(value: unknown): string {
  return JSON.stringify(value, (_, item: unknown) =>
    typeof item === 'number' && !Number.isFinite(item) ? { $number: String(item) } : item,
  );
}
export function decode(text: string): unknown {
  if (!text.includes('"$number"')) return JSON.parse(text);
  return JSON.parse(text, (_, item: unknown) =>
    typeof item === 'object' && item !== null && '$number' in item ? Number(item.$number) : item,
  );
}
