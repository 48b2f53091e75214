/** Families of several dependent jobs: what one step writes, the next one needs. */
import { content, exists, gone, has, lacks, setting, unchanged } from './checks.ts';
import { words } from './file-jobs.ts';
import type { Job, JobMaker, Scene } from './scene.ts';
import { text } from './scene.ts';
import { columns, levelIn, logFile, otherNumber, settings, sorted, split, table, withValue } from './text-jobs.ts';
import { note } from './reading-jobs.ts';

/** One step of a chain: what the instruction says, and the command right and wrong. */
interface Link {
  readonly say: string;
  readonly right: string;
  readonly wrong: readonly string[];
  readonly looks?: readonly string[];
}
function chain(links: readonly Link[], checks: Job['checks']): Job {
  return {
    sentence: links.map((link) => link.say).join(' '),
    steps: links.map(({ right, wrong, looks }) => ({ right: [right], wrong, ...(looks === undefined ? {} : { looks }) })),
    checks,
  };
}
function set(scene: Scene, key: string, value: number, path: string): Pick<Link, 'right' | 'wrong'> {
  return {
    right: `sed -i 's/${key}=.*/${key}=${value}/' ${path}`,
    wrong: [
      `echo ${key}=${value} >> ${path}`,
      `sed -i 's/${key}=.*/${key}=${otherNumber(scene, value)}/' ${path}`,
      `sed 's/${key}=.*/${key}=${value}/' ${path}`,
    ],
  };
}

/** Medium: keep a copy, then edit. */
export const backupAndSet: JobMaker = (scene) => {
  const { path, key, value } = settings(scene);
  const next = otherNumber(scene, value);
  const backup = `${path}.bak`;
  const after = withValue(scene.textOf(path), key, next);
  return chain(
    [
      {
        say: scene.pick([`Copy ${path} to ${backup}.`, `Back up ${path} as ${backup}.`]),
        right: `cp ${path} ${backup}`,
        wrong: [`mv ${path} ${backup}`, `cp ${backup} ${path}`, `cp ${path} ${scene.slip(path)}`],
      },
      { say: `Then set ${key} to ${next} in ${path}.`, ...set(scene, key, next, path) },
    ],
    [content(backup, scene.textOf(path)), content(path, after), exists(backup), setting(path, key, next)],
  );
};

/** Medium: filter a log, then count what was found. */
export const logTriage: JobMaker = (scene) => {
  const log = logFile(scene);
  const level = levelIn(scene, log);
  const [found, count] = [scene.path('txt'), scene.path('txt')];
  const hits = split(scene.textOf(log)).filter((line) => line.startsWith(level));
  return chain(
    [
      {
        say: scene.pick([`Write the lines of ${log} with ${level} to ${found}.`, `Save all ${level} lines of ${log} to ${found}.`]),
        right: `grep ${level} ${log} > ${found}`,
        wrong: [
          `grep -v ${level} ${log} > ${found}`,
          `grep ${level} ${log}`,
          `grep ${level} ${log} > ${scene.slip(found)}`,
          `cat ${log} > ${found}`,
        ],
      },
      {
        say: `Then count the lines of ${found} into ${count}.`,
        right: `wc -l < ${found} > ${count}`,
        wrong: [`wc -l < ${log} > ${count}`, `wc -l ${found} > ${count}`, `wc -l < ${found}`],
      },
    ],
    [content(found, text(hits)), content(count, `${hits.length}\n`), exists(found), exists(count), unchanged(log, scene.textOf(log))],
  );
};

/** Hard: rows with a word, one of their columns, sorted. */
export const csvReport: JobMaker = (scene) => {
  const csv = table(scene);
  const rows = columns(scene.textOf(csv));
  const group = scene.pick(rows)[2] ?? '';
  const [picked, names, count] = [scene.path('csv'), scene.path('txt'), scene.path('txt')];
  const hits = rows.filter((row) => row[2] === group);
  const result = text(hits.map((row) => row[0] ?? ''));
  return chain(
    [
      {
        say: scene.pick([`Write the lines of ${csv} with ${group} to ${picked}.`, `Save all ${group} lines of ${csv} to ${picked}.`]),
        right: `grep ${group} ${csv} > ${picked}`,
        wrong: [`grep -v ${group} ${csv} > ${picked}`, `grep ${group} ${csv}`, `cp ${csv} ${picked}`],
      },
      {
        say: `Write column 1 of ${picked} to ${names}.`,
        right: `cut -d, -f1 ${picked} > ${names}`,
        wrong: [
          `cut -d, -f2 ${picked} > ${names}`,
          `cut -d, -f1 ${csv} > ${names}`,
          `cut -f1 ${picked} > ${names}`,
          `cut -d, -f1 ${picked}`,
        ],
      },
      {
        say: `Count the lines of ${names} into ${count}.`,
        right: `wc -l < ${names} > ${count}`,
        wrong: [`wc -l < ${csv} > ${count}`, `wc -l ${names} > ${count}`, `wc -l < ${names}`],
      },
    ],
    [
      content(picked, text(hits.map((row) => row.join(',')))),
      content(names, result),
      content(count, `${hits.length}\n`),
      exists(names),
      exists(count),
      unchanged(csv, scene.textOf(csv)),
    ],
  );
};

