/** Frames of a chat template, and their token ids with contents put in. */
import type { PolicyTokenizer } from '../tokenizer.ts';
import { cutMiddle } from './cut-middle.ts';

/** Where a content goes, and whether the template takes white space off its ends. */
export interface Slot {
  readonly trimStart: boolean;
  readonly trimEnd: boolean;
}
/** The template's own text, which may hold special tokens, and the places of contents. */
export type Frame = readonly (string | Slot)[];

/** Contents take the slots in order, each cut to `maxTokens` (default: uncut). */
export type FrameWriter = (frame: Frame, contents: readonly string[], maxTokens?: number) => number[];

/** Token ids of frames: special tokens where the frame's own text has them, and nowhere else. */
export function frameWriter(tokenizer: PolicyTokenizer): FrameWriter {
  const specials = specialPattern(tokenizer);
  return (frame, contents, maxTokens = Infinity) => {
    const ids: number[] = [];
    // Text between two special tokens is encoded in one piece, as transformers does: tokens may span the border of a content.
    let text = '';
    const flush = (): void => {
      ids.push(...tokenizer.encode(text));
      text = '';
    };
    const left = [...contents];
    for (const part of frame) {
      if (typeof part === 'string') {
        part.split(specials).forEach((piece, index) => {
          if (index % 2 === 0) text += piece;
          else {
            flush();
            ids.push(tokenizer.added.get(piece) as number);
          }
        });
        continue;
      }
      const content = trimmed(left.shift() ?? '', part);
      const tokens = maxTokens === Infinity ? [] : tokenizer.encode(content);
      if (tokens.length <= maxTokens) text += content;
      else {
        flush();
        ids.push(...cutMiddle(tokenizer, tokens, maxTokens));
      }
    }
    flush();
    return ids;
  };
}

function trimmed(content: string, { trimStart, trimEnd }: Slot): string {
  const start = trimStart ? content.trimStart() : content;
  return trimEnd ? start.trimEnd() : start;
}

/** Splits a text so that every second piece is a special token; the longest counts where several begin at one place. */
export function specialPattern(tokenizer: PolicyTokenizer): RegExp {
  const tokens = [...tokenizer.added.keys()].filter((token) => token !== '').sort((a, b) => b.length - a.length);
  // A pattern that matches nothing, where there are none.
  return new RegExp(`(${tokens.map((token) => token.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')).join('|') || '(?!)'})`);
}
