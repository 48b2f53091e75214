/** One task of every family in Docker containers of the shell image: the same verdicts as embedded. Skipped without an engine. */
import { test } from 'node:test';
import Docker from 'dockerode';
import { DockerProvider } from '../environment/docker/provider.ts';
import { ensureShellImage } from '../environment/docker/shell-image.ts';
import { buildSuites, renderedTasks } from './build.ts';
import { FAMILIES } from './families/index.ts';
import { assertSound, gate } from './gate.ts';

const docker = new Docker();
const engine = await docker.ping().then(
  () => true,
  () => false,
);
/** Tasks at the same time; a container spends most of its life waiting for the daemon. */
const AT_ONCE = 4;

test(
  'one task of every family in Docker: doing nothing scores 0 and the solution 1',
  { skip: engine ? false : 'no Docker engine answers' },
  async () => {
    buildSuites();
    await ensureShellImage(docker);
    const provider = new DockerProvider();
    try {
      const queue = FAMILIES.flatMap((family) => renderedTasks().find((task) => task.instance.family === family.name) ?? []);
      const work = async (): Promise<void> => {
        for (let task = queue.pop(); task !== undefined; task = queue.pop()) assertSound(task, await gate(task, provider));
      };
      await Promise.all(Array.from({ length: AT_ONCE }, work));
    } finally {
      await provider.close();
    }
  },
);
