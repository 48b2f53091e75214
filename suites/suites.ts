/** What the rest of the project asks about the built-in tasks. */
import { join } from 'node:path';
import { UserError } from '../environment/errors.ts';
import type { SuiteListing, TaskListing } from '../workflows/contract.ts';
import { BUILT, buildSuites, renderedTasks } from './build.ts';
import { SUITES, TRAIN } from './splits.ts';

function listing(suite: string): TaskListing[] {
  return renderedTasks()
    .filter((task) => task.suite === suite)
    .map(({ id, instance, checksum }) => ({ suite, id, family: instance.family, tier: instance.tier, checksum }));
}

/** The six evaluation suites and `dev`, in order. Builds the task directories if they are not up to date. */
export function listSuites(): SuiteListing[] {
  buildSuites();
  return SUITES.map(({ name, metric, headline }) => ({ name, metric, headline, tasks: listing(name) }));
}

/** The tasks of `train`. Builds the task directories if they are not up to date. */
export function listTraining(): TaskListing[] {
  buildSuites();
  return listing(TRAIN);
}

const names: readonly string[] = [...SUITES.map((suite) => suite.name), TRAIN];

/** Whether a built-in suite, `train` included, has this name. */
export function isSuite(name: string): boolean {
  return names.includes(name);
}

/** Directory that holds the suite's task directories, `train` included. Throws UserError for an unknown name. */
export function suiteDirectory(name: string): string {
  if (!isSuite(name)) throw new UserError(`suite ${JSON.stringify(name)} does not exist; expected one of ${names.join(', ')}`);
  return join(BUILT, name);
}
