/**
 * The chat template of a Hugging Face model: the Jinja program that lays a conversation out as text. Rendered with @huggingface/jinja, with
 * the settings and variables of transformers' `apply_chat_template`.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Template } from '@huggingface/jinja';
import { UserError } from '../environment/errors.ts';

export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

export interface ChatTemplate {
  /** The file, for errors. */
  readonly place: string;
  /** With the opening of the next reply at the end. Throws Error where the template refuses the messages. */
  render(messages: readonly ChatMessage[]): string;
}

/**
 * What `strftime_now` tells a template: a constant, or the same episode would have other tokens tomorrow. It is the day that Llama 3's
 * template falls back to.
 */
const DAY: Readonly<Record<string, string>> = { Y: '2024', m: '07', d: '26', b: 'Jul', B: 'July', H: '00', M: '00', S: '00' };
/** The library knows `strftime_now` and lets no variable take its place, but a template may. */
const CONSTANT_DAY = '{% set strftime_now = constant_day %}';

/** A template from its text. `tokens` are the variables `bos_token`, `eos_token` … Throws UserError where it is no Jinja that we can read. */
export function createChatTemplate(source: string, place: string, tokens: Readonly<Record<string, string>> = {}): ChatTemplate {
  let template: Template;
  try {
    template = new Template(CONSTANT_DAY + source);
  } catch (error) {
    throw new UserError(`${place}: ${(error as Error).message}; expected a Jinja chat template`);
  }
  const constant_day = (format: string): string => format.replace(/%(.)/g, (written, field: string) => DAY[field] ?? written);
  return { place, render: (messages) => template.render({ ...tokens, constant_day, messages, add_generation_prompt: true }) };
}

/**
 * The template of a policy directory: `chat_template.jinja`, else `chat_template` of tokenizer_config.json (of several the one named
 * `default`); undefined where there is none. Throws UserError for files that cannot be read.
 */
export function readChatTemplate(directory: string): ChatTemplate | undefined {
  const config = join(directory, 'tokenizer_config.json');
  const settings = readJson(config);
  const tokens = specialTokens({ ...readJson(join(directory, 'special_tokens_map.json')), ...settings });
  const file = join(directory, 'chat_template.jinja');
  if (existsSync(file)) return createChatTemplate(readFileSync(file, 'utf8'), file, tokens);
  const given = settings['chat_template'];
  if (given === undefined || given === null) return undefined;
  const named = Array.isArray(given) ? (given as { name?: unknown; template?: unknown }[]) : [{ name: 'default', template: given }];
  const source = named.find(({ name }) => name === 'default')?.template;
  if (typeof source !== 'string')
    throw new UserError(
      `${config}: chat_template is ${JSON.stringify(given).slice(0, 80)}, expected a text, or a list with one named "default"`,
    );
  return createChatTemplate(source, `${config}: chat_template`, tokens);
}

/** `bos_token`, `eos_token` …: texts, or objects with the text as `content`. */
function specialTokens(fields: Readonly<Record<string, unknown>>): Record<string, string> {
  const tokens: Record<string, string> = {};
  for (const [name, value] of Object.entries(fields)) {
    if (!name.endsWith('_token')) continue;
    const content = typeof value === 'object' && value !== null ? (value as { content?: unknown }).content : value;
    if (typeof content === 'string') tokens[name] = content;
  }
  return tokens;
}

/** The object of a JSON file; empty where there is no file. */
export function readJson(path: string): Readonly<Record<string, unknown>> {
  if (!existsSync(path)) return {};
  try {
    const value: unknown = JSON.parse(readFileSync(path, 'utf8'));
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch (error) {
    throw new UserError(`${path}: ${(error as Error).message}, expected a JSON object`);
  }
  throw new UserError(`${path}: no object, expected a JSON object`);
}
