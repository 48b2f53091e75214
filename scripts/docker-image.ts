/**
 * Makes the image of the Docker sandbox: `npm run docker-image` (does nothing when it is there; `-- --force` makes it anew).
 */
import { parseArgs } from 'node:util';
import Docker from 'dockerode';
import { ensureShellImage, SHELL_IMAGE } from '../environment/docker/shell-image.ts';

export { ensureShellImage } from '../environment/docker/shell-image.ts';

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { force: { type: 'boolean', default: false } } });
  const built = await ensureShellImage(new Docker(), { force: values.force });
  console.log(built ? `${SHELL_IMAGE} is made` : `${SHELL_IMAGE} is there already; --force makes it anew`);
}

if (import.meta.main ?? process.argv[1] === import.meta.filename) {
  main().catch((error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  });
}
