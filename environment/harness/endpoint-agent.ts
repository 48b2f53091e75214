/**
 * Any model behind an OpenAI-compatible endpoint (chat completions) as an agent. The whole conversation is sent with every turn; nothing is
 * ever summarized or left out of it, so that what the model saw is what the record shows. When it does not fit any more the episode ends.
 */
import OpenAI, { APIConnectionError, APIConnectionTimeoutError, APIError, APIUserAbortError } from 'openai';
import { InfrastructureError, TaskError, UserError } from '../errors.ts';
import type { Agent, Reply } from './agent.ts';
import { commandsIn } from './chat-reply.ts';
import { explainHarness } from './prompts.ts';

export interface EndpointOptions {
  /** E.g. `http://localhost:8000/v1`. */
  readonly baseUrl: string;
  readonly model: string;
  /** Default: OPENAI_API_KEY; local servers want none. */
  readonly apiKey?: string;
  readonly temperature?: number;
  /** Of one reply, the model's thinking included. */
  readonly maxTokens?: number;
  readonly seed?: number;
  /** Tries of one request after a failure that may pass, with growing pauses. */
  readonly retries?: number;
  /** Of one request, in seconds. */
  readonly timeoutSec?: number;
}

const RETRIES = 5;
const TIMEOUT_SEC = 600;
/** How servers say that the conversation is too long. */
const TOO_LONG =
  /context.{0,20}(length|window)|maximum.{0,20}tokens|too many tokens|prompt is too long|exceed\w* .{0,40}(tokens|context)/is;

/** Agent of the name `model:<model>`. Throws UserError where the address is none. */
export function endpointAgent(options: EndpointOptions): Agent {
  const { baseUrl: baseURL, model, temperature, maxTokens, seed, retries = RETRIES, timeoutSec = TIMEOUT_SEC } = options;
  if (!URL.canParse(baseURL))
    throw new UserError(`the endpoint ${JSON.stringify(baseURL)}: expected a URL such as http://localhost:8000/v1`);
  // The client refuses to start without a key, which most local servers do not ask for.
  const apiKey = options.apiKey ?? process.env.OPENAI_API_KEY ?? 'none';
  const client = new OpenAI({ baseURL, apiKey, maxRetries: retries, timeout: timeoutSec * 1000, organization: null, project: null });
  // Servers that people run themselves know the former name, some of OpenAI's models only the latter.
  let limitField: 'max_tokens' | 'max_completion_tokens' = 'max_tokens';
  return {
    name: `model:${model}`,
    open({ harness }) {
      const messages: OpenAI.ChatCompletionMessageParam[] = [];
      const usage = { promptTokens: 0, completionTokens: 0, cachedTokens: 0 };
      const settings = { model, ...(temperature === undefined ? {} : { temperature }), ...(seed === undefined ? {} : { seed }) };
      return {
        instruct(text) {
          if (messages.length === 0) messages.push({ role: 'system', content: explainHarness(harness) });
          messages.push({ role: 'user', content: text });
          return true;
        },
        async reply(_turn, signal): Promise<Reply> {
          const ask = (): Promise<OpenAI.ChatCompletion> =>
            client.chat.completions.create(
              { ...settings, messages, ...(maxTokens === undefined ? {} : { [limitField]: maxTokens }) },
              signal && { signal },
            );
          let completion: OpenAI.ChatCompletion;
          try {
            completion = await ask().catch((error: unknown) => {
              if (!wantsOtherLimit(error)) throw error;
              limitField = 'max_completion_tokens';
              return ask();
            });
          } catch (error) {
            signal?.throwIfAborted();
            if (isTooLong(error)) return { text: '', stop: 'context' };
            throw typed(error, { baseURL, model });
          }
          usage.promptTokens += completion.usage?.prompt_tokens ?? 0;
          usage.completionTokens += completion.usage?.completion_tokens ?? 0;
          usage.cachedTokens += completion.usage?.prompt_tokens_details?.cached_tokens ?? 0;
          const choice = completion.choices[0];
          if (!choice) throw new InfrastructureError(`${baseURL}: an answer of ${model} without a choice`, { type: 'InternalServerError' });
          const text = choice.message.content ?? '';
          messages.push({ role: 'assistant', content: text });
          if (choice.finish_reason === 'length') return { text, stop: 'output-length' };
          return { text, action: commandsIn(harness, text) };
        },
        observe(text) {
          messages.push({ role: 'user', content: text });
          return true;
        },
        account: () => ({
          agentTokens: usage.completionTokens,
          totalTokens: usage.promptTokens + usage.completionTokens,
          usage: { ...usage },
        }),
        close: () => Promise.resolve(),
      };
    },
  };
}

function wantsOtherLimit(error: unknown): boolean {
  return error instanceof APIError && error.status === 400 && error.message.includes('max_completion_tokens');
}

function isTooLong(error: unknown): boolean {
  return (
    error instanceof APIError &&
    [400, 413, 422].includes(error.status as number) &&
    (error.code === 'context_length_exceeded' || TOO_LONG.test(error.message))
  );
}

/** Types are those of the error policy (verifier/error-policy.ts). */
function typed(error: unknown, { baseURL, model }: { readonly baseURL: string; readonly model: string }): Error {
  if (error instanceof APIUserAbortError || !(error instanceof APIError)) return error as Error;
  const status = error.status as number | undefined;
  const message = `${baseURL}, model ${model}: ${error.message}`;
  if (error instanceof APIConnectionTimeoutError) return new InfrastructureError(message, { type: 'Timeout', cause: error });
  if (error instanceof APIConnectionError || status === undefined)
    return new InfrastructureError(`${message}${reason(error)}`, { type: 'APIConnectionError', cause: error });
  if (status === 401 || status === 403)
    return new UserError(`${message}; expected a key in OPENAI_API_KEY that may use the model`, { cause: error });
  if (status === 404)
    return new UserError(`${message}; expected the address of a chat completions API (mostly ending in /v1) and a model that it has`, {
      cause: error,
    });
  if (status === 429) return new InfrastructureError(message, { type: 'RateLimitError', cause: error });
  if (status === 408 || status === 409 || status >= 500)
    return new InfrastructureError(message, { type: status === 503 ? 'ServiceUnavailableError' : 'InternalServerError', cause: error });
  return new TaskError(message, { type: 'BadRequestError', cause: error });
}

/** "Connection error." says little; what lies below names host and port. */
function reason(error: Error): string {
  let deepest: unknown = error;
  while (deepest instanceof Error && deepest.cause !== undefined) deepest = deepest.cause;
  return deepest instanceof Error && deepest !== error && deepest.message !== '' ? ` (${deepest.message})` : '';
}
