/** What an agent at a terminal reads: what is new in the scrollback, or the screen; never more than a fixed number of bytes. */
import type { Terminal } from '../types.ts';

/** Terminus-2's limit: the first and the last half of it. */
const LIMIT_BYTES = 10_000;

/** Tells what is new since it was last asked. */
export class TerminalReader {
  readonly #terminal: Terminal;
  #seen: string | undefined;

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
  }

  /** @throws SandboxDiedError, InfrastructureError */
  async read(signal?: AbortSignal): Promise<string> {
    const history = (await this.#terminal.history(signal)).trimEnd();
    const fresh = this.#seen === undefined ? '' : newPart(this.#seen, history);
    this.#seen = history;
    if (fresh.trim() !== '') return `New Terminal Output:\n${limitOutput(fresh)}`;
    return `Current Terminal Screen:\n${limitOutput((await this.#terminal.screen(signal)).trimEnd())}`;
  }
}

/**
 * What `after` has beyond `before`, from the last line of `before` on, because a prompt's line is completed by what is typed. Empty where
 * nothing is new, or where it cannot be told (the screen was cleared, or a program drew on it).
 */
function newPart(before: string, after: string): string {
  if (before === after || !after.includes(before)) return '';
  const end = after.indexOf(before) + before.length;
  return after.slice(after.lastIndexOf('\n', end - 1) + 1);
}

/** At most 10,000 bytes of UTF-8: the first and the last half of them, and how many were left out. */
export function limitOutput(text: string): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= LIMIT_BYTES) return text;
  const half = LIMIT_BYTES / 2;
  let head = half;
  while (isContinuation(bytes[head])) head--;
  let tail = bytes.length - half;
  while (isContinuation(bytes[tail])) tail++;
  const left = tail - head;
  return `${bytes.subarray(0, head).toString()}\n[... ${left} bytes left out: output is limited to ${LIMIT_BYTES} bytes ...]\n${bytes.subarray(tail).toString()}`;
}

/** Whether a byte is in the middle of a character of UTF-8. */
function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}
