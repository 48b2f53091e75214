/**
 * Commands that leave a shell as it was: programs that only read and write files, with plain words. Most of an agent's are, and a session
 * need not keep anything of them, which would double the time of a short command.
 */
import type { ScriptNode } from 'just-bash';

/** No builtin here changes the shell; `printf -v` is looked for by itself. */
const programs = new Set(
  (
    '[ awk base64 basename cat chmod cmp column comm cp cut date diff dirname du echo egrep expr false fgrep file find fold grep head join ls ' +
    'md5sum mkdir mv nl paste printf pwd rev rm rmdir sed seq sha1sum sha256sum sort stat tac tail tee test touch tr true uniq wc'
  ).split(' '),
);
/** Node types without expansions: those may assign (`${x:=y}`, `$((x++))`) or read what a session keeps. */
const plain = new Set([
  'Script',
  'Statement',
  'Pipeline',
  'SimpleCommand',
  'Redirection',
  'HereDoc',
  'Word',
  'Literal',
  'SingleQuoted',
  'DoubleQuoted',
  'Escaped',
  'Glob',
]);

export const isStateless = (script: ScriptNode): boolean => stateless(script);

function stateless(node: unknown): boolean {
  if (typeof node !== 'object' || node === null) return true;
  if (Array.isArray(node)) return node.every(stateless);
  const { type, ...rest } = node as { readonly type?: string } & Record<string, unknown>;
  if (type !== undefined && !plain.has(type)) return false;
  if (rest['background'] === true || rest['deferredError'] !== undefined || rest['fdVariable'] !== undefined) return false;
  if (type === 'SimpleCommand') {
    const name = literal(rest['name']);
    if ((rest['assignments'] as readonly unknown[]).length > 0 || name === undefined || !programs.has(name)) return false;
    if (name === 'printf' && /^-|^$/.test(beginning((rest['args'] as readonly unknown[])[0]))) return false;
  }
  return Object.values(rest).every(stateless);
}

interface Part {
  readonly type: string;
  readonly value?: string;
}
function partsOf(word: unknown): readonly Part[] {
  return (word as { readonly parts?: readonly Part[] } | null | undefined)?.parts ?? [];
}

/** The text of a word of one literal. */
function literal(word: unknown): string | undefined {
  const [part, ...more] = partsOf(word);
  return part?.type === 'Literal' && more.length === 0 ? part.value : undefined;
}

/** What a word begins with, quoted or not; '' where that is not known. */
function beginning(word: unknown): string {
  const [part] = partsOf(word);
  return part?.value ?? partsOf(part)[0]?.value ?? '';
}
