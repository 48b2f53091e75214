/**
 * What a chat model's reply says to execute. It is told to put commands into a fenced block (prompts.ts); models also think aloud, explain,
 * leave the fence out or do not close it, and what they mean is then mostly plain.
 */
import type { HarnessName } from '../types.ts';

/** An opening fence on a line of its own, with its indentation and its backticks. */
const FENCE = /^([ \t]*)(`{3,})[^`\n]*$/;

/**
 * The command of a reply: the first fenced block (`shell`), or all of them one after another (`script`); without a block the whole text, less
 * backticks around a single line. A block ends at a fence that is at least as long as its own, else with the reply, and loses the
 * indentation of its fence. A leading `<think>…</think>` is no part of the reply. A prompt sign (`$ `) before a command is taken off,
 * because no command can begin with it. `terminus` gets the text without the thinking.
 */
export function commandsIn(harness: HarnessName, reply: string): string {
  const said = withoutThinking(reply);
  if (harness === 'terminus') return said;
  const blocks = fencedBlocks(said);
  const bare = /^\s*(`+)([^`\n]+)\1\s*$/.exec(said)?.[2] ?? said;
  const text = harness === 'script' && blocks.length > 0 ? blocks.join('\n') : (blocks[0] ?? bare);
  return harness === 'shell' ? text.replace(/^\s*\$ /, '') : text.replace(/^[ \t]*\$ /gm, '');
}

/** The reply that says just this: `commandsIn` gives the text back, but for white space at its ends. */
export function inFence(harness: HarnessName, text: string): string {
  if (harness === 'terminus') return text;
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = '`'.repeat(longest + 1);
  return `${fence}bash\n${text}\n${fence}`;
}

/** A thought that never ends is all there is. */
function withoutThinking(reply: string): string {
  return reply.replace(/^\s*<think>.*?(<\/think>|$)/s, '');
}

function fencedBlocks(text: string): string[] {
  const blocks: string[] = [];
  let open: { readonly indent: string; readonly ticks: string; readonly lines: string[] } | undefined;
  const close = (): void => {
    if (open) blocks.push(open.lines.join('\n'));
    open = undefined;
  };
  for (const line of text.split('\n')) {
    if (!open) {
      const [, indent = '', ticks = ''] = FENCE.exec(line) ?? [];
      if (ticks !== '') open = { indent, ticks, lines: [] };
    } else if (new RegExp(`^[ \\t]*${open.ticks}\`*[ \\t]*$`).test(line)) close();
    else open.lines.push(line.startsWith(open.indent) ? line.slice(open.indent.length) : line);
  }
  close();
  return blocks;
}
