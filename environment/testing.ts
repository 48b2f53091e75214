/** What the tests of this folder share: both sandboxes where they can run, a codec of one token per character, a scripted sampler. */
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import Docker from 'dockerode';
import { ensureBaseImage } from './docker/base-image.ts';
import { DockerProvider } from './docker/provider.ts';
import { EmbeddedProvider } from './embedded/provider.ts';
import { ensureShellImage } from './docker/shell-image.ts';
import { loadTask } from './tasks/task.ts';
import type { EpisodeCodec, SampleRequest, SampleResult, Sampler, SandboxProvider, Task } from './types.ts';

export const fixtures = join(import.meta.dirname, '../tests/fixtures/tasks');
export const fixture = (name: string): Promise<Task> => loadTask(join(fixtures, name));
/** Unique per test process, so that counting containers by label sees only this process's own. */
export const testRunKey = `test-${randomUUID()}`;

export interface Backend {
  readonly name: SandboxProvider['kind'];
  /** Why its tests are skipped here, or false. */
  readonly skip: string | false;
  provider(): SandboxProvider;
}

/** The embedded sandbox, and Docker where an engine answers and the image can be made. */
export async function backends(): Promise<Backend[]> {
  const docker = new Docker();
  const skip = await docker.ping().then(
    () =>
      ensureShellImage(docker).then(
        () => false as const,
        (error: Error) => error.message,
      ),
    (error: Error) => `no Docker engine answers: ${error.message}`,
  );
  return [
    { name: 'embedded', skip: false, provider: () => new EmbeddedProvider() },
    { name: 'docker', skip, provider: () => new DockerProvider({ docker }) },
  ];
}

/** Why tests with Debian's programs are skipped here, or false. Makes the image where it is missing, once for all processes. */
export async function noBaseImage(): Promise<string | false> {
  const docker = (await backends()).find(({ name }) => name === 'docker');
  if (docker?.skip !== false) return docker?.skip ?? 'no Docker';
  return await ensureBaseImage(new Docker()).then(
    () => false as const,
    (error: Error) => error.message,
  );
}

/** Containers of this test process, running or not. */
export async function countContainers(runKey: string): Promise<number> {
  return (await new Docker().listContainers({ all: true, filters: { label: [`terminal-rsi.run=${runKey}`] } })).length;
}

const end = 0;
const agent = 1;
const observed = 2;
/** One token per UTF-16 unit, shifted past the three markers. */
export const letterCodec: EpisodeCodec = {
  endOfTurn: end,
  prompt: (harness, instruction) => [...encode(`${harness}:${instruction}`), agent],
  observation: (text, maxTokens) => [observed, ...encode(text).slice(0, maxTokens), agent],
  reply: (_harness, text) => [...encode(text), end],
  decode: (tokens) => String.fromCharCode(...tokens.filter((token) => token !== end).map((token) => token - 3)),
};
function encode(text: string): number[] {
  return [...Array(text.length).keys()].map((index) => text.charCodeAt(index) + 3);
}

/** Says its replies one after another, honest about token limits, and remembers what it was asked. */
export class ScriptedSampler implements Sampler {
  readonly requests: SampleRequest[] = [];
  readonly ended: string[] = [];
  readonly #replies: readonly string[];

  constructor(replies: readonly string[]) {
    this.#replies = replies;
  }

  sample(request: SampleRequest): Promise<SampleResult> {
    const reply = letterCodec.reply('shell', this.#replies[this.requests.length] ?? 'exit');
    this.requests.push(request);
    const tokens = reply.slice(0, request.maxTokens);
    const logprobs = tokens.map((_, index) => -0.25 * (index + 1));
    return Promise.resolve({ tokens, logprobs, stopReason: tokens.length === reply.length ? 'end-of-turn' : 'max-tokens' });
  }

  endSession(sessionId: string): Promise<void> {
    this.ended.push(sessionId);
    return Promise.resolve();
  }
}
