/** Jobs that make, move and remove files: each is one easy task, and a building block of longer ones. */
import { content, executable, exists, filled, gone, has, kept, lastLine, lines, unchanged, written } from './checks.ts';
import type { Job, JobMaker, Scene } from './scene.ts';
import { text } from './scene.ts';

export function words(scene: Scene, low = 2, high = 4): string {
  return scene.file('txt', scene.words(scene.number(low, high)));
}

export const createFile: JobMaker = (scene): Job => {
  const path = scene.path('txt');
  const [first, second] = [scene.word(), scene.word()];
  return {
    sentence: scene.pick([`Create ${path} with the text ${first} ${second}.`, `Write ${first} ${second} to the new file ${path}.`]),
    steps: [
      {
        right: [`echo ${first} ${second} > ${path}`],
        wrong: [
          `echo ${first} > ${path}`,
          `echo ${first} ${second} > ${scene.slip(path)}`,
          `echo ${first} ${second}`,
          `touch ${path}`,
          `echo ${second} ${first} > ${path}`,
        ],
      },
    ],
    checks: [content(path, `${first} ${second}\n`), exists(path), has(path, first), has(path, second)],
  };
};

export const copyFile: JobMaker = (scene): Job => {
  const from = words(scene);
  const to = scene.path('txt');
  return {
    sentence: scene.pick([`Copy ${from} to ${to}.`, `Make a copy of ${from} named ${to}.`]),
    steps: [
      {
        right: [`cp ${from} ${to}`],
        wrong: [`mv ${from} ${to}`, `cp ${to} ${from}`, `cp ${from} ${scene.slip(to)}`, `cp ${scene.slip(from)} ${to}`, `cat ${from}`],
      },
    ],
    checks: [...written(to, scene.textOf(from)), unchanged(from, scene.textOf(from))],
  };
};

export const moveFile: JobMaker = (scene): Job => {
  const from = words(scene);
  const to = scene.path('txt');
  return {
    sentence: scene.pick([`Move ${from} to ${to}.`, `Rename ${from} to ${to}.`]),
    steps: [
      {
        right: [`mv ${from} ${to}`],
        wrong: [`cp ${from} ${to}`, `mv ${to} ${from}`, `mv ${from} ${scene.slip(to)}`, `mv ${scene.slip(from)} ${to}`],
      },
    ],
    checks: [
      { ...content(to, scene.textOf(from)), shell: `${content(to, scene.textOf(from)).shell} && [ ! -e ${from} ]` },
      gone(from),
      exists(to),
    ],
  };
};

export const appendLine: JobMaker = (scene): Job => {
  const path = words(scene);
  const word = scene.word();
  const after = scene.textOf(path) + text([word]);
  return {
    sentence: scene.pick([`Append the line ${word} to ${path}.`, `Add the line ${word} at the end of ${path}.`]),
    steps: [
      {
        right: [`echo ${word} >> ${path}`],
        wrong: [
          `echo ${word} > ${path}`,
          `echo ${word} >> ${scene.slip(path)}`,
          `echo ${scene.otherNoun(word)} >> ${path}`,
          `echo ${word}`,
        ],
      },
    ],
    checks: [content(path, after), lastLine(path, after), lines(path, after)],
  };
};

export const deleteByExtension: JobMaker = (scene): Job => {
  const folder = scene.pick(['docs', 'data', 'notes']);
  const extension = scene.pick(['tmp', 'bak', 'old']);
  const doomed = Array.from({ length: scene.number(2, 3) }, () => scene.file(extension, [scene.filler()], folder));
  const keep = scene.file('txt', [scene.filler()], folder);
  const other = scene.pick(['tmp', 'bak', 'old'].filter((candidate) => candidate !== extension));
  return {
    sentence: scene.pick([`Delete all ${extension} files in ${folder}.`, `Remove every ${extension} file from ${folder}.`]),
    steps: [
      {
        right: [`rm ${folder}/*.${extension}`],
        wrong: [`rm ${folder}/*`, `rm ${folder}/*.${other}`, `rm *.${extension}`, `rm ${doomed[0]}`, `ls ${folder}`],
      },
    ],
    checks: [
      { name: `none-${folder}-${extension}`, shell: `[ -f ${keep} ] && [ "$(find ${folder} -name '*.${extension}')" = '' ]` },
      ...doomed.map(gone),
      kept(keep),
    ],
  };
};

