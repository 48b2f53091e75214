/**
 * The rule `evidence` (ours): a minimised procedure must still show what it acts on. Verification alone lets a minimiser remove
 * `cat note.txt` and keep `echo lemon > out.txt`, where "lemon" stood in the note; a policy trained on that is taught to guess. So after minimising,
 * commands that only looked are put back where a later kept command depends on what they showed:
 *
 *  - literal:  a word of the command stands neither in the instruction nor in an earlier command of the agent, but in an earlier output:
 *              the command whose output showed it is kept; of several the one that printed the fewest words (a number stands in a long listing
 *              by chance), then the earliest;
 *  - inferred: the command writes text (echo, printf, here-document) with a word that was neither given nor shown: it was concluded from what the agent had read,
 *              so every earlier command that succeeded and printed something is kept.
 *
 * The rule is applied to what it puts back as well, until nothing changes (a chain of pointers).
 */
import type { ObservedCommand } from './runbook.ts';

/**
 * @param observed the successful episode's commands with what they printed, in order
 * @param kept indices into `observed` that the minimiser kept
 * @returns the indices to keep, ascending: `kept` and the evidence for it
 */
export function keepEvidence(instruction: string, observed: readonly ObservedCommand[], kept: readonly number[]): number[] {
  const given = parts(instruction);
  const typed = observed.map((record) => parts(record.command));
  const outputs = observed.map((record) => `${record.stdout}\n${record.stderr}`);
  const shownParts = outputs.map(parts);
  const shownWords = outputs.map(words);
  const result = new Set(kept);
  const pending = [...kept];
  for (let index = pending.pop(); index !== undefined; index = pending.pop()) {
    for (const evidence of evidenceFor(index)) {
      if (result.has(evidence)) continue;
      result.add(evidence);
      pending.push(evidence);
    }
  }
  return [...result].sort((a, b) => a - b);

  function evidenceFor(index: number): number[] {
    const command = observed[index]?.command ?? '';
    const written = writtenText(command);
    const writtenParts = parts(written);
    const found: number[] = [];
    for (const word of words(command)) {
      const unknown = [...parts(word)].filter((part) => !given.has(part));
      if (unknown.length === 0) continue;
      // The word as a whole first: `docs/jade.txt` in a note is better evidence than `jade.txt` in a listing.
      const whole = clearestBefore(index, (i) => shownWords[i]?.has(word) ?? false);
      if (whole !== undefined) {
        if (!typedBefore(whole, unknown)) found.push(whole);
        continue;
      }
      for (const part of unknown) {
        const shown = clearestBefore(index, (i) => shownParts[i]?.has(part) ?? false);
        if (shown !== undefined) {
          if (!typedBefore(shown, [part])) found.push(shown);
        } else if (writtenParts.has(part) && !typed.slice(0, index).some((set) => set.has(part))) {
          found.push(...reads(index));
        }
      }
    }
    return found;
  }

  function clearestBefore(index: number, holds: (i: number) => boolean): number | undefined {
    let best: number | undefined;
    for (let i = 0; i < index; i++) {
      if (holds(i) && (best === undefined || (shownWords[i]?.size ?? 0) < (shownWords[best]?.size ?? 0))) best = i;
    }
    return best;
  }

  /** Whether the agent had typed these parts itself before or in the command that showed them: then the output only repeats the agent. */
  function typedBefore(shown: number, wanted: readonly string[]): boolean {
    return wanted.every((part) => typed.slice(0, shown + 1).some((set) => set.has(part)));
  }

  function reads(index: number): number[] {
    return observed.slice(0, index).flatMap((record, i) => (record.exitCode === 0 && record.stdout.trim() !== '' ? [i] : []));
  }
}

/** Words of a text: runs without white space, quotes and shell syntax. Options and shell variables are no words. */
function words(text: string): Set<string> {
  return new Set(text.split(/[\s'"`;|&<>()]+/).filter((word) => word !== '' && !word.startsWith('-') && !word.startsWith('$')));
}

/** Letters-and-digits parts of a text. One letter says nothing (`s/a/b/`, `$s`); one digit may be the answer. */
function parts(text: string): Set<string> {
  return new Set(text.match(/[\p{L}\p{N}_]+/gu)?.filter((part) => part.length > 1 || /\d/.test(part)) ?? []);
}

/** What the command writes out of its own text. */
function writtenText(command: string): string {
  const heredoc = /<<-?\s*['"]?(\w+)['"]?[^\n]*\n([\s\S]*?)\n\s*\1\b/.exec(command)?.[2] ?? '';
  const printed = [...command.matchAll(/\b(?:echo|printf)\s+((?:'[^']*'|"[^"]*"|[^|;&<>\n'"])+)/g)].map((match) => match[1] ?? '');
  return [heredoc, ...printed].join('\n');
}
