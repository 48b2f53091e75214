/**
 * The artifact store: immutable bytes under their own SHA-256, on disk. Histories, results and reports hold references
 * (records/types.ts); whoever reads one back gets exactly the bytes that were written, or an ArtifactError.
 *
 *     <root>/sha256/ab/<hex>   one blob; written to <root>/tmp, fsynced and renamed, so a blob is whole or absent
 *     <root>/trees/<hex>/      a directory artifact laid out as files; a cache that is rebuilt from blobs when damaged
 *
 * A directory is a manifest blob listing its files (sorted path, hash, size); the manifest's hash is the artifact's.
 * Writers may race: the same bytes get the same name, and renames are atomic, so whoever comes last changes nothing.
 * A full or failing disk is an InfrastructureError and leaves nothing but a file in tmp.
 */
import { createHash, randomUUID } from 'node:crypto';
import { constants, createReadStream } from 'node:fs';
import { copyFile, mkdir, open, readFile, readdir, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { onStorage } from '../environment/errors.ts';
import { canonicalJson } from './canonical-json.ts';
import { dataDirectory } from './paths.ts';
import type { ArtifactKind, ArtifactRef } from './types.ts';

const TREE_SCHEMA = 'terminal-rsi/tree@1';
interface TreeManifest {
  readonly schema: typeof TREE_SCHEMA;
  readonly files: readonly TreeFile[];
}
interface TreeFile {
  /** POSIX path relative to the directory. */
  readonly path: string;
  readonly sha256: string;
  readonly bytes: number;
}

/** What identifies an artifact; a whole ArtifactRef fits. */
export type ArtifactId = Pick<ArtifactRef, 'sha256'>;

/** An artifact is missing, or its bytes are not the ones that its reference names. Trying again does not help. */
export class ArtifactError extends Error {
  override readonly name = 'ArtifactError';
  readonly uri: string;
  readonly path: string;
  readonly expected: string;
  /** Hash of what is there; undefined when there is nothing. */
  readonly found: string | undefined;
  constructor(problem: string, details: { sha256: string; path: string; found?: string }) {
    const uri = `artifact:${details.sha256}`;
    super(`${problem}: ${uri} at ${details.path}: expected SHA-256 ${details.sha256}, found ${details.found ?? 'nothing'}`);
    this.uri = uri;
    this.path = details.path;
    this.expected = details.sha256;
    this.found = details.found;
  }
}

export class ArtifactStore {
  readonly root: string;
  /** Trees whose files this process has checked, with what the file system said of them then. */
  readonly #checkedTrees = new Map<string, string>();
  readonly #written: (kind: ArtifactKind, bytes: number) => void;

  /** `written` is told of every blob that was not there before. */
  constructor(root: string, written: (kind: ArtifactKind, bytes: number) => void = () => undefined) {
    this.root = path.resolve(root);
    this.#written = written;
  }

  async putBytes(kind: ArtifactKind, bytes: Uint8Array): Promise<ArtifactRef> {
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    const placed = await onStorage(this.root, () =>
      this.#place(sha256, async (temporary) => {
        const file = await open(temporary, 'wx', 0o644);
        try {
          await file.writeFile(bytes);
          await file.sync();
        } finally {
          await file.close();
        }
      }),
    );
    if (placed) this.#written(kind, bytes.byteLength);
    return reference(kind, sha256, bytes.byteLength);
  }

  /** Stores `value` as canonical JSON (records/canonical-json.ts): equal values give the same artifact. */
  async putJson(kind: ArtifactKind, value: unknown): Promise<ArtifactRef> {
    return this.putBytes(kind, Buffer.from(canonicalJson(value)));
  }

  /** Stores one canonical JSON value a line, each line ended by a newline. */
  async putJsonLines(kind: ArtifactKind, values: readonly unknown[]): Promise<ArtifactRef> {
    return this.putBytes(kind, Buffer.from(values.map((value) => `${canonicalJson(value)}\n`).join('')));
  }

  /** Stores the regular files below `directory`. Empty directories and file modes are not kept; links are refused. */
  async putDirectory(kind: ArtifactKind, directory: string): Promise<ArtifactRef> {
    const files = await onStorage(this.root, async () => {
      const stored: TreeFile[] = [];
      for (const relative of await listFiles(directory))
        stored.push({ path: relative, ...(await this.#putFile(kind, path.join(directory, relative))) });
      return stored;
    });
    const manifest: TreeManifest = { schema: TREE_SCHEMA, files };
    const { sha256 } = await this.putJson(kind, manifest);
    return reference(
      kind,
      sha256,
      files.reduce((sum, file) => sum + file.bytes, 0),
    );
  }

  /** The artifact's bytes. Throws ArtifactError when it is missing or its hash differs. */
  async readBytes(ref: ArtifactId): Promise<Buffer> {
    const file = this.#blobPath(ref.sha256);
    const bytes = await onStorage(file, () => readFile(file)).catch((error: unknown) => {
      throw isMissing(error) ? new ArtifactError('artifact is missing', { sha256: ref.sha256, path: file }) : error;
    });
    const found = createHash('sha256').update(bytes).digest('hex');
    if (found !== ref.sha256) throw new ArtifactError('artifact is corrupt', { sha256: ref.sha256, path: file, found });
    return bytes;
  }

  /** The parsed JSON of an artifact. The hash proves that it is what a writer of type T stored. */
  async readJson<T>(ref: ArtifactId): Promise<T> {
    return JSON.parse((await this.readBytes(ref)).toString('utf8')) as T;
  }

  async readJsonLines<T>(ref: ArtifactId): Promise<T[]> {
    const text = (await this.readBytes(ref)).toString('utf8');
    return text
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as T);
  }

  /**
   * A directory that holds a directory artifact's files. Read only: it is shared by all readers. Its files are checked
   * against the manifest by the first call of a process and again when one was written since, and rebuilt from the blobs when they differ.
   */
  async directory(ref: ArtifactId): Promise<string> {
    const manifest = await this.readJson<Partial<TreeManifest>>(ref);
    if (manifest.schema !== TREE_SCHEMA || manifest.files === undefined) {
      throw new TypeError(`artifact:${ref.sha256} is not a directory artifact (expected a manifest with schema "${TREE_SCHEMA}")`);
    }
    const tree = path.join(this.root, 'trees', ref.sha256);
    const files = manifest.files;
    return await onStorage(tree, async () => {
      const known = this.#checkedTrees.get(ref.sha256);
      if (known !== undefined && known === (await stamp(tree, files))) return tree;
      if (!(await holds(tree, files))) await this.#materialize(tree, files);
      this.#checkedTrees.set(ref.sha256, await stamp(tree, files));
      return tree;
    });
  }

  async #materialize(tree: string, files: readonly TreeFile[]): Promise<void> {
    const temporary = await this.#temporaryPath();
    try {
      await mkdir(temporary);
      for (const file of files) {
        const target = path.join(temporary, file.path);
        await mkdir(path.dirname(target), { recursive: true });
        await this.#copyVerified(file, target);
      }
      await mkdir(path.dirname(tree), { recursive: true });
      for (let attempt = 1; ; attempt++) {
        try {
          await rename(temporary, tree);
          return;
        } catch (error) {
          if (!(isOccupied(error) && attempt <= 5)) throw error;
          // Another process was faster, or a damaged tree is in the way: keep the former, move the latter aside.
          if (await holds(tree, files)) return;
          const aside = await this.#temporaryPath();
          await rename(tree, aside).catch(() => undefined);
          await rm(aside, { recursive: true, force: true });
        }
      }
    } finally {
      await rm(temporary, { recursive: true, force: true });
    }
  }

  async #copyVerified(file: TreeFile, target: string): Promise<void> {
    const blob = this.#blobPath(file.sha256);
    // A copy and not a hard link: whoever writes into a tree by mistake must not change the blob. Free where the file system clones.
    await copyFile(blob, target, constants.COPYFILE_FICLONE).catch((error: unknown) => {
      throw isMissing(error)
        ? new ArtifactError(`file ${file.path} of a directory artifact is missing`, { sha256: file.sha256, path: blob })
        : error;
    });
    const found = await hashFile(target);
    if (found !== file.sha256)
      throw new ArtifactError(`file ${file.path} of a directory artifact is corrupt`, { sha256: file.sha256, path: blob, found });
  }

  async #putFile(kind: ArtifactKind, source: string): Promise<{ sha256: string; bytes: number }> {
    // Copied first and hashed afterwards, so that the hash is of the bytes stored even if the source is being written.
    const temporary = await this.#temporaryPath();
    try {
      await copyFile(source, temporary, constants.COPYFILE_FICLONE);
      const file = await open(temporary, 'r+');
      try {
        await file.sync();
      } finally {
        await file.close();
      }
      const sha256 = await hashFile(temporary);
      const { size } = await stat(temporary);
      if (await this.#place(sha256, undefined, temporary)) this.#written(kind, size);
      return { sha256, bytes: size };
    } finally {
      await rm(temporary, { force: true });
    }
  }

  /** Puts a blob in its place: from `ready` if given, else by calling `write` with a temporary path, and only if it is not there yet. Returns whether it did. */
  async #place(sha256: string, write?: (temporary: string) => Promise<void>, ready?: string): Promise<boolean> {
    const target = this.#blobPath(sha256);
    // A blob that is already there is checked, because a damaged one would otherwise shadow the good bytes at hand.
    if ((await exists(target)) && (await hashFile(target)) === sha256) return false;
    const temporary = ready ?? (await this.#temporaryPath());
    try {
      if (write) await write(temporary);
      await mkdir(path.dirname(target), { recursive: true });
      await rename(temporary, target);
      await syncDirectory(path.dirname(target));
      return true;
    } finally {
      await rm(temporary, { force: true });
    }
  }

  #blobPath(sha256: string): string {
    if (!/^[0-9a-f]{64}$/.test(sha256)) throw new TypeError(`artifact hash ${JSON.stringify(sha256)} is not a hex SHA-256 (64 digits)`);
    return path.join(this.root, 'sha256', sha256.slice(0, 2), sha256);
  }

  async #temporaryPath(): Promise<string> {
    const folder = path.join(this.root, 'tmp');
    await mkdir(folder, { recursive: true });
    return path.join(folder, `${process.pid}-${randomUUID()}`);
  }
}

