/**
 * Workflow reconstruction: from examples of inputs and outputs the agent writes a script that does the same. The
 * instruction is the same for all tasks, so everything has to be read from the examples. Hidden checks run the script on
 * inputs that the agent never sees, and look at its form.
 */
import type { Check, Family } from '../family.ts';
import { tierOf } from '../family.ts';
import { Scene, text } from './scene.ts';
import { sorted } from './text-jobs.ts';

/** A transformation, as a command on the file "$1" and as a function on lines. */
interface Transformation {
  readonly command: string;
  readonly apply: (fileLines: readonly string[]) => readonly string[];
  /** Words that every input must contain, because the transformation is about them. */
  readonly words: readonly string[];
}

function transformation(scene: Scene): Transformation {
  const n = scene.number(1, 3);
  const [old, fresh] = [scene.word(), scene.word()];
  return scene.pick<Transformation>([
    { command: 'sort "$1"', apply: sorted, words: [] },
    { command: 'sort -r "$1"', apply: (all) => sorted(all).reverse(), words: [] },
    { command: 'sort -u "$1"', apply: (all) => sorted([...new Set(all)]), words: [] },
    { command: 'tac "$1"', apply: (all) => [...all].reverse(), words: [] },
    { command: 'tr a-z A-Z < "$1"', apply: (all) => all.map((line) => line.toUpperCase()), words: [] },
    { command: `head -n ${n} "$1"`, apply: (all) => all.slice(0, n), words: [] },
    { command: `tail -n ${n} "$1"`, apply: (all) => all.slice(-n), words: [] },
    { command: 'cut -d, -f1 "$1"', apply: (all) => all.map((line) => line.split(',')[0] ?? ''), words: [] },
    { command: 'cut -d, -f2 "$1"', apply: (all) => all.map((line) => line.split(',')[1] ?? ''), words: [] },
    { command: `grep ${old} "$1"`, apply: (all) => all.filter((line) => line.includes(old)), words: [old] },
    { command: `grep -v ${old} "$1"`, apply: (all) => all.filter((line) => !line.includes(old)), words: [old] },
    { command: `sed s/${old}/${fresh}/ "$1"`, apply: (all) => all.map((line) => line.replace(old, fresh)), words: [old] },
    { command: 'wc -l < "$1"', apply: (all) => [String(all.length)], words: [] },
  ]);
}

/** Lines `name,name` for the column commands and with repetitions for the others; always in an order that is not sorted. */
function sample(scene: Scene, { command, words }: Transformation, size: number): string[] {
  if (command.startsWith('cut')) return Array.from({ length: size }, () => scene.words(2).join(','));
  const fresh = scene.words(Math.max(1, size - words.length - 1));
  const all = [...fresh, ...words, ...(words.length > 0 ? words : fresh.slice(0, 1))];
  let shuffled = scene.random.shuffle(all);
  while (shuffled.join() === sorted(shuffled).join() || shuffled.join() === sorted(shuffled).reverse().join())
    shuffled = scene.random.shuffle(all);
  return shuffled;
}

const INSTRUCTIONS =
  'The folder examples holds inputs 1.in and 2.in with outputs 1.out and 2.out. Write run.sh so that sh run.sh FILE prints the output for FILE.';
const WRONG = [
  'cat "$1"',
  'sort "$1"',
  'head -n 2 "$1"',
  'tac "$1"',
  'sort -u "$1"',
  'tr a-z A-Z < "$1"',
  'wc -l "$1"',
  'cut -d, -f2 "$1"',
  'tail -n 2 "$1"',
];

function printf(fileLines: readonly string[]): string {
  return `printf '${fileLines.join('\\n')}\\n'`;
}
/** The script's output for a hidden input is the expected one. The input lies outside /app, so that nothing there can be tuned to it. */
function runs(name: string, input: readonly string[], output: readonly string[]): Check {
  return { name, shell: `${printf(input)} > /tmp/${name} && [ "$(sh run.sh /tmp/${name})" = "$(${printf(output)})" ]` };
}

export const workflowRebuild: Family = {
  name: 'workflow-rebuild',
  tier: 'hard',
  summary: 'infer a transformation from two examples and write it as a script',
  generate: (random) => {
    const scene = new Scene(random);
    const chosen = transformation(scene);
    const inputs = [4, 3, 5, 4].map((size) => sample(scene, chosen, size));
    const outputs = inputs.map((input) => chosen.apply(input));
    inputs.slice(0, 2).forEach((input, i) => {
      scene.files[`examples/${i + 1}.in`] = text(input);
      scene.files[`examples/${i + 1}.out`] = text(outputs[i] ?? []);
    });
    const literals = [
      ...new Set(
        outputs
          .slice(0, 2)
          .flat()
          .flatMap((line) => line.split(',')),
      ),
    ].filter((word) => /^[a-z]+$/i.test(word) && !chosen.command.includes(word));
    const steps = [
      {
        looks: ['cat examples/1.in', 'cat examples/1.out'],
        right: [`echo '${chosen.command}' > run.sh`],
        wrong: [
          ...WRONG.filter((command) => command !== chosen.command).map((command) => `echo '${command}' > run.sh`),
          'cp examples/1.out run.sh',
          `echo '${chosen.command}'`,
        ],
      },
    ];
    return {
      family: 'workflow-rebuild',
      tier: tierOf(steps),
      instruction: INSTRUCTIONS,
      files: scene.files,
      checks: [
        runs('example-1', inputs[0] ?? [], outputs[0] ?? []),
        runs('example-2', inputs[1] ?? [], outputs[1] ?? []),
        runs('hidden-1', inputs[2] ?? [], outputs[2] ?? []),
        runs('hidden-2', inputs[3] ?? [], outputs[3] ?? []),
        { name: 'uses-argument', shell: `grep -q '[$]1' run.sh` },
        { name: 'short', shell: `[ -s run.sh ] && [ "$(wc -l < run.sh)" -le 4 ]` },
        {
          name: 'no-literals',
          shell: `[ -s run.sh ] && ! grep -q ${literals.map((word) => `-e ${word}`).join(' ') || '-e examples'} run.sh`,
        },
      ],
      solution: steps.map((step) => step.right[0] ?? ''),
      steps,
    };
  },
};
