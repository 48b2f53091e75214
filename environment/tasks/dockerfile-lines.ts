/** What every reader of Dockerfiles starts with: instructions as single lines, and what can be said of a Dockerfile that has to be built. */
import { posix } from 'node:path';
import { TaskError } from '../errors.ts';

export interface DockerfileLine {
  readonly line: string;
  /** Where it starts; the first is 1. */
  readonly number: number;
}

/** Lines with `\` continuations joined; comments, empty lines and the bodies of here-documents removed. */
export function logicalLines(text: string): DockerfileLine[] {
  const result: DockerfileLine[] = [];
  let open: { line: string; number: number } | undefined;
  let documents: { readonly end: string; readonly tabs: boolean }[] = [];
  const lines = text.split(/\r?\n/);
  lines.forEach((raw, index) => {
    const [document] = documents;
    if (document) {
      if ((document.tabs ? raw.replace(/^\t+/, '') : raw) === document.end) documents = documents.slice(1);
      return;
    }
    if (/^\s*(#.*)?$/.test(raw)) return;
    const continued = /\\\s*$/.test(raw);
    const part = continued ? raw.replace(/\\\s*$/, '') : raw;
    open ??= { line: '', number: index + 1 };
    open.line += open.line === '' ? part.trimStart() : part;
    if (continued) return;
    result.push(open);
    // Only what ends somewhere is a here-document: a shift of bits looks alike.
    const ends = (end: string): boolean => lines.slice(index + 1).some((line) => line.trimStart() === end);
    if (/^(RUN|COPY|ADD)\s/i.test(open.line))
      documents = [...open.line.matchAll(/(?<!<)<<(-?)(["']?)([A-Za-z_]\w*)\2/g)]
        .map(([, dash, , end = '']) => ({ end, tabs: dash === '-' }))
        .filter(({ end }) => ends(end));
    open = undefined;
  });
  if (open) result.push(open);
  return result;
}

export interface DockerfileOutline {
  /** What the last stage starts from, through the stages before it. Variables without a default stay in it. */
  readonly image: string;
  /** The last stage's WORKDIR; undefined where it sets none or one that only the build knows. */
  readonly workdir: string | undefined;
}

interface Stage {
  readonly image: string;
  workdir: string | undefined;
  readonly variables: Map<string, string>;
}

/** @throws TaskError where there is no FROM, or an instruction before it */
export function outlineDockerfile(text: string, place: string): DockerfileOutline {
  const defaults = new Map<string, string>();
  const stages = new Map<string, Stage>();
  let stage: Stage | undefined;
  const expand = (value: string, variables: ReadonlyMap<string, string>): string =>
    value.replace(
      /\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))/g,
      (found, braced?: string, fallback?: string, bare?: string) => variables.get(braced ?? bare ?? '') ?? fallback ?? found,
    );
  for (const { line, number } of logicalLines(text)) {
    const [, word = '', rest = ''] = /^(\S+)\s*([\s\S]*)$/.exec(line) ?? [];
    const instruction = word.toUpperCase();
    if (instruction === 'FROM') {
      const [, name = '', , alias] = /^(?:--\S+\s+)*(\S+)(\s+AS\s+(\S+))?/i.exec(rest) ?? [];
      const image = expand(name, defaults);
      const base = stages.get(image.toLowerCase());
      stage = { image: base?.image ?? image, workdir: base?.workdir, variables: new Map(base?.variables) };
      if (alias !== undefined) stages.set(alias.toLowerCase(), stage);
      continue;
    }
    if (!stage && instruction !== 'ARG') throw new TaskError(`${place}:${number}: ${instruction} before FROM; expected FROM first`);
    if (instruction === 'ARG' || instruction === 'ENV') {
      for (const [, name = '', quoted, bare] of rest.matchAll(/(\w+)=(?:["']([^"']*)["']|(\S*))/g)) {
        const variables = stage?.variables ?? defaults;
        variables.set(name, expand(quoted ?? bare ?? '', variables));
      }
      // A name alone takes the value that stands before the first FROM.
      const known = instruction === 'ARG' ? defaults.get(rest.trim()) : undefined;
      if (stage && known !== undefined) stage.variables.set(rest.trim(), known);
    } else if (stage && instruction === 'WORKDIR') {
      const path = expand(rest.trim().replace(/^(["'])(.*)\1$/, '$2'), stage.variables);
      const known = !path.includes('$') && (path.startsWith('/') || stage.workdir !== undefined);
      stage.workdir = known ? posix.resolve(stage.workdir ?? '/', path) : undefined;
    }
  }
  if (!stage) throw new TaskError(`${place}: no FROM; expected FROM IMAGE`);
  return { image: stage.image, workdir: stage.workdir };
}
