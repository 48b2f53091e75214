/** For the tests of what runs in containers: a container for one test, with an image and limits of its own. */
import Docker from 'dockerode';
import { backends, fixture, testRunKey } from '../testing.ts';
import { DockerProvider } from './provider.ts';
import type { Sandbox, Task } from '../types.ts';

const [, docker] = await backends();
/** Why tests with Docker are skipped here, or false. */
export const noDocker = docker?.skip ?? false;

const { build: _build, ...environment } = (await fixture('sort-names')).environment;
const task: Task = { ...(await fixture('sort-names')), environment: { ...environment, files: new Map(), run: [] } };
let number = 0;

/** Runs `test` on a fresh container of SHELL_IMAGE, or of what `changes` name, and closes it. */
export async function inContainer(
  test: (sandbox: Sandbox, name: string) => Promise<void>,
  changes: Partial<Task['environment']> = {},
): Promise<void> {
  const provider = new DockerProvider();
  const sandbox = await provider.start(
    { ...task, environment: { ...task.environment, ...changes } },
    { runKey: testRunKey, episodeId: `container-${number++}`, purpose: 'check' },
  );
  try {
    const [found] = await new Docker().listContainers({ filters: { label: [`terminal-rsi.run=${testRunKey}`] } });
    await test(sandbox, found?.Id ?? '');
  } finally {
    await sandbox.close();
    await provider.close();
  }
}