/** Hard: the word to put in stands in another file. */
export const editFromNote: JobMaker = (scene) => {
  const [old, other, fresh] = [scene.word(), scene.word(), scene.word()];
  const path = scene.file('txt', scene.random.shuffle([`${old} ${other}`, old, scene.word()]));
  const source = note(scene, fresh);
  const to = scene.path('txt');
  const after = scene.textOf(path).replaceAll(old, fresh);
  return chain(
    [
      {
        say: scene.pick([
          `In ${path} change all ${old} to the word in ${source}.`,
          `Replace every ${old} in ${path} with the word in ${source}.`,
        ]),
        looks: [`cat ${source}`],
        right: `sed -i 's/${old}/${fresh}/g' ${path}`,
        wrong: [
          `sed -i 's/${old}/${scene.otherNoun(fresh)}/g' ${path}`,
          `sed 's/${old}/${fresh}/g' ${path}`,
          `sed -i 's/${fresh}/${old}/g' ${path}`,
        ],
      },
      {
        say: `Then sort ${path} into ${to}.`,
        right: `sort ${path} > ${to}`,
        wrong: [`sort ${path}`, `sort -r ${path} > ${to}`, `cp ${path} ${to}`],
      },
    ],
    [
      content(path, after),
      content(to, text(sorted(split(after)))),
      lacks(path, old),
      has(path, fresh),
      exists(to),
      unchanged(source, scene.textOf(source)),
    ],
  );
};

/** Extreme: five steps of a release; the version stands in a file. */
export const release: JobMaker = (scene) => {
  const { path: config, key, value } = settings(scene);
  const version = otherNumber(scene, value);
  const source = note(scene, String(version));
  const [main, folder] = [words(scene), scene.word()];
  const target = `${folder}/${scene.word()}.txt`;
  const after = withValue(scene.textOf(config), key, version);
  return chain(
    [
      {
        say: `Set ${key} in ${config} to the number in ${source}.`,
        looks: [`cat ${source}`],
        ...set(scene, key, version, config),
      },
      { say: `Make the folder ${folder}.`, right: `mkdir ${folder}`, wrong: [`mkdir ${scene.otherNoun(folder)}`, `touch ${folder}`] },
      {
        say: `Copy ${main} to ${target}.`,
        right: `cp ${main} ${target}`,
        wrong: [`mv ${main} ${target}`, `cp ${main} ${folder}`, `cp ${main} ${scene.slip(target)}`],
      },
      { say: `Delete ${source}.`, right: `rm ${source}`, wrong: [`rm ${main}`, `rm ${scene.slip(source)}`] },
    ],
    [
      content(config, after),
      setting(config, key, version),
      content(target, scene.textOf(main)),
      exists(target),
      gone(source),
      { name: 'folder', shell: `[ -d ${folder} ]` },
      unchanged(main, scene.textOf(main)),
    ],
  );
};

/** Extreme: clean, collect, count, archive. */
export const archiveLog: JobMaker = (scene) => {
  const log = logFile(scene);
  const level = levelIn(scene, log);
  const [folder, found, count] = [scene.word(), scene.path('txt'), scene.path('txt')];
  const moved = `${folder}/${scene.word()}.log`;
  const hits = split(scene.textOf(log)).filter((line) => line.startsWith(level));
  const word = scene.word();
  return chain(
    [
      {
        say: `Save all ${level} lines of ${log} to ${found}.`,
        right: `grep ${level} ${log} > ${found}`,
        wrong: [`grep -v ${level} ${log} > ${found}`, `grep ${level} ${log}`, `cp ${log} ${found}`],
      },
      {
        say: `Count the lines of ${found} into ${count}.`,
        right: `wc -l < ${found} > ${count}`,
        wrong: [`wc -l < ${log} > ${count}`, `wc -l ${found} > ${count}`, `wc -l < ${found}`],
      },
      {
        say: `Append the line ${word} to ${found}.`,
        right: `echo ${word} >> ${found}`,
        wrong: [`echo ${word} > ${found}`, `echo ${word} >> ${log}`, `echo ${word} >> ${count}`],
      },
      { say: `Make the folder ${folder}.`, right: `mkdir ${folder}`, wrong: [`mkdir ${scene.otherNoun(folder)}`, `touch ${folder}`] },
      {
        say: `Move ${log} to ${moved}.`,
        right: `mv ${log} ${moved}`,
        wrong: [`cp ${log} ${moved}`, `mv ${log} ${scene.slip(moved)}`, `rm ${log}`],
      },
    ],
    [
      content(found, text([...hits, word])),
      content(count, `${hits.length}\n`),
      content(moved, scene.textOf(log)),
      gone(log),
      exists(found),
      exists(count),
      has(found, word),
    ],
  );
};

