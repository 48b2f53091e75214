/**
 * The image that the built-in tasks start from: static bash, busybox's applets and nothing else, about 3 MB. Made on the
 * machine itself, because a registry is often out of reach: from two Debian packages where apt-get is there, else
 * by `docker build` on debian:bookworm-slim.
 */
import { execFile } from 'node:child_process';
import { chmod, copyFile, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type Docker from 'dockerode';
import { pack } from 'tar-stream';
import { UserError } from '../errors.ts';

/** What built-in tasks name in FROM. Raise the tag when the image's content changes. */
export const SHELL_IMAGE = 'terminal-rsi/shell:1';

const run = promisify(execFile);
export const IMAGE_PATH = 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const label = 'terminal-rsi.image=shell';

/**
 * Makes SHELL_IMAGE unless it is there.
 * @returns whether it was built now
 * @throws UserError saying what to do when it cannot be made
 */
export async function ensureShellImage(docker: Docker, options: { force?: boolean } = {}): Promise<boolean> {
  if (options.force !== true && (await hasImage(docker, SHELL_IMAGE))) return false;
  const work = await mkdtemp(join(tmpdir(), 'terminal-rsi-image-'));
  try {
    if (await hasCommand('apt-get')) await importFromPackages(docker, work);
    else await buildFromDebian(docker);
  } catch (error) {
    throw new UserError(
      `cannot make the image ${SHELL_IMAGE}: ${(error as Error).message}. It needs apt-get with a package source, or access to debian:bookworm-slim; try again with: npm run docker-image`,
    );
  } finally {
    await rm(work, { recursive: true, force: true });
  }
  return true;
}

export async function hasImage(docker: Docker, name: string): Promise<boolean> {
  try {
    await docker.getImage(name).inspect();
    return true;
  } catch (error) {
    if ((error as { statusCode?: number }).statusCode === 404) return false;
    throw error;
  }
}

export async function hasCommand(name: string): Promise<boolean> {
  return run(name, ['--version']).then(
    () => true,
    () => false,
  );
}

/** Unpacks bash-static and busybox-static and imports the tree as an image. */
async function importFromPackages(docker: Docker, work: string): Promise<void> {
  const download = (): Promise<unknown> => run('apt-get', ['download', 'bash-static', 'busybox-static'], { cwd: work });
  // A fresh machine has no package lists yet.
  await download().catch(async () => {
    await run('apt-get', ['update']);
    await download();
  });
  const unpacked = join(work, 'unpacked');
  for (const name of (await readdir(work)).filter((file) => file.endsWith('.deb')))
    await run('dpkg-deb', ['-x', join(work, name), unpacked]);

  const root = join(work, 'root');
  for (const directory of ['bin', 'usr/bin', 'usr/local/bin', 'etc', 'app', 'tmp', 'root', 'proc', 'sys', 'dev'])
    await mkdir(join(root, directory), { recursive: true });
  await chmod(join(root, 'tmp'), 0o1777);
  await copyFile(join(unpacked, 'bin/bash-static'), join(root, 'bin/bash'));
  await copyFile(join(unpacked, 'bin/busybox'), join(root, 'bin/busybox'));
  const { stdout } = await run(join(root, 'bin/busybox'), ['--list']);
  for (const applet of stdout.split('\n').filter((name) => name !== '' && !['bash', 'busybox', 'sh'].includes(name)))
    await symlink('busybox', join(root, 'bin', applet));
  await symlink('bash', join(root, 'bin/sh'));
  // Scripts say #!/usr/bin/env and #!/usr/bin/bash too.
  await symlink('/bin/env', join(root, 'usr/bin/env'));
  await symlink('/bin/bash', join(root, 'usr/bin/bash'));
  await writeFile(join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/bash\n');
  await writeFile(join(root, 'etc/group'), 'root:x:0:\n');
  const archive = join(work, 'root.tar');
  await run('tar', ['-C', root, '--owner=0', '--group=0', '--numeric-owner', '-cf', archive, '.']);
  await importArchive(docker, archive, SHELL_IMAGE, [`ENV ${IMAGE_PATH}`, `LABEL ${label}`, 'WORKDIR /app', 'CMD ["/bin/bash"]']);
}

/** Makes an image of one layer from a tar file. */
export async function importArchive(docker: Docker, archive: string, image: string, changes: readonly string[]): Promise<void> {
  const [repo = '', tag = ''] = image.split(':');
  // The published types know neither this call's options nor its stream.
  const importImage = docker.importImage.bind(docker) as unknown as (file: string, options: object) => Promise<NodeJS.ReadableStream>;
  await finished(docker, await importImage(archive, { repo, tag, changes }));
}

async function buildFromDebian(docker: Docker): Promise<void> {
  const context = pack();
  context.entry(
    { name: 'Dockerfile' },
    `FROM debian:bookworm-slim\nENV ${IMAGE_PATH}\nLABEL ${label}\nRUN ln -sf bash /bin/sh\nWORKDIR /app\nCMD ["/bin/bash"]\n`,
  );
  context.finalize();
  await finished(docker, await docker.buildImage(context as unknown as NodeJS.ReadableStream, { t: SHELL_IMAGE }));
}

/** Waits for the daemon's progress stream and turns an error in it into a rejection. */
export function finished(docker: Docker, stream: NodeJS.ReadableStream): Promise<void> {
  return new Promise((resolve, reject) => {
    docker.modem.followProgress(stream, (error: Error | null, events?: { error?: string }[]) => {
      const failure = error?.message ?? events?.find((event) => event.error !== undefined)?.error;
      if (failure === undefined) resolve();
      else reject(new Error(failure));
    });
  });
}
