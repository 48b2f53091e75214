/**
 * The image that the tasks of suites/terminal start from: Debian with python3, git, gcc, make, tmux, sqlite3 and curl, for tasks that
 * need a real userland. Made on the machine itself, because a registry is often out of reach: by debootstrap where it is there (as root),
 * else by `docker build` on debian:bookworm-slim. About 400 MB and two minutes, so it is made once and only where something needs it.
 */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type Docker from 'dockerode';
import { pack } from 'tar-stream';
import { lockName, withSetupLock } from '../../scripts/setup/lock.mjs';
import { UserError } from '../errors.ts';
import { finished, hasCommand, hasImage, IMAGE_PATH, importArchive } from './shell-image.ts';

/** What tasks name in FROM. Raise the tag when the image's content changes. */
export const BASE_IMAGE = 'terminal-rsi/base:1';

const run = promisify(execFile);
const suite = 'bookworm';
const mirror = 'http://deb.debian.org/debian';
const packages = 'ca-certificates curl file gcc git less libc6-dev make patch procps python3 sqlite3 tmux'.split(' ');
const environment = [IMAGE_PATH, 'LANG=C.UTF-8'];
const label = 'terminal-rsi.image=base';
/** What takes space and no task reads. Package lists are fetched anew by a Dockerfile's `apt-get update`. */
const superfluous = [
  'usr/share/doc',
  'usr/share/info',
  'usr/share/locale',
  'usr/share/man',
  'var/cache/apt',
  'var/lib/apt/lists',
  'var/log',
];
const buildTimeoutMs = 30 * 60_000;

/**
 * Makes BASE_IMAGE unless it is there. Processes that ask at the same time wait for the one that makes it.
 * @returns whether it was built now
 * @throws UserError saying what to install when it cannot be made
 */
export async function ensureBaseImage(docker: Docker, options: { force?: boolean } = {}): Promise<boolean> {
  const wanted = async (): Promise<boolean> => options.force === true || !(await hasImage(docker, BASE_IMAGE));
  if (!(await wanted())) return false;
  return withSetupLock(
    async () => {
      if (!(await wanted())) return false;
      await make(docker);
      return true;
    },
    { name: lockName(`image ${BASE_IMAGE}`) },
  );
}

async function make(docker: Docker): Promise<void> {
  const failures: string[] = [];
  for (const [way, impossible] of [
    [fromDebootstrap, await noDebootstrap()],
    [fromDebian, undefined],
  ] as const) {
    try {
      if (impossible !== undefined) throw new Error(impossible);
      await way(docker);
      return;
    } catch (error) {
      failures.push(`${way === fromDebian ? 'docker build on debian:bookworm-slim' : 'debootstrap'}: ${(error as Error).message}`);
    }
  }
  throw new UserError(
    `cannot make the image ${BASE_IMAGE}: ${failures.join('; ')}. Install debootstrap (apt-get install debootstrap) and run, as root: npm run docker-image`,
  );
}

async function noDebootstrap(): Promise<string | undefined> {
  if (!(await hasCommand('debootstrap'))) return 'not installed';
  return process.getuid?.() === 0 ? undefined : 'needs root';
}

async function fromDebootstrap(docker: Docker): Promise<void> {
  const work = await mkdtemp(join(tmpdir(), 'terminal-rsi-base-'));
  const root = join(work, 'root');
  try {
    const args = ['--variant=minbase', `--include=${packages.join(',')}`, suite, root, mirror];
    await run('debootstrap', args, { timeout: buildTimeoutMs, maxBuffer: 64 * 1024 * 1024 }).catch((error: unknown) => {
      const { stdout = '', message } = error as Error & { stdout?: string };
      // Its own messages say more than the exit status.
      throw new Error(
        stdout
          .split('\n')
          .filter((line) => /^[EW]: /.test(line))
          .slice(-3)
          .join(' ') || message,
      );
    });
    for (const path of superfluous)
      for (const entry of await readdir(join(root, path))) await rm(join(root, path, entry), { recursive: true, force: true });
    await mkdir(join(root, 'app'));
    const archive = join(work, 'root.tar');
    await run('tar', [
      '-C',
      root,
      '--numeric-owner',
      '--one-file-system',
      '--exclude=./dev/*',
      '--exclude=./proc/*',
      '--exclude=./sys/*',
      '-cf',
      archive,
      '.',
    ]);
    const changes = [...environment.map((line) => `ENV ${line}`), `LABEL ${label}`, 'WORKDIR /app', 'CMD ["/bin/bash"]'];
    await importArchive(docker, archive, BASE_IMAGE, changes);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function fromDebian(docker: Docker): Promise<void> {
  const context = pack();
  const install = `apt-get update && apt-get install -y --no-install-recommends ${packages.join(' ')} && rm -rf ${superfluous.map((path) => `/${path}/*`).join(' ')}`;
  const lines = [
    `FROM debian:${suite}-slim`,
    ...environment.map((line) => `ENV ${line}`),
    `LABEL ${label}`,
    `RUN ${install}`,
    'WORKDIR /app',
    'CMD ["/bin/bash"]',
  ];
  context.entry({ name: 'Dockerfile' }, `${lines.join('\n')}\n`);
  context.finalize();
  await finished(docker, await docker.buildImage(context as unknown as NodeJS.ReadableStream, { t: BASE_IMAGE }));
}