/** Held out, medium: sort, then the first lines of the result. */
export const sortThenHead: JobMaker = (scene) => {
  const from = scene.file('txt', scene.words(6));
  const [middle, to, n] = [scene.path('txt'), scene.path('txt'), scene.number(2, 4)];
  const order = sorted(split(scene.textOf(from)));
  return chain(
    [
      { say: `Sort ${from} into ${middle}.`, right: `sort ${from} > ${middle}`, wrong: [`sort ${from}`] },
      {
        say: `Then write the first ${n} lines of ${middle} to ${to}.`,
        right: `head -n ${n} ${middle} > ${to}`,
        wrong: [`head -n ${n} ${from} > ${to}`],
      },
    ],
    [content(middle, text(order)), content(to, text(order.slice(0, n))), exists(middle), exists(to), unchanged(from, scene.textOf(from))],
  );
};

/** Held out, hard: copy, edit the copy, count it. */
export const copyEditCount: JobMaker = (scene) => {
  const [old, fresh] = [scene.word(), scene.word()];
  const from = scene.file('txt', scene.random.shuffle([`${old} ${scene.word()}`, old, scene.word()]));
  const [copy, count] = [scene.path('txt'), scene.path('txt')];
  const after = scene.textOf(from).replaceAll(old, fresh);
  return chain(
    [
      { say: `Copy ${from} to ${copy}.`, right: `cp ${from} ${copy}`, wrong: [`mv ${from} ${copy}`] },
      {
        say: `Replace every ${old} with ${fresh} in ${copy}.`,
        right: `sed -i 's/${old}/${fresh}/g' ${copy}`,
        wrong: [`sed -i 's/${old}/${fresh}/g' ${from}`],
      },
      { say: `Then count the lines of ${copy} into ${count}.`, right: `wc -l < ${copy} > ${count}`, wrong: [`wc -l ${copy} > ${count}`] },
    ],
    [content(copy, after), has(copy, fresh), content(count, '3\n'), exists(copy), exists(count), unchanged(from, scene.textOf(from))],
  );
};

/** Held out, medium: sort the file that a pointer names. */
export const sortNamed: JobMaker = (scene) => {
  const from = words(scene, 3, 5);
  const [pointer, to] = [note(scene, from), scene.path('txt')];
  const result = text(sorted(split(scene.textOf(from))));
  return chain(
    [
      {
        say: `The file ${pointer} names a file. Sort that file into ${to}.`,
        looks: [`cat ${pointer}`],
        right: `sort ${from} > ${to}`,
        wrong: [`sort ${pointer} > ${to}`],
      },
    ],
    [
      content(to, result),
      exists(to),
      has(to, split(result)[0] ?? ''),
      unchanged(pointer, scene.textOf(pointer)),
      unchanged(from, scene.textOf(from)),
    ],
  );
};

/** Held out, hard: merge, drop duplicates, remove the inputs. */
export const mergeAndClean: JobMaker = (scene) => {
  const shared = scene.word();
  const first = scene.file('txt', scene.random.shuffle([shared, scene.word()]));
  const second = scene.file('txt', scene.random.shuffle([shared, scene.word()]));
  const [merged, to] = [scene.path('txt'), scene.path('txt')];
  const all = scene.textOf(first) + scene.textOf(second);
  return chain(
    [
      {
        say: `Join ${first} and ${second} into ${merged}.`,
        right: `cat ${first} ${second} > ${merged}`,
        wrong: [`cat ${first} > ${merged}`],
      },
      { say: `Sort ${merged} without duplicates into ${to}.`, right: `sort -u ${merged} > ${to}`, wrong: [`sort ${merged} > ${to}`] },
      { say: `Delete ${first}.`, right: `rm ${first}`, wrong: [`rm ${merged}`] },
    ],
    [content(merged, all), content(to, text(sorted([...new Set(split(all))]))), gone(first), exists(merged), exists(to)],
  );
};
