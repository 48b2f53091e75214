/**
 * One build of an image by the engine. Its failure is the task's where an instruction fails, and the machine's where the network or
 * the engine does: only the latter is worth another try.
 *
 * The engine's classic builder is used unless the Dockerfile needs BuildKit: it fetches nothing that the Dockerfile does not name
 * (a `# syntax=` line makes BuildKit ask a registry), and keeps no cache beside the images.
 */
import type Docker from 'dockerode';
import { pack } from 'tar-stream';
import { InfrastructureError, TaskError, UserError } from '../errors.ts';
import { CappedOutput } from '../output-cap.ts';
import type { FileTree } from '../types.ts';
import { statusOf } from './engine.ts';

/** Bytes of the build's output in an error: half from its beginning, half from its end. */
const outputBytes = 4096;

export interface BuildRequest {
  /** The task, for messages. */
  readonly place: string;
  readonly name: string;
  readonly context: FileTree;
  readonly labels: Readonly<Record<string, string>>;
  readonly timeoutSec: number;
  readonly signal?: AbortSignal;
}

/** @throws TaskError or InfrastructureError of type SandboxBuildFailedError; InfrastructureError of type EnvironmentStartTimeoutError */
export async function buildImage(docker: Docker, request: BuildRequest): Promise<void> {
  const { place, name, context, labels, timeoutSec, signal } = request;
  const dockerfile = Buffer.from(context.get('Dockerfile')?.data ?? '').toString('utf8');
  const limit = timeoutSec * 1000 < 2 ** 31 ? AbortSignal.timeout(timeoutSec * 1000) : undefined;
  const signals = [limit, signal].filter((each) => each !== undefined);
  const output = new CappedOutput(outputBytes);
  const layers: string[] = [];
  try {
    const stream = await docker.buildImage(await archive(context), {
      t: name,
      labels: { ...labels },
      rm: true,
      forcerm: true,
      ...(needsBuildKit(dockerfile) ? { version: '2' as const } : {}),
      abortSignal: AbortSignal.any(signals),
    });
    await follow(docker, stream, (text) => {
      const [, layer] = /^ ---> ([0-9a-f]{12})\s*$/.exec(text) ?? [];
      if (layer !== undefined) layers.push(layer);
      output.push(Buffer.from(text));
    });
  } catch (error) {
    signal?.throwIfAborted();
    if (limit?.aborted)
      throw new InfrastructureError(`${place}: its image was not built within ${timeoutSec} s (build_timeout_sec)${tail(output)}`, {
        type: 'EnvironmentStartTimeoutError',
      });
    throw buildError(error as Error, output.toString(), place);
  } finally {
    await removeLayers(docker, layers);
  }
}

/** What --mount, --chmod, --link, here-documents and the like are to the classic builder: a syntax error. */
export function needsBuildKit(dockerfile: string): boolean {
  return /^\s*(RUN|COPY|ADD)\s+(--\S+\s+)*--(mount|network|security|chmod|link|parents|exclude|checksum|keep-git-dir)\b|^\s*(RUN|COPY|ADD)\b[^#]*<<-?\s*["']?\w/im.test(
    dockerfile,
  );
}

/** Told apart by what the engine and the failing command say: there is no other sign. */
export function buildError(error: Error, output: string, place: string): Error {
  if (error instanceof UserError) return error;
  const { message } = error;
  const status = statusOf(error);
  const failedCommand = /returned a non-zero code: (\d+)|exit code: (\d+)/.exec(message);
  const code = failedCommand?.[1] ?? failedCommand?.[2];
  // A command that was killed, or says that the network or the machine failed it, would do its work another time.
  const excused = code === '137' || trouble.test(output.slice(-outputBytes / 2));
  const instruction = code !== undefined ? !excused : !trouble.test(message) && (status === 400 || fault.test(message));
  const text = `${place}: its image cannot be built: ${message.trim()}${output.trim() === '' ? '' : `\n${output.trim()}`}`;
  const options = { type: 'SandboxBuildFailedError', cause: error };
  return instruction ? new TaskError(text, options) : new InfrastructureError(text, options);
}

const trouble =
  /temporary failure|could not resolve|name or service not known|no such host|network is unreachable|no route to host|connection (refused|reset|timed out)|timeout|timed out|toomanyrequests|too many requests|50[0234] |no space left|cannot allocate memory|unexpected eof|eai_again|etimedout|econnre/i;
const fault =
  /(copy|add) failed|parse error|unknown (instruction|flag|stage)|requires buildkit|buildkit to be enabled|failed to (compute|calculate|process|parse|read dockerfile)|no such file|not found|invalid|unsupported|empty|expected|cannot|must be|requires/i;

async function archive(context: FileTree): Promise<NodeJS.ReadableStream> {
  const tar = pack();
  // Undated: the engine's cache goes by content.
  for (const [path, { data, mode }] of context) tar.entry({ name: path, mode, mtime: new Date(0) }, Buffer.from(data));
  tar.finalize();
  // A tar-stream is a stream in all but its type.
  return tar as unknown as NodeJS.ReadableStream;
}

interface BuildEvent {
  readonly stream?: string;
  readonly error?: string;
}

function follow(docker: Docker, stream: NodeJS.ReadableStream, onText: (text: string) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    let failure: string | undefined;
    // Decodes BuildKit's messages as well; the published types do not know it.
    const decoding = docker as unknown as {
      followProgress(stream: NodeJS.ReadableStream, done: (error: Error | null) => void, event: (event: BuildEvent) => void): void;
    };
    decoding.followProgress(
      stream,
      (error) => (error ? reject(error) : failure === undefined ? resolve() : reject(new Error(failure))),
      ({ stream: text, error }) => {
        failure ??= error;
        if (text !== undefined) onText(plain(text));
      },
    );
  });
}

/** What a command prints under BuildKit comes out of dockerode as base64. */
function plain(text: string): string {
  const line = text.trimEnd();
  return line.length % 4 === 0 && /^[A-Za-z0-9+/]{2,}={0,2}$/.test(line) && line === Buffer.from(line, 'base64').toString('base64')
    ? Buffer.from(line, 'base64').toString('utf8')
    : text;
}

/**
 * The classic builder's layers that no image came of: those before a failed instruction, and the stages before the last. Nothing names
 * them, so nothing else would ever remove them. What an image needs the engine keeps.
 */
async function removeLayers(docker: Docker, layers: readonly string[]): Promise<void> {
  for (const layer of layers.toReversed()) {
    const image = docker.getImage(layer);
    const named = await image.inspect().then(
      ({ RepoTags: tags }) => tags.length > 0,
      () => true, // gone with the layers above it
    );
    if (!named) await image.remove().catch(() => undefined);
  }
}

function tail(output: CappedOutput): string {
  const text = output.toString().trim();
  return text === '' ? '' : `\n${text}`;
}
