/** Damages that a crash or a full disk leaves: a checkpoint whose bytes are not those that were written, a folder without room. */
import { execFileSync } from 'node:child_process';
import { closeSync, openSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync, writeSync } from 'node:fs';
import { cp, mkdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Random } from '../../method/seeds.ts';

/** Cuts a file of the newest checkpoint of `group` short or flips a bit of it. @returns what was done, for people */
export function tearNewestCheckpoint(data: string, group: string, random: Random): string {
  const names = readdirSync(path.join(data, 'runs'), { recursive: true, encoding: 'utf8' }).map((name) => path.join(data, 'runs', name));
  const files = names.filter(
    (name) => name.includes(`/checkpoints/${group}/steps/step-`) && statSync(name, { throwIfNoEntry: false })?.isFile(),
  );
  const unfinished = files.filter((name) => name.includes('.tmp-'));
  const newest = files
    .map((name) => /step-\d+/.exec(name)?.[0] ?? '')
    .sort()
    .at(-1);
  const candidates = files.filter((name) => !name.includes('.tmp-') && newest !== undefined && name.includes(newest));
  const file = candidates.length > 0 ? random.pick(candidates) : unfinished[0];
  if (file === undefined) return 'there was no checkpoint to damage';
  const place = file.slice(file.indexOf('/steps/') + '/steps/'.length).replace(/\.tmp-[^/]*/, ' (unfinished)');
  const { size } = statSync(file);
  const aside = unfinished.length > 0 ? ', an unfinished checkpoint left' : '';
  if (size === 0 || random.chance(0.5)) {
    const keep = Math.floor(size * random.next());
    truncateSync(file, keep);
    return `${place} cut to ${keep} of ${size} bytes${aside}`;
  }
  const bytes = readFileSync(file);
  const at = random.int(size);
  bytes.writeUInt8(bytes.readUInt8(at) ^ (1 << random.int(8)), at);
  writeFileSync(file, bytes);
  return `a bit of ${place} flipped${aside}`;
}

/** Many times what a smoke run stores. */
const DISK_MIB = 192;
const FILLER = '.filler';

/** A small file system mounted on a folder, which can be filled. Only root can make one. */
export class SmallDisk {
  readonly #folder: string;
  #mounted = true;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  /** Why there cannot be one here, in words; undefined where there can. */
  static refusal(): string | undefined {
    if (process.platform !== 'linux') return `mounting a small disk needs Linux, this is ${process.platform}`;
    if (process.getuid?.() !== 0) return 'mounting a small disk needs root';
    return undefined;
  }

  /** @throws with mount's own words where a container forbids it */
  static async mount(folder: string): Promise<SmallDisk> {
    await mkdir(folder, { recursive: true });
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_MIB}m`, 'terminal-rsi-chaos', folder], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    return new SmallDisk(folder);
  }

  /** Not one more page fits afterwards. */
  fill(): void {
    const file = openSync(path.join(this.#folder, FILLER), 'a');
    try {
      for (const size of [1 << 20, 1 << 12]) while (append(file, size));
    } finally {
      closeSync(file);
    }
  }

  free(): void {
    rmSync(path.join(this.#folder, FILLER), { force: true });
  }

  /** With `keep`, its files stay, on the disk below. */
  async unmount(keep: boolean): Promise<void> {
    if (!this.#mounted) return;
    this.#mounted = false;
    this.free();
    const aside = `${this.#folder}.kept`;
    if (keep) await cp(this.#folder, aside, { recursive: true });
    // Lazily: a process that has just been killed may still be on its way out.
    execFileSync('umount', ['--lazy', this.#folder]);
    if (!keep) return;
    await rm(this.#folder, { recursive: true });
    await rename(aside, this.#folder);
  }
}

function append(file: number, size: number): boolean {
  try {
    return writeSync(file, Buffer.alloc(size)) === size;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOSPC') return false;
    throw error;
  }
}
