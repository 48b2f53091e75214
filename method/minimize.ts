/**
 * Delta debugging (ddmin, Zeller and Hildebrandt 2002) turned around: from a command list that passes verification to a short one that
 * still passes. The result is 1-minimal: without any single one of its commands it fails. `passes` executes in a fresh
 * environment, so it is slow and counted; the same list is never executed twice.
 */

export interface MinimizeResult {
  /** A shortest list found; undefined where the full list itself does not pass again. */
  readonly commands?: readonly string[];
  /** Calls of `passes`. */
  readonly executions: number;
  /** false: the bound was reached, `commands` passes but may not be 1-minimal. */
  readonly complete: boolean;
}

/**
 * @param commands the successful episode's commands, in order
 * @param passes executes a candidate in a fresh environment and verifies it; must not depend on earlier calls
 * @param maxExecutions bound on calls of `passes`, at least 1
 */
export async function minimizeCommands(
  commands: readonly string[],
  passes: (candidate: readonly string[]) => Promise<boolean>,
  maxExecutions: number,
): Promise<MinimizeResult> {
  if (!(maxExecutions >= 1)) throw new RangeError(`minimizeCommands: maxExecutions = ${maxExecutions}, expected at least 1`);
  const seen = new Map<string, boolean>();
  let executions = 0;
  /** undefined: the bound is reached. */
  const tried = async (candidate: readonly string[]): Promise<boolean | undefined> => {
    const key = JSON.stringify(candidate);
    const known = seen.get(key);
    if (known !== undefined) return known;
    if (executions >= maxExecutions) return undefined;
    executions += 1;
    const result = await passes(candidate);
    seen.set(key, result);
    return result;
  };

  if ((await tried(commands)) !== true) return { executions, complete: true };
  let current: readonly string[] = commands;
  let parts = 2;
  while (current.length > 0) {
    // One command is its own only part; its complement is the empty list.
    const chunks = split(current, Math.min(parts, current.length));
    let reduced: readonly string[] | undefined;
    // ddmin tries the parts first, then their complements; with two parts both are the same lists.
    const candidates = [...chunks, ...chunks.map((_, skip) => chunks.filter((_chunk, index) => index !== skip).flat())];
    for (const candidate of candidates) {
      if (candidate.length === current.length) continue;
      const result = await tried(candidate);
      if (result === undefined) return { commands: current, executions, complete: false };
      if (result) {
        reduced = candidate;
        break;
      }
    }
    if (reduced) {
      const wasPart = chunks.includes(reduced as string[]);
      current = reduced;
      parts = wasPart ? 2 : Math.max(2, parts - 1);
    } else if (parts >= current.length) {
      break;
    } else {
      parts = Math.min(current.length, parts * 2);
    }
  }
  return { commands: current, executions, complete: true };
}

/** Splits a list into `parts` runs whose lengths differ by at most one. */
function split(list: readonly string[], parts: number): string[][] {
  return Array.from({ length: parts }, (_, i) =>
    list.slice(Math.floor((i * list.length) / parts), Math.floor(((i + 1) * list.length) / parts)),
  );
}
