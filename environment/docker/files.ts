/** Files in and out of a container, as tar archives through the daemon. */
import { posix } from 'node:path';
import type Docker from 'dockerode';
import { extract, pack } from 'tar-stream';
import type { DownloadLimit, FileTree } from '../types.ts';

/** A download stops collecting beyond this many bytes; the files after it are reported as skipped. */
const downloadLimitBytes = 64 * 1024 * 1024;

/**
 * Writes files below `destination`. New parent directories are named in the archive: those that the daemon invents are closed to a root
 * without capabilities. Those that are there keep their owner and mode (/tmp, a workdir of the agent's user).
 */
export async function putFiles(container: Docker.Container, files: FileTree, destination: string): Promise<void> {
  if (files.size === 0) return;
  const archive = pack();
  const known = new Map<string, 'there' | 'new'>([
    ['', 'there'],
    ['.', 'there'],
  ]);
  const directory = async (path: string): Promise<'there' | 'new'> => {
    const found = known.get(path);
    if (found) return found;
    const state = (await directory(posix.dirname(path))) === 'there' && (await exists(container, path)) ? 'there' : 'new';
    known.set(path, state);
    if (state === 'new') archive.entry({ name: `${path}/`, type: 'directory', mode: 0o755 });
    return state;
  };
  for (const [path, entry] of files) {
    const name = posix.join(destination, path).slice(1);
    await directory(posix.dirname(name));
    archive.entry({ name, mode: entry.mode }, Buffer.from(entry.data));
  }
  archive.finalize();
  const chunks: Buffer[] = [];
  for await (const chunk of archive) chunks.push(chunk as Buffer);
  await container.putArchive(Buffer.concat(chunks), { path: '/' });
}

async function exists(container: Docker.Container, path: string): Promise<boolean> {
  try {
    const answer: unknown = await container.infoArchive({ path: `/${path}` });
    // Left unread it would hold its socket, and the process, open for ever.
    (answer as NodeJS.ReadableStream & { destroy(): void }).destroy();
    return true;
  } catch (error) {
    if ((error as { statusCode?: number }).statusCode === 404) return false;
    throw error;
  }
}

/** Regular files below `source`, or the file itself under the empty path; undefined where nothing is there. */
export async function getFiles(container: Docker.Container, source: string, limit?: DownloadLimit): Promise<FileTree | undefined> {
  let archive: NodeJS.ReadableStream;
  try {
    archive = await container.getArchive({ path: source });
  } catch (error) {
    if ((error as { statusCode?: number }).statusCode === 404) return undefined;
    throw error;
  }
  const files: FileTree = new Map();
  let total = 0;
  const reader = extract();
  archive.on('error', (error: Error) => reader.destroy(error));
  archive.pipe(reader);
  for await (const entry of reader) {
    const { name, type, size = 0, mode = 0o644 } = entry.header;
    const path = name.split('/').slice(1).join('/'); // the first part is the source's own name
    const fits = size <= (limit?.maxFileBytes ?? downloadLimitBytes) && total + size <= downloadLimitBytes;
    const chunks: Buffer[] = [];
    for await (const chunk of entry) if (type === 'file' && fits) chunks.push(chunk as Buffer);
    if (type !== 'file') continue;
    if (!fits) {
      limit?.onSkipped(path);
      continue;
    }
    total += size;
    files.set(path, { data: Buffer.concat(chunks), mode: mode & 0o777 });
  }
  return new Map([...files].sort(([a], [b]) => (a < b ? -1 : 1)));
}
