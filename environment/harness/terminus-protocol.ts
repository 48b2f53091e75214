/**
 * The replies of the harness `terminus`: Terminus-2's JSON protocol. What is accepted, repaired, warned of and refused is as in Harbor's
 * parser (compared in terminus-protocol.test.ts); the wording is ours. Pure: nothing is executed here.
 *
 *     { "analysis": text, "plan": text, "commands": [{ "keystrokes": text, "duration": seconds }], "task_complete": boolean }
 */
export interface TerminusCommand {
  readonly keystrokes: string;
  /** Seconds to wait after typing, as asked for. */
  readonly duration: number;
}
export interface TerminusReply {
  /** Empty where there is an error. */
  readonly commands: readonly TerminusCommand[];
  readonly complete: boolean;
  readonly analysis: string;
  readonly plan: string;
  /** Nothing of the reply may be executed. */
  readonly error?: string;
  readonly warnings: readonly string[];
}

const DEFAULT_DURATION = 1;
/** A reply that says that the task is complete. */
export const completeReply = JSON.stringify({ analysis: '', plan: '', commands: [], task_complete: true });

/** Reads a reply; one that cannot be read is repaired where that is safe, with a warning. */
export function parseTerminusReply(text: string): TerminusReply {
  const first = parse(text);
  if (first.error === undefined) return first;
  for (const [repair, repaired] of repairs(text, first)) {
    const second = repaired === undefined ? undefined : parse(repaired);
    if (second && second.error === undefined) return { ...second, warnings: [`${repair}; please send proper JSON`, ...second.warnings] };
  }
  return first;
}

type Parsed = TerminusReply & { readonly unreadable?: true };

function parse(text: string): Parsed {
  const warnings: string[] = [];
  const refused = (error: string, more: Partial<Parsed> = {}): Parsed => ({
    ...{ commands: [], complete: false, analysis: '', plan: '', error, warnings },
    ...more,
  });
  const span = firstObject(text);
  if (!span) return refused('The response holds no complete JSON object', { unreadable: true });
  const json = text.slice(...span);
  if (text.slice(0, span[0]).trim() !== '') warnings.push('There is text before the JSON object');
  if (text.slice(span[1]).trim() !== '') warnings.push('There is text after the JSON object');
  let fields: Record<string, unknown>;
  try {
    fields = JSON.parse(json) as Record<string, unknown>;
  } catch (error) {
    return refused(`The JSON is not valid: ${(error as Error).message}`, { unreadable: true });
  }
  const missing = ['analysis', 'plan', 'commands'].filter((name) => !(name in fields));
  if (missing.length > 0) return refused(`Required fields are missing: ${missing.join(', ')}`);
  for (const name of ['analysis', 'plan']) if (typeof fields[name] !== 'string') warnings.push(`"${name}" should be a string`);
  if (!Array.isArray(fields.commands)) return refused('"commands" has to be an array');
  warnings.push(...orderWarnings(json));
  const { task_complete: claim } = fields;
  if (claim !== undefined && claim !== null && typeof claim !== 'boolean' && typeof claim !== 'string')
    warnings.push('"task_complete" should be a boolean');
  const said = {
    complete: means(claim),
    analysis: typeof fields.analysis === 'string' ? fields.analysis : '',
    plan: typeof fields.plan === 'string' ? fields.plan : '',
  };
  const commands = readCommands(fields.commands, warnings);
  if (Array.isArray(commands)) return { commands, ...said, warnings };
  // Whoever is done has nothing left to type: what is wrong with the commands is no reason to go on.
  if (!said.complete) return refused(commands.error, said);
  warnings.push(commands.error);
  return { commands: [], ...said, warnings };
}

function readCommands(entries: readonly unknown[], warnings: string[]): TerminusCommand[] | { readonly error: string } {
  const commands: TerminusCommand[] = [];
  for (const [index, entry] of entries.entries()) {
    const place = `Command ${index + 1}`;
    if (typeof entry !== 'object' || entry === null || Array.isArray(entry)) return { error: `${place} has to be an object` };
    const { keystrokes, duration, ...unknown } = entry as Record<string, unknown>;
    if (keystrokes === undefined) return { error: `${place} lacks the required field "keystrokes"` };
    if (typeof keystrokes !== 'string') return { error: `"keystrokes" of ${place.toLowerCase()} has to be a string` };
    // Python takes true for the number 1.
    const seconds = typeof duration === 'boolean' ? Number(duration) : duration;
    if (duration === undefined) warnings.push(`${place} has no duration; ${DEFAULT_DURATION} second is taken`);
    else if (typeof seconds !== 'number') warnings.push(`${place} has a duration that is no number; ${DEFAULT_DURATION} second is taken`);
    const names = Object.keys(unknown);
    if (names.length > 0) warnings.push(`${place} has unknown fields: ${names.join(', ')}`);
    if (index < entries.length - 1 && keystrokes !== '' && !keystrokes.endsWith('\n'))
      warnings.push(`${place} does not end with a newline although another one follows: both will stand on one line`);
    commands.push({ keystrokes, duration: typeof seconds === 'number' ? seconds : DEFAULT_DURATION });
  }
  return commands;
}

/** Whether a value says yes, as Python sees it. */
function means(claim: unknown): boolean {
  if (typeof claim === 'string') return ['true', '1', 'yes'].includes(claim.toLowerCase());
  if (Array.isArray(claim)) return claim.length > 0;
  if (typeof claim === 'object' && claim !== null) return Object.keys(claim).length > 0;
  return Boolean(claim);
}

/** Begin and end of the first `{…}` with balanced braces outside of strings. */
function firstObject(text: string): [number, number] | undefined {
  let [start, depth] = [-1, 0];
  let inString = false;
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (character === '\\') at++;
    else if (character === '"') inString = !inString;
    else if (inString) continue;
    else if (character === '{') {
      if (depth === 0) start = at;
      depth++;
    } else if (character === '}') {
      depth--;
      if (depth === 0 && start !== -1) return [start, at + 1];
    }
  }
  return undefined;
}

/** Analysis, plan, commands: thinking comes before typing. */
function orderWarnings(json: string): string[] {
  const found = ['analysis', 'plan', 'commands'].map((name) => ({ name, at: json.search(new RegExp(`"${name}"\\s*:`)) }));
  const present = found.filter(({ at }) => at !== -1);
  const names = [...present].sort((a, b) => a.at - b.at).map(({ name }) => name);
  const expected = present.map(({ name }) => name);
  return names.join() === expected.join() ? [] : [`The fields come as ${names.join(', ')}; expected ${expected.join(', ')}`];
}

/** Other readings of a reply, tried in order. A string that was cut off is not completed: what it would have said is not known. */
function* repairs(text: string, { unreadable }: Parsed): Generator<[string, string | undefined]> {
  const count = (brace: string): number => text.split(brace).length - 1;
  const open = count('{') - count('}');
  if (unreadable && open > 0) yield ['Missing closing braces were added', text + '}'.repeat(open)];
  yield ['The JSON was taken out of other content', firstReadable(text)];
}

/** The first flat or once nested `{…}` that is valid JSON, as in `<think>{x}</think>{…}`. */
function firstReadable(text: string): string | undefined {
  for (const [candidate] of text.matchAll(/\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}/g)) {
    try {
      JSON.parse(candidate);
      return candidate;
    } catch {
      // The next one may be.
    }
  }
  return undefined;
}
