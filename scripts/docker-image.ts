/**
 * Makes the images of the Docker sandbox: `npm run docker-image` (does nothing when they are there; `-- --force` makes them anew,
 * `-- --shell` only the small one of the built-in tasks).
 */
import { parseArgs } from 'node:util';
import Docker from 'dockerode';
import { BASE_IMAGE, ensureBaseImage } from '../environment/docker/base-image.ts';
import { ensureShellImage, SHELL_IMAGE } from '../environment/docker/shell-image.ts';

export { ensureShellImage } from '../environment/docker/shell-image.ts';

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { force: { type: 'boolean', default: false }, shell: { type: 'boolean', default: false } } });
  const docker = new Docker();
  for (const [image, ensure] of [
    [SHELL_IMAGE, ensureShellImage],
    [BASE_IMAGE, ensureBaseImage],
  ] as const) {
    if (values.shell && image === BASE_IMAGE) continue;
    const built = await ensure(docker, { force: values.force });
    console.log(built ? `${image} is made` : `${image} is there already; --force makes it anew`);
  }
}

if (import.meta.main ?? process.argv[1] === import.meta.filename) {
  main().catch((error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  });
}