export const moveByExtension: JobMaker = (scene): Job => {
  const from = scene.pick(['docs', 'data', 'notes']);
  const extension = scene.pick(['dat', 'md']);
  const to = scene.word();
  const moved = Array.from({ length: scene.number(2, 3) }, () => scene.file(extension, [scene.filler()], from));
  const keep = scene.file('txt', [scene.filler()], from);
  const targets = moved.map((path) => path.replace(from, to));
  return {
    sentence: scene.pick([
      `Make the folder ${to} and move all ${extension} files from ${from} to it.`,
      `Create the folder ${to}. Move every ${extension} file of ${from} there.`,
    ]),
    steps: [
      { right: [`mkdir ${to}`, `mkdir -p ${to}`], wrong: [`mkdir ${scene.otherNoun(to)}`, `touch ${to}`, `mkdir ${from}/${to}`] },
      {
        right: [`mv ${from}/*.${extension} ${to}`],
        wrong: [`cp ${from}/*.${extension} ${to}`, `mv ${from}/* ${to}`, `mv ${moved[0]} ${to}`, `mv ${from}/*.${extension} ${from}/${to}`],
      },
    ],
    checks: [
      {
        name: `moved-${from}-${extension}`,
        shell: `${targets.map((path) => `[ -f ${path} ]`).join(' && ')} && [ -f ${keep} ] && [ ! -e ${moved[0]} ]`,
      },
      ...targets.map(exists),
      gone(moved[0] ?? ''),
      kept(keep),
    ],
  };
};

export const mergeFiles: JobMaker = (scene): Job => {
  const [first, second] = [words(scene, 1, 3), words(scene, 1, 3)];
  const to = scene.path('txt');
  const merged = scene.textOf(first) + scene.textOf(second);
  return {
    sentence: scene.pick([`Join ${first} and ${second} into ${to}.`, `Merge ${first} and ${second}, in this order, into ${to}.`]),
    steps: [
      {
        right: [`cat ${first} ${second} > ${to}`],
        wrong: [
          `cat ${second} ${first} > ${to}`,
          `cat ${first} > ${to}`,
          `cat ${first} ${second}`,
          `cp ${first} ${second} ${to}`,
          `cat ${first} ${second} > ${scene.slip(to)}`,
        ],
      },
    ],
    checks: [content(to, merged), exists(to), lines(to, merged), unchanged(first, scene.textOf(first))],
  };
};

export const makeTree: JobMaker = (scene): Job => {
  const [outer, inner, word] = [scene.word(), scene.word(), scene.word()];
  const path = `${outer}/${inner}/${scene.word()}.txt`;
  return {
    sentence: scene.pick([
      `Make the folder ${outer}/${inner} and write ${word} to ${path}.`,
      `Create the folder ${outer}/${inner}. Write ${word} to ${path}.`,
    ]),
    steps: [
      { right: [`mkdir -p ${outer}/${inner}`], wrong: [`mkdir ${outer}`, `mkdir ${outer}/${inner}`, `mkdir -p ${inner}/${outer}`] },
      {
        right: [`echo ${word} > ${path}`],
        wrong: [`echo ${word} > ${outer}/${scene.otherNoun(outer)}.txt`, `touch ${path}`, `echo ${word} > ${scene.slip(path)}`],
      },
    ],
    checks: [content(path, `${word}\n`), exists(path), { name: `folder-${outer}`, shell: `[ -d ${outer} ]` }, filled(path)],
  };
};

export const runScript: JobMaker = (scene): Job => {
  const [said, input] = [scene.word(), words(scene, 2, 4)];
  const script = scene.file('sh', [`echo ${said}`, `sort ${input}`]);
  const to = scene.path('txt');
  const output = text([said, ...scene.textOf(input).trimEnd().split('\n').sort()]);
  return {
    sentence: scene.pick([
      `Make ${script} executable, then run it and save its output to ${to}.`,
      `Make ${script} executable. Run it and write its output to ${to}.`,
    ]),
    steps: [
      { right: [`chmod +x ${script}`], wrong: [`chmod -x ${script}`, `chmod +x ${scene.slip(script)}`, `chmod +r ${script}`] },
      {
        right: [`sh ${script} > ${to}`],
        wrong: [`sh ${script}`, `cat ${script} > ${to}`, `sh ${script} > ${scene.slip(to)}`, `cp ${script} ${to}`],
      },
    ],
    checks: [content(to, output), executable(script), exists(to), filled(to), unchanged(script, scene.textOf(script))],
  };
};
