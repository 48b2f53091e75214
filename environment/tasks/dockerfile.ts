/**
 * Reads the Dockerfiles that need no build: FROM, COPY, ENV, WORKDIR and RUN, one stage. Both sandboxes start such an environment from
 * the parsed form. Whatever else stands there is refused by name, and the environment is one to be built: an instruction that is
 * silently skipped would give the agent another environment than the task's author meant.
 *
 * One liberty: files are copied before the RUN lines run, whatever their order in the file.
 */
import { posix } from 'node:path';
import { logicalLines } from './dockerfile-lines.ts';
import { TaskError } from '../errors.ts';
import type { FileEntry, FileTree } from '../types.ts';

export interface ParsedDockerfile {
  readonly image: string;
  readonly env: Record<string, string>;
  readonly workdir: string | undefined;
  readonly files: FileTree;
  readonly run: readonly string[];
}

/**
 * @param text the Dockerfile
 * @param context files of the build context, by path relative to it
 * @param place file name for error messages
 * @throws TaskError naming the line and the instruction
 */
export function parseDockerfile(text: string, context: FileTree, place: string): ParsedDockerfile {
  let image: string | undefined;
  let workdir: string | undefined;
  const env: Record<string, string> = {};
  const files: FileTree = new Map();
  const run: { command: string; workdir: string }[] = [];
  for (const { line, number } of logicalLines(text)) {
    const [, instruction = '', rest = ''] = /^(\S+)\s*([\s\S]*)$/.exec(line) ?? [];
    const refuse = (reason: string): never => {
      throw new TaskError(`${place}:${number}: ${reason}`);
    };
    const expand = (value: string): string =>
      value.replace(
        /\$(?:\{(\w+)([^}]*)\}|(\w+))/g,
        (found, braced?: string, operator?: string, bare?: string) =>
          (operator ? undefined : env[braced ?? bare ?? '']) ?? refuse(`${found}; expected variables that ENV sets above`),
      );
    if (image === undefined && instruction.toUpperCase() !== 'FROM') refuse(`${instruction} before FROM; expected FROM first`);
    switch (instruction.toUpperCase()) {
      case 'FROM': {
        if (image !== undefined) refuse('a second FROM; expected one stage');
        const [, name] = /^([^\s$-]\S*)(?:\s+AS\s+\S+)?$/i.exec(rest) ?? [];
        image = name ?? refuse(`FROM ${rest}; expected FROM IMAGE without flags and variables`);
        break;
      }
      case 'ENV':
        for (const [key, value] of envPairs(rest)) env[key] = expand(value);
        break;
      case 'WORKDIR':
        workdir = posix.resolve(workdir ?? '/', expand(rest.trim()));
        break;
      case 'RUN':
        if (/^\[|^--|<<-?\s*['"]?\w/.test(rest))
          refuse(`RUN ${rest.slice(0, 40)}; expected the shell form without flags and here-documents`);
        run.push({ command: rest, workdir: workdir ?? '/' });
        break;
      case 'COPY':
        copy(rest, expand, { context, files, workdir: workdir ?? '/', refuse });
        break;
      default:
        refuse(`instruction ${instruction.toUpperCase()} is not supported; expected FROM, COPY, ENV, WORKDIR or RUN`);
    }
  }
  if (image === undefined) throw new TaskError(`${place}: no FROM; expected FROM IMAGE`);
  return { image, env, workdir, files, run: run.map((step) => `cd ${quote(step.workdir)} && { ${step.command}\n}`) };
}

interface CopyTarget {
  readonly context: FileTree;
  readonly files: FileTree;
  readonly workdir: string;
  readonly refuse: (reason: string) => never;
}

function copy(rest: string, expand: (value: string) => string, target: CopyTarget): void {
  const { refuse } = target;
  let mode: number | undefined;
  let text = rest;
  for (let flag = /^--(\S+)\s+/.exec(text); flag; flag = /^--(\S+)\s+/.exec(text)) {
    const [, octal] = /^chmod=([0-7]{3,4})$/.exec(flag[1] ?? '') ?? [];
    if (octal === undefined && flag[1] !== 'chown=root' && flag[1] !== 'chown=root:root')
      refuse(`COPY --${flag[1]}; expected --chmod=OCTAL or --chown=root`);
    if (octal !== undefined) mode = Number.parseInt(octal, 8);
    text = text.slice(flag[0].length);
  }
  const words = (text.startsWith('[') ? jsonWords(text, refuse) : text.trim().split(/\s+/)).map(expand);
  const destination = words.pop();
  if (destination === undefined || words.length === 0) refuse(`COPY ${rest}; expected COPY SOURCE... DESTINATION`);
  const base = posix.resolve(target.workdir, destination as string);
  const intoDirectory = words.length > 1 || /(^|\/)\.{0,2}$/.test(destination as string);
  for (const word of words) {
    if (/[*?[]/.test(word)) refuse(`COPY ${word}; expected a file or directory without wildcards`);
    const source = posix.normalize(`/${word}`).replace(/\/$/, '').slice(1);
    const put = (path: string, entry: FileEntry): void => {
      target.files.set(path.slice(1), mode === undefined ? entry : { data: entry.data, mode });
    };
    const file = target.context.get(source);
    if (file) {
      put(intoDirectory ? posix.join(base, posix.basename(source)) : base, file);
      continue;
    }
    const prefix = source === '' ? '' : `${source}/`;
    const below = [...target.context].filter(([path]) => path.startsWith(prefix) && path !== 'Dockerfile');
    if (below.length === 0) refuse(`COPY ${word}: no such file or directory in environment/`);
    for (const [path, entry] of below) put(posix.join(base, path.slice(prefix.length)), entry);
  }
}

/** `K=V K2="V 2"` or the old form `K V`. */
function envPairs(rest: string): [string, string][] {
  if (!/^\w+=/.test(rest)) {
    const [, key = '', value = ''] = /^(\S+)\s+([\s\S]*)$/.exec(rest) ?? [];
    return [[key, value.trim()]];
  }
  return [...rest.matchAll(/(\w+)=("(?:[^"\\]|\\.)*"|'[^']*'|(?:\\.|\S)*)/g)].map(([, key = '', value = '']) => [
    key,
    value.startsWith("'") ? value.slice(1, -1) : value.replace(/^"([\s\S]*)"$/, '$1').replace(/\\(.)/g, '$1'),
  ]);
}

function jsonWords(text: string, refuse: (reason: string) => never): string[] {
  try {
    const words: unknown = JSON.parse(text);
    if (Array.isArray(words) && words.every((word) => typeof word === 'string')) return words;
  } catch {
    // falls through to the refusal below
  }
  return refuse(`COPY ${text}; expected a JSON list of strings`);
}

/** Single-quotes a word for the shell. */
export function quote(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}
