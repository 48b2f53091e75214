/**
 * The conditions that hidden checks are made of. Only what bash with busybox and just-bash share; contents hold letters,
 * digits and `,=.:/-` alone, so that single quotes and printf need no escaping beyond line ends.
 */
import type { Check } from '../family.ts';

/** 'docs/alpha.txt' → 'docs-alpha-txt', for the names of checks. */
function label(path: string): string {
  return path.replaceAll(/[^a-z0-9]+/g, '-');
}
function printed(text: string): string {
  return `"$(printf '${text.trimEnd().replaceAll('\n', '\\n')}')"`;
}
/** Number of lines of a text that ends in a line end. */
export function lineCount(text: string): number {
  return text.split('\n').length - 1;
}

/** The file holds exactly `text`; trailing line ends do not count. */
export function content(path: string, text: string): Check {
  return { name: `content-${label(path)}`, shell: `[ "$(cat ${path})" = ${printed(text)} ]` };
}
export function exists(path: string): Check {
  return { name: `exists-${label(path)}`, shell: `[ -f ${path} ]` };
}
export function gone(path: string): Check {
  return { name: `gone-${label(path)}`, shell: `[ ! -e ${path} ]` };
}
/** Number of lines, for partial credit where the content is not quite right. */
export function lines(path: string, text: string): Check {
  return { name: `lines-${label(path)}`, shell: `[ "$(wc -l < ${path})" -eq ${lineCount(text)} ]` };
}
export function firstLine(path: string, text: string): Check {
  return { name: `first-line-${label(path)}`, shell: `[ "$(head -n 1 ${path})" = '${text.split('\n')[0]}' ]` };
}
export function lastLine(path: string, text: string): Check {
  return { name: `last-line-${label(path)}`, shell: `[ "$(tail -n 1 ${path})" = '${text.trimEnd().split('\n').at(-1)}' ]` };
}
/** The file is there and not empty. */
export function filled(path: string): Check {
  return { name: `filled-${label(path)}`, shell: `[ -s ${path} ]` };
}
export function has(path: string, word: string): Check {
  return { name: `has-${word}-${label(path)}`, shell: `grep -q '${word}' ${path}` };
}
export function lacks(path: string, word: string): Check {
  return { name: `lacks-${word}-${label(path)}`, shell: `[ -f ${path} ] && ! grep -q '${word}' ${path}` };
}
/** The configuration file sets the key to this value. */
export function setting(path: string, key: string, value: number): Check {
  return { name: `set-${key}-${label(path)}`, shell: `grep -q '^${key}=${value}$' ${path}` };
}
/** The configuration file no longer has the key's old value. */
export function settingGone(path: string, key: string, value: number): Check {
  return { name: `old-${key}-${label(path)}`, shell: `[ -f ${path} ] && ! grep -q '^${key}=${value}$' ${path}` };
}
export function executable(path: string): Check {
  return { name: `executable-${label(path)}`, shell: `[ -x ${path} ]` };
}
/** Guard: an input that the task gives no reason to touch. */
export function unchanged(path: string, text: string): Check {
  return { name: `unchanged-${label(path)}`, shell: `[ "$(cat ${path})" = ${printed(text)} ]`, guard: true };
}
/** Guard: a file that must survive. */
export function kept(path: string): Check {
  return { name: `kept-${label(path)}`, shell: `[ -f ${path} ]`, guard: true };
}
/** A new file with exactly this content, in three steps of partial credit. */
export function written(path: string, text: string): Check[] {
  return [content(path, text), exists(path), filled(path)];
}
