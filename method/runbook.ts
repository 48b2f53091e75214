/**
 * A runbook: the reusable procedure that RSR makes of a success (docs/method.md, RSR 3). Purpose and expectation of a step are derived
 * from the command and from what it printed, without a language model, so the same success always gives the same runbook.
 */

export interface RunbookStep {
  /** 1-based. */
  readonly number: number;
  readonly purpose: string;
  readonly command: string;
  /** What should be seen after the command. */
  readonly expected: string;
}
export interface Runbook {
  readonly taskId: string;
  readonly steps: readonly RunbookStep[];
}
/** A command with what it printed when it was last executed. */
export interface ObservedCommand {
  readonly command: string;
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number;
}

export function buildRunbook(taskId: string, observed: readonly ObservedCommand[]): Runbook {
  return {
    taskId,
    steps: observed.map((record, index) => ({
      number: index + 1,
      purpose: purposeOf(record.command),
      command: record.command,
      expected: expectationOf(record),
    })),
  };
}

export function runbookCommands(runbook: Runbook): string[] {
  return runbook.steps.map((step) => step.command);
}

/** Text for people and for a policy's context (guided re-runs): one numbered block a step. */
export function renderRunbook(runbook: Runbook): string {
  return runbook.steps
    .map((step) => `${step.number}. ${step.purpose}\n   $ ${step.command.replaceAll('\n', '\n   ')}\n   → ${step.expected}`)
    .join('\n');
}

/** What the leading program is for; the first that matches the command's first program wins. */
const PURPOSES: readonly (readonly [RegExp, string])[] = [
  [/^(ls|find|tree|stat|file|du|pwd)$/, 'Look at which files there are'],
  [/^(cat|head|tail|less|more|nl|xxd|od)$/, 'Read'],
  [/^(grep|egrep|rg|awk|cut|sort|uniq|wc|tr|jq|comm|diff|sed|join|paste)$/, 'Extract from'],
  [/^(mkdir|touch)$/, 'Create'],
  [/^(rm|rmdir|unlink)$/, 'Remove'],
  [/^(mv|cp|ln|install)$/, 'Move or copy'],
  [/^(chmod|chown)$/, 'Set permissions of'],
  [/^(echo|printf|tee)$/, 'Print'],
  [/^(tar|gzip|gunzip|zip|unzip)$/, 'Pack or unpack'],
];

function purposeOf(command: string): string {
  const written = writtenFiles(command);
  if (written.length > 0) return `Write ${written.join(', ')}`;
  const words = command.trim().split(/\s+/);
  const program = words[0] ?? '';
  if (program === 'sed' && words.includes('-i')) return `Edit ${operands(words)}`;
  const known = PURPOSES.find(([pattern]) => pattern.test(program));
  if (!known) return `Run ${program}`;
  const purpose = known[1];
  return purpose.startsWith('Look') ? purpose : `${purpose} ${operands(words)}`.trim();
}

/** Targets of `>` and `>>`, without file descriptors and /dev/null. Quoted text is taken out first, so that '>' in a pattern is none. */
export function writtenFiles(command: string): string[] {
  const bare = command.replace(/'[^']*'|"[^"]*"/g, (quoted) => (/^['"][\w./-]+['"]$/.test(quoted) ? quoted.slice(1, -1) : '_'));
  const targets = [...bare.matchAll(/(?<![0-9&])>>?\s*([^\s;|&<>()]+)/g)].map((match) => match[1] ?? '');
  return [...new Set(targets.filter((target) => target !== '' && target !== '/dev/null'))];
}

/** The last word that is neither an option nor shell syntax: for most tools the file worked on. */
function operands(words: readonly string[]): string {
  const candidates = words.slice(1).filter((word) => !word.startsWith('-') && !/[|<>;&$]/.test(word));
  return candidates.at(-1) ?? '';
}

const EXPECTED_CHARACTERS = 80;

function expectationOf(record: ObservedCommand): string {
  const output = record.stdout.trim() === '' ? record.stderr.trim() : record.stdout.trim();
  const lines = output.split('\n');
  const first = (lines[0] ?? '').trim();
  const shown = first.length > EXPECTED_CHARACTERS ? `${first.slice(0, EXPECTED_CHARACTERS)}…` : first;
  const code = record.exitCode === 0 ? '' : ` (exit code ${record.exitCode})`;
  if (shown === '') return `no output${code}`;
  return `${shown}${lines.length > 1 ? ` and ${lines.length - 1} more lines` : ''}${code}`;
}
