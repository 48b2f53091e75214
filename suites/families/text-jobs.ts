/** Jobs that read a file and write what a text tool makes of it: each is one easy task, and a building block of longer ones. */
import { content, exists, firstLine, has, lacks, lines, setting, settingGone, unchanged, written } from './checks.ts';
import type { Job, JobMaker, Scene } from './scene.ts';
import { text } from './scene.ts';
import { words } from './file-jobs.ts';
import { KEYS, LEVELS } from './vocabulary.ts';

/** Lines of a text that ends in a line end. */
export function split(content: string): string[] {
  return content.trimEnd().split('\n');
}
/** Byte order, as `sort` has it in the C locale. */
export function sorted(fileLines: readonly string[]): string[] {
  return [...fileLines].sort();
}

/** `command input > output`, with the mistakes that all such commands share. */
export function filter(
  scene: Scene,
  sentences: readonly string[],
  command: string,
  output: string,
  result: string,
  input: string,
  mistakes: readonly string[],
): Job {
  return {
    sentence: scene.pick(sentences),
    steps: [
      {
        right: [`${command} > ${output}`],
        wrong: [
          ...mistakes.map((mistake) => `${mistake} > ${output}`),
          command,
          `${command} > ${scene.slip(output)}`,
          `cp ${input} ${output}`,
        ],
      },
    ],
    checks: [...written(output, result), unchanged(input, scene.textOf(input))],
  };
}

export const sortFile: JobMaker = (scene): Job => {
  const [from, to] = [words(scene, 3, 5), scene.path('txt')];
  const result = text(sorted(split(scene.textOf(from))));
  return filter(
    scene,
    [`Sort ${from} into ${to}.`, `Sort the lines of ${from} and write them to ${to}.`],
    `sort ${from}`,
    to,
    result,
    from,
    [`sort -r ${from}`, `cat ${from}`, `sort ${scene.slip(from)}`],
  );
};

/** Lines with repetitions; the first word comes three times, not all next to each other. */
function repeated(scene: Scene): string {
  const [first, ...rest] = scene.words(scene.number(2, 3));
  return scene.file('txt', [first ?? '', ...scene.random.shuffle([first ?? '', first ?? '', ...rest, ...rest.slice(0, 1)])]);
}

export const sortUnique: JobMaker = (scene): Job => {
  const [from, to] = [repeated(scene), scene.path('txt')];
  const result = text(sorted([...new Set(split(scene.textOf(from)))]));
  return filter(
    scene,
    [`Sort ${from} without duplicates into ${to}.`, `Write the sorted unique lines of ${from} to ${to}.`],
    `sort -u ${from}`,
    to,
    result,
    from,
    [`sort ${from}`, `uniq ${from}`, `sort -u ${scene.slip(from)}`],
  );
};

export const countLines: JobMaker = (scene): Job => {
  const [from, to] = [words(scene, 2, 6), scene.path('txt')];
  const result = `${split(scene.textOf(from)).length}\n`;
  return filter(
    scene,
    [`Count the lines of ${from} into ${to}.`, `Write the number of lines of ${from} to ${to}.`],
    `wc -l < ${from}`,
    to,
    result,
    from,
    [`wc -l ${from}`, `wc -c < ${from}`, `wc -l < ${scene.slip(from)}`, `cat ${from}`],
  );
};

export function logFile(scene: Scene): string {
  const levels = scene.random.shuffle([...LEVELS, ...LEVELS, scene.pick(LEVELS)]).slice(0, scene.number(5, 6));
  return scene.file(
    'log',
    levels.map((level) => `${level} ${scene.filler()}`),
  );
}
/** A level that some, but not all lines of the log have. */
export function levelIn(scene: Scene, log: string): string {
  return scene.pick(LEVELS.filter((level) => scene.textOf(log).includes(level)));
}

export const filterLines: JobMaker = (scene): Job => {
  const [from, to] = [logFile(scene), scene.path('txt')];
  const level = levelIn(scene, from);
  const other = scene.pick(LEVELS.filter((candidate) => candidate !== level));
  const result = text(split(scene.textOf(from)).filter((line) => line.startsWith(level)));
  return filter(
    scene,
    [`Write the lines of ${from} with ${level} to ${to}.`, `Save all ${level} lines of ${from} to ${to}.`],
    `grep ${level} ${from}`,
    to,
    result,
    from,
    [`grep -v ${level} ${from}`, `grep ${other} ${from}`, `grep -c ${level} ${from}`, `cat ${from}`],
  );
};

