/** Jobs whose command depends on what a file says: the agent has to look before it acts. */
import { content, exists, gone, has, lastLine, lines, setting, settingGone, unchanged, written } from './checks.ts';
import { words } from './file-jobs.ts';
import type { Job, JobMaker, Scene } from './scene.ts';
import { text } from './scene.ts';
import { otherNumber, settings, split, withValue } from './text-jobs.ts';

/** A text file that holds just this line. */
export function note(scene: Scene, line: string): string {
  return scene.file('txt', [line]);
}

export const copyNamed: JobMaker = (scene): Job => {
  const from = words(scene);
  const decoy = words(scene);
  const [pointer, to] = [note(scene, from), scene.path('txt')];
  return {
    sentence: scene.pick([`The file ${pointer} names a file. Copy that file to ${to}.`, `Copy the file that ${pointer} names to ${to}.`]),
    steps: [
      {
        looks: [`cat ${pointer}`],
        right: [`cp ${from} ${to}`],
        wrong: [`cp ${pointer} ${to}`, `cp ${decoy} ${to}`, `cp ${from} ${scene.slip(to)}`, `mv ${from} ${to}`],
      },
    ],
    checks: [
      content(to, scene.textOf(from)),
      exists(to),
      has(to, split(scene.textOf(from))[0] ?? ''),
      unchanged(pointer, scene.textOf(pointer)),
    ],
  };
};

export const appendNamed: JobMaker = (scene): Job => {
  const target = words(scene);
  const word = scene.word();
  const pointer = note(scene, target);
  const after = scene.textOf(target) + text([word]);
  return {
    sentence: scene.pick([
      `The file ${pointer} names a file. Append the line ${word} to that file.`,
      `Append the line ${word} to the file that ${pointer} names.`,
    ]),
    steps: [
      {
        looks: [`cat ${pointer}`],
        right: [`echo ${word} >> ${target}`],
        wrong: [`echo ${word} >> ${pointer}`, `echo ${word} > ${target}`, `echo ${word} >> ${scene.slip(target)}`],
      },
    ],
    checks: [content(target, after), lastLine(target, after), lines(target, after), unchanged(pointer, scene.textOf(pointer))],
  };
};

export const createNamed: JobMaker = (scene): Job => {
  const path = scene.path('txt');
  const word = scene.word();
  const pointer = note(scene, path);
  return {
    sentence: scene.pick([
      `The file ${pointer} holds a file name. Create that file with the text ${word}.`,
      `Create the file whose name is in ${pointer} with the text ${word}.`,
    ]),
    steps: [
      {
        looks: [`cat ${pointer}`],
        right: [`echo ${word} > ${path}`],
        wrong: [`echo ${word} > ${pointer}`, `echo ${word} > ${scene.slip(path)}`, `touch ${path}`, `echo ${word} >> ${pointer}`],
      },
    ],
    checks: [...written(path, `${word}\n`), unchanged(pointer, scene.textOf(pointer))],
  };
};

export const setFromNote: JobMaker = (scene): Job => {
  const { path, key, value } = settings(scene);
  const next = otherNumber(scene, value);
  const source = note(scene, String(next));
  const after = withValue(scene.textOf(path), key, next);
  return {
    sentence: scene.pick([
      `Set ${key} in ${path} to the number in ${source}.`,
      `The file ${source} holds a number. Set ${key} to it in ${path}.`,
    ]),
    steps: [
      {
        looks: [`cat ${source}`],
        right: [`sed -i 's/${key}=.*/${key}=${next}/' ${path}`],
        wrong: [
          `echo ${key}=${next} >> ${path}`,
          `sed -i 's/${key}=.*/${key}=${otherNumber(scene, next)}/' ${path}`,
          `sed 's/${key}=.*/${key}=${next}/' ${path}`,
          `cp ${source} ${path}`,
        ],
      },
    ],
    checks: [content(path, after), setting(path, key, next), settingGone(path, key, value), unchanged(source, scene.textOf(source))],
  };
};

