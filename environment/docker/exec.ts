/**
 * Runs commands in a container through one long-lived supervisor shell on a hijacked exec: about 3 ms a command,
 * where an exec of its own costs the daemon 65 ms.
 *
 * Protocol: the host writes one shell statement per command to the supervisor's stdin. It runs the command in a fresh
 * shell and session (setsid) without stdin, then prints an end mark with the exit code on stdout and a mark on stderr.
 * Marks hold a random word that the agent is never shown. Invariants:
 *   1. An exec ends when both marks came, when the stream ended, or (after a kill) when the grace time is over;
 *      a stream that never ends (dockerode issue 534) cannot hang it.
 *   2. A time-out kills inside the container every process that carries the command's TERMINAL_RSI_EXEC variable: the whole
 *      group, and also what moved to a session of its own. If that cannot be seen to work, the sandbox is given up.
 *   3. A command that kills the supervisor ends with 137; the next one gets a new supervisor.
 */
import { randomBytes } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type Docker from 'dockerode';
import { quote } from '../tasks/dockerfile.ts';
import { EngineLostError, InfrastructureError } from '../errors.ts';
import { CappedOutput } from '../output-cap.ts';
import type { ExecOptions, ExecResult } from '../types.ts';

/** After a kill: how long the end marks may take. */
const graceMs = 5000;
/** After the supervisor's stream ended: how long the container may take to be seen dead. */
const settleMs = 500;
const pollMs = 50;
/** 128 + SIGKILL. */
const killed = 137;

/** Kills every process whose environment holds the word $1, again and again until none is left. Zombies have no environment. */
const killScript = `i=0; while [ $i -lt 40 ]; do n=0
for d in /proc/[0-9]*; do if tr '\\0' '\\n' < $d/environ 2>/dev/null | grep -qxF "$1"; then kill -9 \${d#/proc/}; n=1; fi; done 2>/dev/null
[ $n = 0 ] && exit 0; i=$((i+1)); sleep 0.05; done; exit 1`;

interface Running {
  readonly mark: string;
  readonly stdout: MarkedOutput;
  readonly stderr: MarkedOutput;
  finish(exitCode: number): void;
  fail(error: Error): void;
}

export class ContainerShell {
  readonly #container: Docker.Container;
  readonly #word = randomBytes(16).toString('hex');
  #stream: Duplex | undefined;
  #running: Running | undefined;
  #count = 0;
  #queue: Promise<unknown> = Promise.resolve();

  constructor(container: Docker.Container) {
    this.#container = container;
  }

  /** One command at a time: calls wait for each other. */
  exec(command: string, options: ExecOptions & { readonly cwd: string }): Promise<ExecResult> {
    const result = this.#queue.then(() => this.#exec(command, options));
    this.#queue = result.catch(() => undefined);
    return result;
  }

  close(): void {
    this.#stream?.destroy();
    this.#stream = undefined;
  }

  async #exec(command: string, options: ExecOptions & { readonly cwd: string }): Promise<ExecResult> {
    options.signal?.throwIfAborted();
    const stream = (this.#stream ??= await this.#open());
    const number = ++this.#count;
    const mark = `${this.#word}.${number}`;
    const tag = `TERMINAL_RSI_EXEC=${number}`;
    const exports = [tag, ...Object.entries(options.env ?? {}).map(([key, value]) => `${key}=${value}`)].map(quote).join(' ');
    const statement =
      `(cd ${quote(options.cwd)} && export ${exports} && exec setsid "$S" -c ${quote(command)} bash </dev/null 3>&-) 2>&3; ` +
      `printf '%s %d\\n' ${mark} $?; printf '%s 0\\n' ${mark} >&3\n`;

    const stdout = new MarkedOutput(mark);
    const stderr = new MarkedOutput(mark);
    const started = performance.now();
    let timer: NodeJS.Timeout | undefined;
    let killing: Promise<void> | undefined;
    let onAbort: (() => void) | undefined;
    try {
      const exitCode = await new Promise<number>((resolve, reject) => {
        this.#running = { mark, stdout, stderr, finish: resolve, fail: reject };
        onAbort = () => reject(abortReason(options.signal));
        options.signal?.addEventListener('abort', onAbort, { once: true });
        const milliseconds = options.timeoutSec * 1000;
        if (milliseconds < 2 ** 31) {
          timer = setTimeout(() => {
            timer = setTimeout(() => reject(survived()), graceMs);
            killing = this.#kill(tag);
            killing.catch(reject);
          }, milliseconds);
        }
        stream.write(statement);
      });
      // The shell is dead when its marks come; what it started is when the killer found no more of it.
      await killing;
      const timedOut = killing !== undefined;
      const seconds = (performance.now() - started) / 1000;
      return { stdout: stdout.toString(), stderr: stderr.toString(), exitCode: timedOut ? killed : exitCode, timedOut, seconds };
    } finally {
      clearTimeout(timer);
      if (onAbort) options.signal?.removeEventListener('abort', onAbort);
      this.#running = undefined;
    }
  }