export const dropLines: JobMaker = (scene): Job => {
  const [from, to] = [logFile(scene), scene.path('txt')];
  const level = levelIn(scene, from);
  const result = text(split(scene.textOf(from)).filter((line) => !line.startsWith(level)));
  return filter(
    scene,
    [`Write the lines of ${from} without ${level} to ${to}.`, `Save all lines of ${from} except ${level} lines to ${to}.`],
    `grep -v ${level} ${from}`,
    to,
    result,
    from,
    [`grep ${level} ${from}`, `grep -c ${level} ${from}`, `cat ${from}`],
  );
};

export const countMatches: JobMaker = (scene): Job => {
  const [from, to] = [logFile(scene), scene.path('txt')];
  const level = levelIn(scene, from);
  const result = `${split(scene.textOf(from)).filter((line) => line.startsWith(level)).length}\n`;
  return filter(
    scene,
    [`Count the ${level} lines of ${from} into ${to}.`, `Write the number of ${level} lines of ${from} to ${to}.`],
    `grep -c ${level} ${from}`,
    to,
    result,
    from,
    [`grep ${level} ${from}`, `wc -l < ${from}`, `grep -v ${level} ${from}`],
  );
};

function firstOrLast(tool: 'head' | 'tail', which: string): JobMaker {
  return (scene): Job => {
    const [from, to] = [words(scene, 5, 6), scene.path('txt')];
    const n = scene.number(2, 4);
    const all = split(scene.textOf(from));
    const result = text(tool === 'head' ? all.slice(0, n) : all.slice(-n));
    const other = tool === 'head' ? 'tail' : 'head';
    return filter(
      scene,
      [`Write the ${which} ${n} lines of ${from} to ${to}.`, `Save the ${which} ${n} lines of ${from} in ${to}.`],
      `${tool} -n ${n} ${from}`,
      to,
      result,
      from,
      [`${other} -n ${n} ${from}`, `${tool} -n ${n + 1} ${from}`, `${tool} -n ${n - 1} ${from}`, `${tool} ${from}`],
    );
  };
}
export const firstLines = firstOrLast('head', 'first');
export const lastLines = firstOrLast('tail', 'last');

/** Rows `name,number,name`; the last column repeats so that it can be filtered by. */
export function table(scene: Scene, folder?: string): string {
  const [red, blue] = [scene.word(), scene.word()];
  const groups = scene.random.shuffle([red, blue, scene.pick([red, blue]), scene.pick([red, blue])]);
  return scene.file(
    'csv',
    groups.map((group) => `${scene.filler()},${scene.number(1, 20)},${group}`),
    folder,
  );
}
export function columns(content: string): string[][] {
  return split(content).map((line) => line.split(','));
}

export const cutColumn: JobMaker = (scene): Job => {
  const [from, to] = [table(scene), scene.path('txt')];
  const n = scene.number(1, 3);
  const result = text(columns(scene.textOf(from)).map((row) => row[n - 1] ?? ''));
  return filter(
    scene,
    [`Write column ${n} of ${from} to ${to}.`, `Extract column ${n} of ${from} into ${to}.`],
    `cut -d, -f${n} ${from}`,
    to,
    result,
    from,
    [`cut -d, -f${(n % 3) + 1} ${from}`, `cut -f${n} ${from}`, `cut -d, -f${((n + 1) % 3) + 1} ${from}`, `cat ${from}`],
  );
};

export const sumColumn: JobMaker = (scene): Job => {
  // In /app itself: the command would be longer than 60 characters with a folder.
  const [from, to] = [table(scene, ''), scene.path('txt')];
  const sum = columns(scene.textOf(from)).reduce((total, row) => total + Number(row[1]), 0);
  const program = (column: number): string => `awk -F, '{s+=$${column}}END{print s}' ${from}`;
  return filter(
    scene,
    [`Sum column 2 of ${from} into ${to}.`, `Write the sum of column 2 of ${from} to ${to}.`],
    program(2),
    to,
    `${sum}\n`,
    from,
    [program(3), `awk '{s+=$2}END{print s}' ${from}`, `cut -d, -f2 ${from}`, `wc -l < ${from}`],
  );
};

export const upperCase: JobMaker = (scene): Job => {
  const [from, to] = [words(scene, 2, 4), scene.path('txt')];
  return filter(
    scene,
    [`Write ${from} in upper case to ${to}.`, `Convert ${from} to upper case into ${to}.`],
    `tr a-z A-Z < ${from}`,
    to,
    scene.textOf(from).toUpperCase(),
    from,
    [`tr A-Z a-z < ${from}`, `cat ${from}`, `tr a-z A-Z ${from}`],
  );
};

