/**
 * What a chat template puts around messages. The template is rendered once, with marks in place of the messages' contents, and cut at the
 * marks. So contents never pass through it: they can neither write a special token nor change how anything is laid out, and what stands
 * between two turns does not depend on turns that are past. Templates that rewrite past turns (Qwen3's drops their reasoning) thereby
 * leave an episode one sequence that only grows.
 */
import { UserError } from '../../environment/errors.ts';
import type { ChatMessage, ChatTemplate } from '../chat-template.ts';
import type { Frame, Slot } from './frames.ts';

export interface ChatLayout {
  /** How an episode begins, up to where the agent writes. Contents: the system message (where `systemRole`), the first user message. */
  readonly opening: Frame;
  /** From the agent's last character, so the end of its turn first, to where it writes again. Content: a user message. */
  readonly between: Frame;
  /** false: the template has no system message, or moves it about; what it would say belongs into the first user message. */
  readonly systemRole: boolean;
}

/** Throws UserError where the template cannot be used: it refuses such a conversation, or lays a turn out differently when more follow. */
export function chatLayout(template: ChatTemplate): ChatLayout {
  const withSystem = attempt(template, true);
  if (typeof withSystem !== 'string') return withSystem;
  const without = attempt(template, false);
  if (typeof without !== 'string') return without;
  throw new UserError(
    `${template.place}: with a system message: ${withSystem}; without one: ${without}. Expected a template that lays out a conversation of ` +
      'user and assistant turn by turn',
  );
}

/** The layout, or why there is none. */
function attempt(template: ChatTemplate, systemRole: boolean): ChatLayout | string {
  const head = [...(systemRole ? [message('system', 0)] : []), message('user', 1)];
  const turn = (index: number): ChatMessage[] => [message('assistant', index), message('user', index + 1)];
  try {
    const opening = cut(template, head);
    const once = cut(template, [...head, ...turn(2)]);
    const twice = cut(template, [...head, ...turn(2), ...turn(4)]);
    const between = once.slice(-3);
    if (JSON.stringify(twice.slice(-3)) !== JSON.stringify(between)) return 'a turn is laid out differently when more turns are before it';
    return { opening, between, systemRole };
  } catch (error) {
    return (error as Error).message;
  }
}

/** White space that no template writes of itself: where it is gone from an end of a content, the template takes it off. */
const SPACE = ' \t\n ';
/** Private-use characters, so that no template's own text is mistaken for a mark. */
const mark = (index: number): string => `\uE000${index}\uE001`;

function message(role: ChatMessage['role'], index: number): ChatMessage {
  // A reply is never put in; it is where the text is cut.
  return { role, content: role === 'assistant' ? mark(index) : `${SPACE}${mark(index)}${SPACE}` };
}

/** The rendering, cut at the contents. Throws Error where they are not each there once and in order. */
function cut(template: ChatTemplate, messages: readonly ChatMessage[]): Frame {
  let rest = template.render(messages);
  const frame: (string | Slot)[] = [];
  for (const { role, content } of messages) {
    const sign = content.trim();
    const [before, after, ...more] = rest.split(sign) as [string, string | undefined, ...string[]];
    if (after === undefined || more.length > 0)
      return fail(`the ${role} message stands in it ${more.length > 0 ? 'more than once' : 'not at all, or not in its place'}`);
    const isReply = role === 'assistant';
    const slot = { trimStart: !isReply && !before.endsWith(SPACE), trimEnd: !isReply && !after.startsWith(SPACE) };
    frame.push(isReply || slot.trimStart ? before : before.slice(0, -SPACE.length), slot);
    rest = isReply || slot.trimEnd ? after : after.slice(SPACE.length);
  }
  return [...frame, rest];
}

function fail(reason: string): never {
  throw new Error(reason);
}
