/** A file system of a few megabytes (tmpfs) that a test fills: what a full disk does cannot be told from errors made up. Needs root. */
import { execFile } from 'node:child_process';
import { appendFile, mkdtemp, rm, rmdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

export interface SmallDisk {
  readonly root: string;
  /** Fills it to the last byte but `left`. */
  fill(left?: number): Promise<void>;
  /** Removes what `fill` wrote. */
  free(): Promise<void>;
}

async function use(work: (disk: SmallDisk) => Promise<void>, size = '2m'): Promise<void> {
  const root = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-disk-'));
  await run('mount', ['-t', 'tmpfs', '-o', `size=${size}`, 'terminal-rsi-test', root]);
  const ballast = path.join(root, 'ballast');
  try {
    await work({
      root,
      async fill(left = 0) {
        for (const bytes of [1 << 16, 1 << 12, 1 << 8, 1]) {
          const block = Buffer.alloc(bytes);
          for (let full = false; !full;)
            full = await appendFile(ballast, block).then(
              () => false,
              () => true,
            );
        }
        if (left > 0) await run('truncate', ['-s', `-${left}`, ballast]);
      },
      free: () => rm(ballast),
    });
  } finally {
    await run('umount', [root]);
    await rmdir(root);
  }
}

/** Why it cannot be mounted here, or false. */
async function reason(): Promise<string | false> {
  try {
    await use(() => Promise.resolve());
    return false;
  } catch (error) {
    return `needs a tmpfs, which only root may mount: ${(error as Error).message.trim()}`;
  }
}

export const smallDisk = { skip: await reason(), use } as const;