export const replaceWord: JobMaker = (scene): Job => {
  const [old, fresh, other] = [scene.word(), scene.word(), scene.filler()];
  const path = scene.file('txt', scene.random.shuffle([`${old} ${other} ${old}`, `${old} ${scene.filler()}`, scene.filler()]));
  const after = scene.textOf(path).replaceAll(old, fresh);
  return {
    sentence: scene.pick([`Replace every ${old} with ${fresh} in ${path}.`, `In ${path} change all ${old} to ${fresh}.`]),
    steps: [
      {
        right: [`sed -i 's/${old}/${fresh}/g' ${path}`],
        wrong: [
          `sed -i 's/${old}/${fresh}/' ${path}`,
          `sed 's/${old}/${fresh}/g' ${path}`,
          `sed -i 's/${fresh}/${old}/g' ${path}`,
          `sed -i 's/${old}/${fresh}/g' ${scene.slip(path)}`,
        ],
      },
    ],
    checks: [content(path, after), lacks(path, old), has(path, fresh)],
  };
};

export const deleteLine: JobMaker = (scene): Job => {
  const path = words(scene, 3, 5);
  const all = split(scene.textOf(path));
  const word = scene.pick(all);
  const after = text(all.filter((line) => line !== word));
  return {
    sentence: scene.pick([`Delete the line ${word} from ${path}.`, `Remove the line ${word} in ${path}.`]),
    steps: [
      {
        right: [`sed -i '/${word}/d' ${path}`],
        wrong: [
          `sed '/${word}/d' ${path}`,
          `sed -i '/${word}/d' ${scene.slip(path)}`,
          `rm ${path}`,
          `sed -i '/${scene.otherNoun(word)}/d' ${path}`,
        ],
      },
    ],
    checks: [content(path, after), lacks(path, word), lines(path, after)],
  };
};

/** Three lines key=value. */
export function settings(scene: Scene): { path: string; key: string; value: number } {
  const keys = scene.random.shuffle(KEYS).slice(0, 3);
  const values = keys.map(() => scene.number(1, 20));
  const path = scene.file(
    'cfg',
    keys.map((key, i) => `${key}=${values[i]}`),
  );
  const chosen = scene.random.int(3);
  return { path, key: keys[chosen] ?? '', value: values[chosen] ?? 0 };
}
export function withValue(content: string, key: string, value: number): string {
  return content.replace(new RegExp(`^${key}=.*$`, 'm'), `${key}=${value}`);
}
/** A number from 1 to 20 other than `value`. */
export function otherNumber(scene: Scene, value: number): number {
  return ((value - 1 + scene.number(1, 19)) % 20) + 1;
}

export const setKey: JobMaker = (scene): Job => {
  const { path, key, value } = settings(scene);
  const next = otherNumber(scene, value);
  const after = withValue(scene.textOf(path), key, next);
  return {
    sentence: scene.pick([`Set ${key} to ${next} in ${path}.`, `In ${path} set ${key} to ${next}.`]),
    steps: [
      {
        right: [`sed -i 's/${key}=.*/${key}=${next}/' ${path}`],
        wrong: [
          `echo ${key}=${next} >> ${path}`,
          `echo ${key}=${next} > ${path}`,
          `sed -i 's/${key}=.*/${key}=${otherNumber(scene, next)}/' ${path}`,
          `sed -i 's/${key}/${next}/' ${path}`,
          `sed 's/${key}=.*/${key}=${next}/' ${path}`,
        ],
      },
    ],
    checks: [content(path, after), setting(path, key, next), settingGone(path, key, value)],
  };
};

export const largestNumber: JobMaker = (scene): Job => {
  const numbers = scene.random.shuffle(Array.from({ length: 20 }, (_, i) => i + 1)).slice(0, scene.number(4, 6));
  const [from, to] = [scene.file('txt', numbers.map(String)), scene.path('txt')];
  return {
    ...filter(
      scene,
      [`Write the numbers of ${from}, largest first, to ${to}.`, `Sort the numbers of ${from} from large to small into ${to}.`],
      `sort -rn ${from}`,
      to,
      text([...numbers].sort((a, b) => b - a).map(String)),
      from,
      [`sort -n ${from}`, `sort ${from}`, `sort -r ${from}`],
    ),
    checks: [
      content(to, text([...numbers].sort((a, b) => b - a).map(String))),
      exists(to),
      firstLine(to, String(Math.max(...numbers))),
      unchanged(from, scene.textOf(from)),
    ],
  };
};