/** The store of the data folder: `<data>/artifacts`. */
export function openStore(written?: (kind: ArtifactKind, bytes: number) => void): ArtifactStore {
  return new ArtifactStore(path.join(dataDirectory(), 'artifacts'), written);
}

function reference(kind: ArtifactKind, sha256: string, bytes: number): ArtifactRef {
  return { kind, uri: `artifact:${sha256}`, sha256, bytes };
}

async function listFiles(directory: string, prefix = ''): Promise<string[]> {
  const files: string[] = [];
  for (const entry of await readdir(path.join(directory, prefix), { withFileTypes: true })) {
    const relative = path.posix.join(prefix, entry.name);
    if (entry.isDirectory()) files.push(...(await listFiles(directory, relative)));
    else if (entry.isFile()) files.push(relative);
    else throw new TypeError(`${path.join(directory, relative)} is neither a file nor a directory; artifacts hold regular files only`);
  }
  return files.sort((a, b) => (a < b ? -1 : 1));
}

async function holds(tree: string, files: readonly TreeFile[]): Promise<boolean> {
  try {
    const found = await listFiles(tree);
    if (found.length !== files.length || files.some((file, i) => file.path !== found[i])) return false;
    for (const file of files) if ((await hashFile(path.join(tree, file.path))) !== file.sha256) return false;
    return true;
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
}

/** Changes when a file of the tree is written, replaced or removed. */
async function stamp(tree: string, files: readonly TreeFile[]): Promise<string> {
  const stamps: string[] = [];
  for (const file of files) {
    const found = await stat(path.join(tree, file.path)).catch((error: unknown) => {
      if (isMissing(error)) return undefined;
      throw error;
    });
    stamps.push(found ? [found.ino, found.size, found.mtimeMs, found.ctimeMs].join(':') : 'missing');
  }
  return stamps.join(' ');
}

async function hashFile(file: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer);
  return hash.digest('hex');
}

async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function exists(file: string): Promise<boolean> {
  return stat(file).then(
    () => true,
    (error: unknown) => {
      if (isMissing(error)) return false;
      throw error;
    },
  );
}

function errorCode(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException | undefined)?.code;
}
const isMissing = (error: unknown): boolean => errorCode(error) === 'ENOENT';
const isOccupied = (error: unknown): boolean => errorCode(error) === 'ENOTEMPTY' || errorCode(error) === 'EEXIST';
