/** The agents of the stress run: the tasks' own solutions, doing nothing, and commands drawn at random, which leave things running and lying about. */
import type { EpisodeRecord } from '../../environment/types.ts';
import { deriveSeed, Random } from '../../method/seeds.ts';

/** Harmless and harmful; each ends, is ended by its limit, or ends its sandbox. */
const COMMANDS = [
  'ls -la; cat * 2>/dev/null | head -c 2000',
  'echo x > made.txt; mkdir -p a/b; mv made.txt a/b/',
  'seq 20000',
  'head -c 5000000 /dev/zero',
  '(while :; do sleep 0.1; done) >/dev/null 2>&1 &',
  'setsid sh -c "while :; do sleep 1; done" </dev/null >/dev/null 2>&1 &',
  'sleep 30',
  "trap '' TERM; sleep 20",
  'for i in $(seq 300); do sleep 60 & done',
  'head -c 20000000 /dev/urandom > big',
  'kill -9 $$',
  'kill -9 -1',
  'x=$(head -c 400000000 /dev/zero | tr "\\0" x)',
  'cat /nowhere; false',
  'exec sleep 5',
  'printf "\\377\\376\\000"; echo done',
] as const;
const FEWEST = 2;
const MOST = 5;

/** Lines of a file for `replay:`: for each task an episode of random commands, the same for the same seed. */
export function randomEpisodes(tasks: readonly string[], seed: number): string {
  return tasks.map((taskId) => `${JSON.stringify(randomEpisode(taskId, new Random(deriveSeed(seed, 'stress', taskId))))}\n`).join('');
}

function randomEpisode(taskId: string, random: Random): Pick<EpisodeRecord, 'taskId' | 'harness' | 'turns'> {
  const count = FEWEST + random.int(MOST - FEWEST + 1);
  const turns = Array.from({ length: count }, () => ({ reply: COMMANDS[random.int(COMMANDS.length)] ?? 'ls', commands: [] }));
  return { taskId, harness: 'shell', turns: [...turns, { reply: 'exit', commands: [] }] };
}
