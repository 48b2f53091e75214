/**
 * The processes that the benchmark compares, one per engine, so that no engine's threads or memory are another's: started once per workload,
 * idle while another one is measured. Protocol: peer.py.
 */
import { spawn } from 'node:child_process';
import type { ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { InfrastructureError } from '../../../environment/errors.ts';
import { busySeconds } from '../environments.ts';

export const ENGINES = ['graph', 'eager', 'torch', 'torch-cdf', 'torch-compile', 'jax'] as const;
export type Engine = (typeof ENGINES)[number];
export const NAMES: Readonly<Record<Engine, string>> = {
  graph: 'ours, graphs',
  eager: 'ours, eager',
  torch: 'PyTorch',
  'torch-cdf': 'PyTorch, one uniform a draw',
  'torch-compile': 'PyTorch, torch.compile',
  jax: 'JAX',
};

/** What an engine says once it is ready. */
export interface Answer {
  /** Loading, tracing, compiling and the warm-up, imports not counted. */
  readonly prepareSeconds: number;
  readonly versions: Readonly<Record<string, string | number>>;
  /** training: of the first steps. */
  readonly losses?: readonly number[];
  readonly gradientNorms?: readonly number[];
  /** sampling: the tokens of every row, and their log-probabilities as the engine had them while it drew. */
  readonly tokens?: readonly (readonly number[])[];
  readonly logprobs?: readonly (readonly number[])[];
  /** The form that was chosen where an engine has several, and the seconds of each. */
  readonly variant?: string;
  readonly variants?: Readonly<Record<string, number>>;
}
export interface MeasuredRound {
  /** training: of each step; sampling: of the whole batch. */
  readonly seconds: readonly number[];
}

export class Peer {
  readonly engine: Engine;
  readonly ours: boolean;
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #lines: AsyncIterator<string>;
  readonly #ended: Promise<unknown>;
  #errors = '';

  /** @param python interpreter of the Python engines */
  constructor(engine: Engine, spec: string, { threads, python }: { readonly threads: number; readonly python: string | undefined }) {
    this.engine = engine;
    this.ours = engine === 'graph' || engine === 'eager';
    const file = (name: string): string => join(import.meta.dirname, name);
    const [command, args] = this.ours
      ? [process.execPath, ['--import', 'tsx', file('ours.ts'), spec]]
      : [python ?? 'python3', [file(engine === 'jax' ? 'jax_peer.py' : 'torch_peer.py'), spec, engine]];
    const env = { ...process.env, TERMINAL_RSI_TF_THREADS: String(threads), ...(this.ours && { TERMINAL_RSI_ENGINE: engine }) };
    this.#child = spawn(command, args, { env, stdio: ['pipe', 'pipe', 'pipe'] });
    this.#ended = once(this.#child, 'close').catch((error: Error) => (this.#errors += error.message));
    this.#child.stderr.on('data', (data: Buffer) => (this.#errors = (this.#errors + data.toString()).slice(-2000)));
    // A process that has ended is told by the end of its output.
    this.#child.stdin.on('error', () => undefined);
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  /** @throws InfrastructureError with the end of what the process wrote to stderr */
  ready(): Promise<Answer> {
    return this.#answer<Answer>();
  }

  /** One measured round, and the processor time that other processes took meanwhile: 1 is one whole processor. */
  async round(): Promise<MeasuredRound & { readonly others: number }> {
    const started = performance.now();
    const [busy, own] = [busySeconds(), this.#cpuSeconds()];
    this.#child.stdin.write('\n');
    const { seconds } = await this.#answer<MeasuredRound>();
    const others = busySeconds() - busy - (this.#cpuSeconds() - own);
    return { seconds, others: Math.max(0, others / ((performance.now() - started) / 1000)) };
  }

  async stop(): Promise<void> {
    this.#child.stdin.end();
    this.#child.kill();
    await this.#ended;
  }

  async #answer<T>(): Promise<T> {
    const line = await this.#lines.next();
    if (line.done !== true) return JSON.parse(line.value) as T;
    await this.#ended;
    throw new InfrastructureError(`${NAMES[this.engine]} ended without an answer: ${reasonIn(this.#errors)}`);
  }

  /** User and system time of the process so far (fields 14 and 15 of /proc/PID/stat, in hundredths of a second). */
  #cpuSeconds(): number {
    const stat = readFileSync(`/proc/${this.#child.pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return (Number(fields[11]) + Number(fields[12])) / 100;
  }
}

/** The line that names an error, which Python puts last and Node does not; without one the last line. */
function reasonIn(text: string): string {
  const lines = text.trim().split('\n');
  return lines.findLast((line) => /^\w*(Error|Exception)\b/.test(line)) ?? lines.at(-1) ?? '';
}
