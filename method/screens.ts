/**
 * Screens of RSR (docs/method.md, RSR 4): each looks at a finished runbook and gives a reason to drop it, or undefined. They see commands and
 * text only; what depends on execution (a step whose removal changes nothing) is the minimiser's work. Which command looks
 * at what is judged from its words: a screen errs on the side of dropping a runbook, never of keeping a tampering one for its convenience.
 */
import type { Runbook } from './runbook.ts';
import { runbookCommands } from './runbook.ts';

export type ScreenRule = 'leak' | 'tamper' | 'irrelevant' | 'duplicate' | 'contaminated';
export interface ScreenFinding {
  readonly rule: ScreenRule;
  readonly reason: string;
}

const clip = (text: string): string => (text.length > 60 ? `${text.slice(0, 60)}…` : text);
const squash = (text: string): string => text.replace(/\s+/g, ' ').trim();

// --- leak ---------------------------------------------------------------------------------------------------------

export interface LeakSources {
  /** Texts of the verifier's files. */
  readonly verifier: readonly string[];
  /** Texts of the reference solution's files. */
  readonly solution: readonly string[];
  readonly instruction: string;
  /** What the runbook's steps print when executed in order; step i was typed having seen the outputs before i. */
  readonly outputs: readonly string[];
  /** Commands the agent typed itself, in an environment without verifier and solution: equal to the solution by skill, not by leak. */
  readonly ownCommands: readonly string[];
}

/** Lines shorter than this are everybody's (`fi`, `exit 0`, `set -e`). */
const LEAK_LINE_CHARACTERS = 20;

/**
 * `leak`: the runbook contains a line of the verifier or of the reference solution, or writes a literal that the verifier compares with
 * and nothing before it showed. Own commands are exempt from the comparison with solution lines only: a lucky guess of the
 * answer is the agent's own, and must not be taught either.
 */
export function screenLeak(runbook: Runbook, sources: LeakSources): ScreenFinding | undefined {
  const shown = squash([sources.instruction, ...sources.outputs].join('\n'));
  const prose = runbook.steps.flatMap((step) => [step.purpose, step.expected]);
  const foreign = runbookCommands(runbook).filter((command) => !sources.ownCommands.includes(command));
  const searches = [
    { name: 'the verifier', lines: telling(sources.verifier), text: squash([...prose, ...runbookCommands(runbook)].join('\n')) },
    { name: 'the reference solution', lines: telling(sources.solution), text: squash([...prose, ...foreign].join('\n')) },
  ];
  for (const { name, lines, text } of searches) {
    const line = lines.find((candidate) => text.includes(candidate) && !shown.includes(candidate));
    if (line !== undefined) return { rule: 'leak', reason: `contains a line of ${name}: ${clip(line)}` };
  }
  const compared = comparedLiterals(sources.verifier);
  const known = new Set(tokens(sources.instruction));
  for (const [index, command] of runbookCommands(runbook).entries()) {
    const secret = writtenLiterals(command).find(
      (literal) => compared.has(literal) && tokens(literal).some((token) => /[\p{L}\p{N}]/u.test(token) && !known.has(token)),
    );
    if (secret !== undefined) {
      return { rule: 'leak', reason: `writes ${clip(secret)}, which the verifier expects and nothing before it shows` };
    }
    for (const token of tokens(sources.outputs[index] ?? '')) known.add(token);
  }
  return undefined;
}

function telling(texts: readonly string[]): string[] {
  const lines = texts.flatMap((text) => text.split('\n').map(squash));
  return lines.filter((line) => line.length >= LEAK_LINE_CHARACTERS && !line.startsWith('#'));
}

/** Quoted strings, their lines, and numbers in the verifier's files: what an answer may be compared with. */
function comparedLiterals(texts: readonly string[]): Set<string> {
  const literals = new Set<string>();
  for (const text of texts) {
    // printf '…' and regular expressions stand inside "$(…)" as well, so single quotes are looked at on their own.
    for (const match of text.matchAll(/'([^'\n]+)'/g)) addPieces(match[1] ?? '');
    for (const match of text.matchAll(/"([^"\n]+)"/g)) addPieces(match[1] ?? '');
    for (const match of text.matchAll(/(?<![\w.])\d[\d.]*(?![\w.])/g)) addPieces(match[0]);
  }
  return literals;

  function addPieces(literal: string): void {
    for (const piece of [literal, ...literal.split('\\n')]) {
      const bare = piece.trim().replace(/^\^|\$$/g, '');
      if (isTelling(bare)) literals.add(bare);
    }
  }
}

