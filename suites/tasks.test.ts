/** Every built-in task in the embedded sandbox: doing nothing scores 0, the reference solution scores 1. */
import { test } from 'node:test';
import { EmbeddedProvider } from '../environment/embedded/provider.ts';
import { buildSuites, renderedTasks } from './build.ts';
import { assertSound, gate } from './gate.ts';
import { SUITES, TRAIN } from './splits.ts';

buildSuites();
for (const suite of [...SUITES.map(({ name }) => name), TRAIN]) {
  test(`${suite}: doing nothing scores 0 and the solution 1, embedded`, async () => {
    const provider = new EmbeddedProvider();
    for (const task of renderedTasks().filter((candidate) => candidate.suite === suite)) assertSound(task, await gate(task, provider));
  });
}
