/** What a run starts from: the base policy as an artifact, the suites and training tasks, and which configuration and code it is. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { UserError } from '../environment/errors.ts';
import type { Task } from '../environment/types.ts';
import { deriveSeed, Random } from '../method/seeds.ts';
import { canonicalHash } from '../records/canonical-json.ts';
import { gateFileOf, readGate } from '../records/gate.ts';
import type { Gate } from '../records/gate.ts';
import { Ledger } from '../records/ledger.ts';
import { configChanges, findRun } from '../records/lineage.ts';
import { repoRoot } from '../records/paths.ts';
import { tasksHashOf } from '../records/stage-key.ts';
import { isSuite, listSuites, listTraining } from '../suites/suites.ts';
import type { RunConfig } from '../workflows/config.ts';
import type { PrepareRunInput, PrepareRunResult, TaskListing } from '../workflows/contract.ts';
import { codeVersion, sourceHash } from './code-version.ts';
import type { RolloutDependencies } from './dependencies.ts';

const POLICY_FILES = ['config.json', 'tokenizer.json', 'model.safetensors'];

export async function prepareRun(deps: RolloutDependencies, input: PrepareRunInput): Promise<PrepareRunResult> {
  const { store, data, reportUrl } = deps;
  const { runKey, config } = input;
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
  const tasks = config.dataset === null ? listTraining() : await listForeign(deps, config, config.dataset);
  const shuffled = mixFamilies(tasks, new Random(deriveSeed(config.seed, 'training-order')));
  const training = config.trainingTasks === 0 ? shuffled : shuffled.slice(0, config.trainingTasks);
  const basePolicy = await store.putDirectory('policy', directory);
  const tasksHash = tasksHashOf({ suites, training });
  const version = await codeVersion();
  await openLedger(data, input, { basePolicy: basePolicy.sha256, tasksHash, codeVersion: version });
  return {
    ...{ basePolicy, suites, training, tasksHash, configHash: canonicalHash(config), codeVersion: version },
    ...(reportUrl ? { reportUrl: reportUrl(runKey) } : {}),
  };
}

/** The tasks of another dataset that its gate file accepts for training, unchanged since. */
async function listForeign(deps: RolloutDependencies, { gateFile, sandbox }: RunConfig, dataset: string): Promise<TaskListing[]> {
  const place = path.resolve(repoRoot, dataset);
  const file = gateFile === null ? gateFileOf(place) : path.resolve(repoRoot, gateFile);
  const gate = await readGate(file);
  if (gate.sandbox !== sandbox)
    throw new UserError(
      `sandbox: got ${sandbox}, expected ${gate.sandbox}, in which ${file} was made; or \`npm run tasks -- check\` with --sandbox ${sandbox}`,
    );
  const { name, tasks } = await deps.dataset(place, {});
  const found = tasks.map(({ id, task, error }) => ({ id, task, why: task ? whyNot(task, gate) : (error?.message ?? 'it does not load') }));
  const usable = found.flatMap(({ task, why }) => (task && why === undefined ? [task] : []));
  if (usable.length === 0) {
    const reasons = found.slice(0, 5).map(({ id, why }) => `${id}: ${why}`);
    throw new UserError([`dataset: none of the ${tasks.length} tasks of ${place} can be trained on, by ${file}`, ...reasons].join('\n'));
  }
  // Episodes and checks are named by suite and task: a dataset must not pass for a built-in suite.
  const suite = isSuite(name) ? `${name}-dataset` : name;
  return usable.map(({ id, family, tier, checksum, dir }) => ({ suite, id, family, tier, checksum, dir: path.resolve(dir) }));
}

/** Why a task is not trained on; undefined where it is. */
function whyNot({ id, checksum, steps }: Task, gate: Gate): string | undefined {
  const entry = gate.tasks.find((task) => task.id === id);
  if (!entry) return 'it is not in the gate file';
  if (entry.checksum !== checksum) return 'its files have changed since it was checked';
  if (steps) return 'it has several steps';
  return entry.trainable ? undefined : entry.reasons.join('; ');
}

/** The first record of the run. A fork says where it is from and which settings it changes. */
async function openLedger(
  data: string,
  { runKey, workflowId, config }: PrepareRunInput,
  inputs: { readonly basePolicy: string; readonly tasksHash: string; readonly codeVersion: string },
): Promise<void> {
  const { fork } = config;
  const parent = fork ? await new Ledger(data, await findRun(data, fork.run)).read() : [];
  const before = parent.find((record) => record.kind === 'opened');
  const last = parent.at(-1);
  if (fork && (!before || !last)) throw new UserError(`fork.run: run ${fork.run} has no ledger to go on from`);
  const { codeVersion: version, ...hashes } = inputs;
  await new Ledger(data, runKey).append({
    kind: 'opened',
    content: {
      ...{ config, configHash: canonicalHash(config), seed: config.seed, code: await sourceHash(), ...hashes },
      ...(fork && before ? { fork: { from: fork.from, changes: configChanges(before.content.config, config) } } : {}),
    },
    observed: {
      ...{ recordedAt: new Date().toISOString(), workflowId, codeVersion: version },
      ...(fork && last ? { forkedFrom: { runKey: last.runKey, index: last.index, hash: last.hash } } : {}),
    },
  });
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
