/** What a run starts from: the base policy as an artifact, the suites and training tasks, and which configuration and code it is. */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { UserError } from '../environment/errors.ts';
import { deriveSeed, Random } from '../method/seeds.ts';
import { canonicalJson } from '../records/canonical-json.ts';
import { repoRoot } from '../records/paths.ts';
import { listSuites, listTraining } from '../suites/suites.ts';
import type { PrepareRunInput, PrepareRunResult, TaskListing } from '../workflows/contract.ts';
import { codeVersion } from './code-version.ts';
import type { RolloutDependencies } from './dependencies.ts';

const POLICY_FILES = ['config.json', 'tokenizer.json', 'model.safetensors'];

export async function prepareRun(
  { store, reportUrl }: RolloutDependencies,
  { runKey, config }: PrepareRunInput,
): Promise<PrepareRunResult> {
  const directory = path.resolve(repoRoot, config.basePolicy);
  const missing = POLICY_FILES.filter((file) => !existsSync(path.join(directory, file)));
  if (missing.length > 0) {
    throw new UserError(
      `basePolicy: got ${JSON.stringify(config.basePolicy)}, expected a directory with ${POLICY_FILES.join(', ')}; ${directory} lacks ${missing.join(', ')}`,
    );
  }
  const { tasksPerSuite } = config.evaluation;
  const suites = listSuites().map((suite) => {
    const tasks = tasksPerSuite === 0 ? suite.tasks : mixFamilies(suite.tasks).slice(0, tasksPerSuite);
    return { ...suite, tasks };
  });
  const training = mixFamilies(listTraining(), new Random(deriveSeed(config.seed, 'training-order')));
  return {
    basePolicy: await store.putDirectory('policy', directory),
    suites,
    training: config.trainingTasks === 0 ? training : training.slice(0, config.trainingTasks),
    configHash: createHash('sha256').update(canonicalJson(config)).digest('hex'),
    codeVersion: await codeVersion(),
    ...(reportUrl ? { reportUrl: reportUrl(runKey) } : {}),
  };
}

/** One task of each family in turn, so that any stretch of the list has a mix of families. `random` shuffles within and among families. */
function mixFamilies(tasks: readonly TaskListing[], random?: Random): TaskListing[] {
  const families = new Map<string, TaskListing[]>();
  for (const task of tasks) families.set(task.family, [...(families.get(task.family) ?? []), task]);
  const lists = [...families.values()].map((list) => (random ? [...random.shuffle(list)] : list));
  const order = random ? [...random.shuffle(lists)] : lists;
  const longest = Math.max(0, ...order.map((list) => list.length));
  return Array.from({ length: longest }, (_, index) => order.flatMap((list) => list.slice(index, index + 1))).flat();
}