  async #open(): Promise<Duplex> {
    const exec = await this.#container.exec({ Cmd: ['/bin/sh'], AttachStdin: true, AttachStdout: true, AttachStderr: true, Tty: false });
    const stream = await exec.start({ hijack: true, stdin: true });
    const demultiplexer = new Demultiplexer((source, payload) => this.#receive(source, payload));
    stream.on('data', (chunk: Buffer) => demultiplexer.push(chunk));
    const ended = (): void => {
      if (this.#stream !== stream) return;
      this.#stream = undefined;
      void this.#supervisorGone();
    };
    for (const event of ['end', 'close', 'error']) stream.on(event, ended);
    // The supervisor's own messages (`Killed …`) are not the command's: its stderr is closed, descriptor 3 leads to the host.
    stream.write('exec 3>&2 2>/dev/null; S=/bin/sh; [ -x /bin/bash ] && S=/bin/bash\n');
    return stream;
  }

  #receive(source: 'stdout' | 'stderr', payload: Buffer): void {
    const running = this.#running;
    if (!running) return; // a background process between two commands
    running[source].push(payload);
    if (running.stdout.exitCode !== undefined && running.stderr.exitCode !== undefined) running.finish(running.stdout.exitCode);
  }

  /** The stream ended: did the command kill its supervisor, or is the container dead? */
  async #supervisorGone(): Promise<void> {
    const running = this.#running;
    if (!running) return;
    try {
      // The stream of a dying container ends a little before its state says so.
      for (const end = performance.now() + settleMs; performance.now() < end; await sleep(pollMs)) {
        const { State: state } = await this.#container.inspect();
        if (!state.Running)
          throw new InfrastructureError(`the sandbox died: exit code ${state.ExitCode}${state.OOMKilled ? ', out of memory' : ''}`);
      }
      running.finish(killed);
    } catch (error) {
      // An engine that cannot be asked is gone itself, or forgot the container in a restart.
      if (error instanceof InfrastructureError) running.fail(error);
      else running.fail(new EngineLostError(`the sandbox is lost: ${(error as Error).message}`));
    }
  }

  /** Returns when no process of the command is left. */
  async #kill(tag: string): Promise<void> {
    const exec = await this.#container.exec({ Cmd: ['/bin/sh', '-c', killScript, 'sh', tag] });
    // The answer has no content, but left unread it would hold its socket, and the process, open for ever.
    (await exec.start({ Detach: true })).destroy();
    for (const end = performance.now() + graceMs; performance.now() < end; await sleep(pollMs)) {
      const state = await exec.inspect();
      if (state.Running) continue;
      if (state.ExitCode === 0) return;
      break;
    }
    throw survived();
  }
}

function survived(): InfrastructureError {
  return new InfrastructureError(`processes of a timed-out command outlived their kill by ${graceMs} ms; the sandbox is given up`);
}

/** Splits Docker's multiplexed stream: 8 bytes of header (stream number, 3 zeros, length) before each payload. */
class Demultiplexer {
  readonly #receive: (source: 'stdout' | 'stderr', payload: Buffer) => void;
  #rest = Buffer.alloc(0);

  constructor(receive: (source: 'stdout' | 'stderr', payload: Buffer) => void) {
    this.#receive = receive;
  }

  push(chunk: Buffer): void {
    let data = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    while (data.length >= 8) {
      const length = data.readUInt32BE(4);
      if (data.length < 8 + length) break;
      this.#receive(data[0] === 2 ? 'stderr' : 'stdout', data.subarray(8, 8 + length));
      data = data.subarray(8 + length);
    }
    this.#rest = Buffer.from(data);
  }
}

/** Output up to an end mark `<mark> <exit code>\n`, capped. The mark may be split over chunks. */
class MarkedOutput {
  readonly #mark: Buffer;
  readonly #output = new CappedOutput();
  #pending = Buffer.alloc(0);
  /** Set once the mark came. */
  exitCode: number | undefined;

  constructor(mark: string) {
    this.#mark = Buffer.from(`${mark} `);
  }

  push(chunk: Buffer): void {
    if (this.exitCode !== undefined) return;
    const data = Buffer.concat([this.#pending, chunk]);
    const at = data.indexOf(this.#mark);
    if (at !== -1) {
      const end = data.indexOf(10, at);
      if (end !== -1) {
        this.exitCode = Number(data.subarray(at + this.#mark.length, end).toString());
        this.#output.push(data.subarray(0, at));
        this.#pending = Buffer.alloc(0);
        return;
      }
    }
    // What may be the beginning of the mark stays behind.
    const safe = at !== -1 ? at : Math.max(0, data.length - this.#mark.length);
    this.#output.push(data.subarray(0, safe));
    this.#pending = Buffer.from(data.subarray(safe));
  }

  toString(): string {
    if (this.#pending.length > 0) this.#output.push(this.#pending);
    this.#pending = Buffer.alloc(0);
    return this.#output.toString();
  }
}

function abortReason(signal: AbortSignal | undefined): Error {
  return signal?.reason instanceof Error ? signal.reason : new Error('aborted');
}