/** One letter is everybody's, one digit may be the answer. */
function isTelling(literal: string): boolean {
  return literal.length > 1 || /\d/.test(literal);
}

/** What a command writes out of its own text: arguments of echo and printf, lines of here-documents, replacements of sed. */
export function writtenLiterals(command: string): string[] {
  const literals: string[] = [];
  for (const match of command.matchAll(/\b(?:echo|printf)\s+((?:'[^']*'|"[^"]*"|[^|;&<>\n'"])+)/g)) {
    const words = [...(match[1] ?? '').matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map((word) => word[1] ?? word[2] ?? word[3] ?? '');
    literals.push(...words, words.join(' '));
  }
  const heredoc = /<<-?\s*['"]?(\w+)['"]?[^\n]*\n([\s\S]*?)\n\s*\1\b/.exec(command);
  if (heredoc) literals.push(...(heredoc[2] ?? '').split('\n'));
  if (/\bsed\b/.test(command)) for (const match of command.matchAll(/\bs([/|,#])[^\n]*?\1([^\n]*?)\1/g)) literals.push(match[2] ?? '');
  const pieces = literals.flatMap((literal) => [literal, ...literal.split(/\\n|[\s,;:=]+/)]);
  return [...new Set(pieces.map((piece) => piece.trim()).filter((piece) => isTelling(piece) && !piece.startsWith('-')))];
}

// --- tamper -------------------------------------------------------------------------------------------------------

const PROTECTED_DIRECTORIES = ['/tests', '/logs', '/solution'];
const REWARD_FILES = ['reward.txt', 'reward.json', 'ctrf.json'];

/** `tamper`: a command names, matches by a glob, or reaches from its working directory the tests, logs, solution or reward files. */
export function screenTamper(runbook: Runbook, workdir: string): ScreenFinding | undefined {
  for (const command of runbookCommands(runbook)) {
    let directory = workdir;
    let previous = '';
    // Quotes are dropped: '/te'sts and "/tests" reach the same file. `=`, `:` and brackets end a word as they do in options and scripts.
    for (const word of command.replace(/['"\\]/g, '').split(/[\s;|&<>()`=:,{}]+/)) {
      const path = resolvePath(directory, word);
      if (previous === 'cd') directory = path;
      previous = word;
      const area = PROTECTED_DIRECTORIES.find((root) => path === root || path.startsWith(`${root}/`) || globMatches(path, root));
      if (area !== undefined) return { rule: 'tamper', reason: `${clip(word)} reaches ${area} in: ${clip(command)}` };
      const file = REWARD_FILES.find((name) => path.endsWith(`/${name}`));
      if (file !== undefined) return { rule: 'tamper', reason: `names ${file} in: ${clip(command)}` };
    }
  }
  return undefined;
}

function resolvePath(directory: string, word: string): string {
  const parts: string[] = [];
  for (const part of (word.startsWith('/') ? word : `${directory}/${word}`).split('/')) {
    if (part === '..') parts.pop();
    else if (part !== '' && part !== '.') parts.push(part);
  }
  return `/${parts.join('/')}`;
}

/** Whether the first component of an absolute path is a glob that a protected directory matches (`/t*`, `/*`, `/[t]ests`). */
function globMatches(path: string, root: string): boolean {
  const first = path.split('/')[1] ?? '';
  if (!/[*?[]/.test(first)) return false;
  const source = first
    .replace(/[.+^$()|{}]/g, '\\$&')
    .replace(/\*/g, '.*')
    .replace(/\?/g, '.')
    .replace(/\[!/g, '[^');
  try {
    return new RegExp(`^${source}$`).test(root.slice(1));
  } catch {
    return true; // a pattern that cannot be read might match
  }
}

// --- irrelevant ---------------------------------------------------------------------------------------------------

/** Things an instruction names: text in backticks or quotes that looks like a name, and words with a path separator or a file extension. */
export function namedThings(instruction: string): string[] {
  const things: string[] = [];
  for (const match of instruction.matchAll(/`([^`\n]+)`|"([^"\n]+)"|'([^'\n]+)'/g)) things.push(match[1] ?? match[2] ?? match[3] ?? '');
  for (const word of instruction.split(/[\s`"'(),;:]+/)) {
    const bare = word.replace(/[.!?]+$/, '');
    if (/^[\w.~-]*\/[\w./-]+$/.test(bare) || /^[\w-]+(\.[A-Za-z][\w]{0,4})+$/.test(bare)) things.push(bare);
  }
  return [...new Set(things.map((thing) => thing.trim()).filter((thing) => thing.length >= 2 && thing.length <= 60))];
}

/** `irrelevant`: no command touches anything that the instruction names. An instruction that names nothing cannot be judged and passes. */
export function screenIrrelevant(runbook: Runbook, instruction: string): ScreenFinding | undefined {
  const things = namedThings(instruction);
  if (things.length === 0) return undefined;
  const text = runbookCommands(runbook).join('\n');
  const touched = things.some((thing) => text.includes(thing) || text.includes(thing.replace(/\/+$/, '').split('/').at(-1) ?? thing));
  if (touched) return undefined;
  return { rule: 'irrelevant', reason: `no command touches what the instruction names (${clip(things.join(', '))})` };
}

// --- duplicate ----------------------------------------------------------------------------------------------------

function tokens(text: string): string[] {
  return text.toLowerCase().match(/[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_'"]/gu) ?? [];
}

function ngrams(list: readonly string[], n: number): Set<string> {
  if (list.length === 0) return new Set();
  if (list.length < n) return new Set([list.join(' ')]);
  return new Set(list.slice(0, list.length - n + 1).map((_, i) => list.slice(i, i + n).join(' ')));
}

/** Jaccard similarity of the token bigrams of two runbooks' commands, in [0, 1]; case, white space and quotes do not count. */
export function runbookSimilarity(a: Runbook, b: Runbook): number {
  const [first, second] = [a, b].map((runbook) => ngrams(tokens(runbookCommands(runbook).join('\n')), 2)) as [Set<string>, Set<string>];
  const common = [...first].filter((gram) => second.has(gram)).length;
  const all = first.size + second.size - common;
  return all === 0 ? 1 : common / all;
}

/** `duplicate`: near-identical to a runbook already kept for the task. */
export function screenDuplicate(runbook: Runbook, kept: readonly Runbook[], threshold = 0.9): ScreenFinding | undefined {
  for (const [index, other] of kept.entries()) {
    const similarity = runbookSimilarity(runbook, other);
    if (similarity >= threshold) {
      return { rule: 'duplicate', reason: `similarity ${similarity.toFixed(2)} with kept runbook ${index + 1}, limit ${threshold}` };
    }
  }
  return undefined;
}

// --- contaminated -------------------------------------------------------------------------------------------------

export interface EvaluationText {
  /** `suite/task`, for the reason. */
  readonly task: string;
  readonly instruction: string;
  /** Texts of the task's reference solution. */
  readonly solution: readonly string[];
}
export interface ContaminationIndex {
  readonly n: number;
  readonly tasks: readonly { readonly task: string; readonly instruction: ReadonlySet<string>; readonly solution: ReadonlySet<string> }[];
}

/** n-grams of evaluation tasks; 13 words is the length that GPT-3's contamination study uses. Build once per run. */
export function contaminationIndex(texts: readonly EvaluationText[], n = 13): ContaminationIndex {
  return {
    n,
    tasks: texts.map(({ task, instruction, solution }) => ({
      task,
      instruction: ngrams(tokens(instruction), n),
      solution: ngrams(tokens(solution.join('\n')), n),
    })),
  };
}

/**
 * `contaminated`: at least `share` of the n-grams of the task's instruction or of the runbook's commands occur in one evaluation task.
 * The share keeps task families usable whose instances follow one template and differ in names and numbers.
 */
export function screenContaminated(
  runbook: Runbook,
  instruction: string,
  index: ContaminationIndex,
  share = 0.8,
): ScreenFinding | undefined {
  const ours = {
    instruction: ngrams(tokens(instruction), index.n),
    solution: ngrams(tokens(runbookCommands(runbook).join('\n')), index.n),
  };
  for (const task of index.tasks) {
    for (const part of ['instruction', 'solution'] as const) {
      const grams = [...ours[part]];
      const overlap = grams.length === 0 ? 0 : grams.filter((gram) => task[part].has(gram)).length / grams.length;
      if (overlap >= share) {
        const what = part === 'instruction' ? 'the instruction' : 'the commands';
        return { rule: 'contaminated', reason: `${Math.round(100 * overlap)} % of the ${index.n}-grams of ${what} occur in ${task.task}` };
      }
    }
  }
  return undefined;
}