export const findAndCopy: JobMaker = (scene): Job => {
  const folder = scene.pick(['docs', 'data', 'notes']);
  const word = scene.word();
  const [decoy] = [scene.file('txt', scene.words(2), folder)];
  const hit = scene.file('txt', scene.random.shuffle([word, scene.filler()]), folder);
  scene.file('txt', scene.words(2), folder);
  const to = scene.path('txt');
  return {
    sentence: scene.pick([
      `Find the file in ${folder} that contains ${word} and copy it to ${to}.`,
      `One file in ${folder} contains ${word}. Copy it to ${to}.`,
    ]),
    steps: [
      {
        looks: [`grep -l ${word} ${folder}/*`],
        right: [`cp ${hit} ${to}`],
        wrong: [`cp ${decoy} ${to}`, `mv ${hit} ${to}`, `cp ${hit} ${scene.slip(to)}`, `grep ${word} ${folder}/* > ${to}`],
      },
    ],
    checks: [...written(to, scene.textOf(hit)), unchanged(hit, scene.textOf(hit))],
  };
};

/** A chain of `hops` files, each naming the next; the last one holds a word that has to be written down. */
export function pointerChain(hops: number): JobMaker {
  return (scene): Job => {
    const word = scene.word();
    const chain = [note(scene, word)];
    while (chain.length < hops) chain.unshift(note(scene, chain[0] ?? ''));
    const to = scene.path('txt');
    const start = chain[0] ?? '';
    const last = chain.at(-1) ?? '';
    return {
      sentence: scene.pick([
        `The file ${start} names a file, and so on. The last file holds a word: write it to ${to}.`,
        `Start at ${start}: each file names the next one. Write the word in the last file to ${to}.`,
      ]),
      steps: [
        {
          looks: chain.map((path) => `cat ${path}`),
          right: [`echo ${word} > ${to}`],
          wrong: [`echo ${last} > ${to}`, `echo ${word} > ${scene.slip(to)}`, `echo ${word}`, `cp ${start} ${to}`],
        },
      ],
      checks: [...written(to, `${word}\n`), unchanged(start, scene.textOf(start)), unchanged(last, scene.textOf(last))],
    };
  };
}

/** A plan that has to be read and carried out; the instruction names the plan alone. */
export const followPlan: JobMaker = (scene): Job => {
  const [a, b, c] = [words(scene), words(scene), words(scene)];
  const [copy, moved] = [scene.path('txt'), scene.path('txt')];
  const word = scene.word();
  const after = scene.textOf(c) + text([word]);
  const parts = scene.random.shuffle([
    {
      line: `copy ${a} to ${copy}`,
      right: `cp ${a} ${copy}`,
      wrong: [`mv ${a} ${copy}`, `cp ${copy} ${a}`, `cp ${a} ${scene.slip(copy)}`],
    },
    {
      line: `move ${b} to ${moved}`,
      right: `mv ${b} ${moved}`,
      wrong: [`cp ${b} ${moved}`, `mv ${moved} ${b}`, `mv ${b} ${scene.slip(moved)}`],
    },
    { line: `append ${word} to ${c}`, right: `echo ${word} >> ${c}`, wrong: [`echo ${word} > ${c}`, `echo ${word} >> ${scene.slip(c)}`] },
  ]);
  const plan = scene.file(
    'txt',
    parts.map((part) => part.line),
  );
  return {
    sentence: scene.pick([`Carry out the plan in ${plan}.`, `Read ${plan} and do what each line says.`]),
    steps: [
      ...parts.map((part, i) =>
        i === 0 ? { looks: [`cat ${plan}`], right: [part.right], wrong: part.wrong } : { right: [part.right], wrong: part.wrong },
      ),
    ],
    checks: [
      content(copy, scene.textOf(a)),
      content(moved, scene.textOf(b)),
      gone(b),
      content(c, after),
      exists(copy),
      unchanged(plan, scene.textOf(plan)),
    ],
  };
};
