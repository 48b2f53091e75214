/**
 * Runs commands in a container through a supervisor: one long-lived shell on a hijacked exec, about 3 ms a command, where an exec of its
 * own costs the daemon 65 ms. A supervisor runs as one user. sandbox.ts keeps those that are free; a session (session.ts) has its own.
 *
 * Protocol: the host writes shell statements to the supervisor's stdin. What a statement ends with prints a mark on stdout (number, exit
 * code, the moment, memory kills) and one on stderr. Marks begin with a random word that the agent is not shown. Invariants:
 *   1. A command ends when both marks came, when the supervisor ended, or (after a kill) when the grace time is over. Whether the
 *      supervisor lives is asked now and then, since its stream need not end with it (dockerode issue 534: what it started holds it open).
 *   2. A time-out kills everything that the command started, also what moved to a session of its own (processes.ts). If that cannot be
 *      seen to work, the sandbox is given up.
 *   3. A command that kills its supervisor ends with 137; the next one gets a new supervisor.
 *   4. A supervisor whose command was given up (cancelled, failed) is not used again.
 */
import { randomBytes } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type Docker from 'dockerode';
import { quote } from '../tasks/dockerfile.ts';
import { InfrastructureError } from '../errors.ts';
import { CappedOutput } from '../output-cap.ts';
import type { ExecOptions, ExecResult } from '../types.ts';
import { assertRunning, reasonOf } from './container-state.ts';
import type { Engine } from './container-state.ts';
import { killProcesses } from './processes.ts';
import type { Moment } from './processes.ts';
import { Demultiplexer, MarkReader } from './stream.ts';

/** After a kill: how long the end marks may take. */
const graceMs = 10_000;
/** After the supervisor's end: how long the container may take to be seen dead. */
const settleMs = 500;
const pollMs = 50;
/** How often a running command's supervisor is asked for. */
const watchMs = 2000;
/** 128 + SIGKILL. */
const killed = 137;

/** A number: the end of that statement. For sessions: `shell`: its shell ended; `none`: it had ended before; or a shell variable. */
export type MarkKind = number | 'shell' | 'none' | '"$_rsi_number"';
interface Mark {
  readonly kind: string;
  readonly exitCode: number;
}
interface Running {
  readonly stdout: CappedOutput;
  readonly stderr: CappedOutput;
  finish(exitCode: number): void;
  fail(error: Error): void;
}

export class Supervisor {
  readonly user: string | undefined;
  readonly #engine: Engine;
  readonly #word = randomBytes(16).toString('hex');
  readonly #exec: Docker.Exec;
  readonly #stream: Duplex;
  #running: Running | undefined;
  /** The marks that came on stdout and on stderr since both last agreed. */
  #marked: Mark | undefined;
  #errorMark: string | undefined;
  #count = 0;
  #usable = true;
  #pid = 0;
  #bash = false;
  #memoryFile = '"$F"'; // the prelude's variable, until its value is known
  #lastMark = '';
  /** The process that made the last mark: the supervisor or its session's shell. */
  #speaker = 0;

  /**
   * @throws TaskError for a user that the image does not know; SandboxDiedError, EngineLostError, InfrastructureError
   */
  static async open(engine: Engine, user?: string): Promise<Supervisor> {
    try {
      const exec = await engine.container.exec({
        // By their places, here and below: the agent may have put others of their names first in PATH.
        Cmd: [
          '/bin/sh',
          '-c',
          'for b in /bin/bash /usr/bin/bash; do [ -x $b ] && exec $b; done; command -v bash >/dev/null && exec bash; exec sh',
        ],
        WorkingDir: '/', // the task's may be gone
        AttachStdin: true,
        AttachStdout: true,
        AttachStderr: true,
        Tty: false,
        ...(user === undefined ? {} : { User: user === 'root' ? '0' : user }),
      });
      const supervisor = new Supervisor(engine, user, exec, await exec.start({ hijack: true, stdin: true }));
      await supervisor.#hello();
      return supervisor;
    } catch (error) {
      throw await reasonOf(engine, error, user);
    }
  }

  private constructor(engine: Engine, user: string | undefined, exec: Docker.Exec, stream: Duplex) {
    this.#engine = engine;
    this.user = user;
    this.#exec = exec;
    this.#stream = stream;
    const readers = {
      stdout: new MarkReader(
        this.#word,
        (bytes) => this.#running?.stdout.push(bytes),
        (text) => this.#onMark(text),
      ),
      stderr: new MarkReader(
        this.#word,
        (bytes) => this.#running?.stderr.push(bytes),
        (text) => {
          this.#errorMark = text;
          this.#onBothMarks();
        },
      ),
    };
    const demultiplexer = new Demultiplexer((source, payload) => readers[source].push(payload));
    stream.on('data', (chunk: Buffer) => demultiplexer.push(chunk));
    const ended = (): void => {
      readers.stdout.flush();
      readers.stderr.flush();
      void this.#gone();
    };
    for (const event of ['end', 'close', 'error']) stream.once(event, ended);
    stream.on('error', () => undefined);
  }

  /** False once it ended or a command of it was given up. */
  get usable(): boolean {
    return this.#usable;
  }
  /** The kind of the last mark, as text. */
  get lastMark(): string {
    return this.#lastMark;
  }
  /** Whether it and the shells that it starts are bash; else the image's sh. */
  get bash(): boolean {
    return this.#bash;
  }
  /** Its process in the container. */
  get pid(): number {
    return this.#pid;
  }
  /** Kills what a statement after `since` has left, and the session's shell. Resolves when it is gone. */
  kill(since: Moment): Promise<void> {
    const shells = [...new Set([this.#pid, this.#speaker])];
    return killProcesses(this.#engine.docker, this.#engine.container, { shells, since });
  }

  /** Runs `command` with a fresh shell and session (setsid), without stdin. */
  run(command: string, options: ExecOptions & { readonly cwd: string; readonly maxOutputBytes?: number }): Promise<ExecResult> {
    const exports = Object.entries(options.env ?? {}).map(([key, value]) => ` && export ${quote(`${key}=${value}`)}`);
    const launch = `cd ${quote(options.cwd)}${exports.join('')} && exec $N "\${BASH:-/bin/sh}" -c ${quote(command)} bash </dev/null 3>&-`;
    return this.statement((number) => `(${launch}) 2>&3\n${this.mark(number, 1, 3)}\n`, options);
  }

  /**
   * Writes the statement and waits for the mark in it.
   * @throws SandboxDiedError, EngineLostError, InfrastructureError, or the signal's reason; this supervisor is not to be used after it
   */
  async statement(
    text: (number: number) => string,
    { timeoutSec, signal, maxOutputBytes }: Pick<ExecOptions, 'timeoutSec' | 'signal'> & { readonly maxOutputBytes?: number },
  ): Promise<ExecResult> {
    signal?.throwIfAborted();
    const [stdout, stderr] = [new CappedOutput(maxOutputBytes), new CappedOutput(maxOutputBytes)];
    const [started, { moment: since, memoryKills: kills }] = [performance.now(), { ...this.#engine.seen }];
    let timer: NodeJS.Timeout | undefined;
    let watch: NodeJS.Timeout | undefined;
    let killing: Promise<void> | undefined;
    let onAbort: (() => void) | undefined;
    try {
      const exitCode = await new Promise<number>((resolve, reject) => {
        this.#running = { stdout, stderr, finish: resolve, fail: reject };
        onAbort = () => reject(abortReason(signal));
        signal?.addEventListener('abort', onAbort, { once: true });
        watch = setInterval(() => void this.#look(), watchMs);
        const strike = (blow: Promise<void>, ifSilent: () => void): void => {
          killing = blow;
          blow.then(() => {
            // The supervisor was killed before, perhaps, and its stream is held open by what lives on.
            void this.#look();
            timer = setTimeout(ifSilent, graceMs);
          }, reject);
        };
        if (timeoutSec * 1000 < 2 ** 31) {
          timer = setTimeout(() => {
            // Nothing of the agent's runs in a supervisor that has not said who it is.
            if (this.#pid === 0) return reject(new InfrastructureError(`no shell answers in the container within ${timeoutSec} s`));
            strike(this.kill(since), () => {
              // It waits for a place in the table of processes, which earlier commands' fill. Nothing but their end frees it.
              strike(killProcesses(this.#engine.docker, this.#engine.container, 'all'), () => reject(silent()));
            });
          }, timeoutSec * 1000);
        }
        if (this.#usable) this.#stream.write(text(++this.#count));
        else void this.#gone();
      });
      // The shell is dead when its marks come; what it started is when the killer found no more of it.
      await killing;
      const timedOut = killing !== undefined;
      const oomKills = kills === undefined ? 0 : (this.#engine.seen.memoryKills ?? 0) - kills;
      return {
        stdout: stdout.toString(),
        stderr: stderr.toString(),
        exitCode: timedOut ? killed : exitCode,
        timedOut,
        seconds: (performance.now() - started) / 1000,
        ...(oomKills > 0 ? { oomKills } : {}),
      };
    } catch (error) {
      this.close();
      throw error;
    } finally {
      clearTimeout(timer);
      clearInterval(watch);
      if (onAbort) signal?.removeEventListener('abort', onAbort);
      this.#running = undefined;
    }
  }

  /** Statements that print a mark to the descriptors `out` and `err`, with nothing but builtins: a fork may be refused. */
  mark(kind: MarkKind, out: number, err: number): string {
    return (
      `{ _rsi_code=$? _rsi_kills=; while IFS= read -r _rsi_line; do case $_rsi_line in "oom_kill "*) _rsi_kills=$_rsi_line; esac; done <${this.#memoryFile}; ` +
      `IFS= read -r _rsi_time </proc/uptime; IFS= read -r _rsi_load </proc/loadavg; ` +
      // The mark's own text stands nowhere in this statement, which a shell may be made to show.
      `printf '%s.%s %d|%s|%s|%s|%d\\n' ${this.#word} ${kind} "$_rsi_code" "$_rsi_time" "$_rsi_load" "$_rsi_kills" $$ >&${out}; ` +
      `printf '%s.%s\\n' ${this.#word} ${kind} >&${err}; } 2>/dev/null${out === 1 ? '' : ' >/dev/null'}`
    );
  }

  close(): void {
    this.#usable = false;
    this.#stream.destroy();
  }

  /** Learns the supervisor's process and where the container's memory kills are counted. */
  async #hello(): Promise<void> {
    // The supervisor's own messages (`Killed …`) are not the command's: its stderr is closed, descriptor 3 leads to the host.
    const prelude =
      `exec 3>&2 2>/dev/null; S=sh; [ -n "$BASH" ] && S=bash; N=; for n in /bin/setsid /usr/bin/setsid; do [ -x $n ] && N=$n; done; F=/dev/null; ` +
      `for f in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do [ -r $f ] && F=$f; done; ` +
      // Docker gives every user the HOME of the container where that is set.
      `U=\${UID:-$(id -u 2>/dev/null)}; [ "\${U:-0}" = 0 ] || while IFS=: read -r n p u g c h s; do [ "$u" = "$U" ] && export HOME="$h"; done </etc/passwd; `;
    const { stdout } = await this.statement((number) => `${prelude}printf '%s %s %s\\n' $$ $F "$BASH"\n${this.mark(number, 1, 3)}\n`, {
      timeoutSec: 60,
    });
    const [pid, file, bash = ''] = stdout.trim().split(' ');
    if (!/^\d+$/.test(pid ?? '')) throw new InfrastructureError(`the shell in the container says ${JSON.stringify(stdout.slice(0, 200))}`);
    this.#pid = Number(pid);
    this.#memoryFile = file ?? '/dev/null';
    this.#bash = bash !== '';
  }

  /** `<kind> <exit code>|<uptime>|<load average>|oom_kill <count>|<process of the shell that says it>` */
  #onMark(text: string): void {
    const [head = '', uptime = '', load = '', kills = '', pid] = text.split('|');
    this.#speaker = Number(pid);
    const [kind = '', exitCode] = head.split(' ');
    this.#marked = { kind, exitCode: Number(exitCode) };
    const [ticks, lastPid] = [Number(uptime.split(' ')[0]?.replace('.', '')), Number(load.split(' ').at(-1))];
    const { seen } = this.#engine;
    if (ticks >= seen.moment.ticks && lastPid > 0) seen.moment = { ticks, lastPid };
    const count = Number(kills.split(' ')[1] ?? NaN);
    if (count >= (seen.memoryKills ?? 0)) seen.memoryKills = count;
    this.#onBothMarks();
  }

  /** Both streams' marks came, in whichever order. */
  #onBothMarks(): void {
    const mark = this.#marked;
    if (mark === undefined || mark.kind !== this.#errorMark) return;
    this.#lastMark = mark.kind;
    this.#marked = this.#errorMark = undefined;
    this.#running?.finish(mark.exitCode);
  }

  /** Whether the supervisor still runs, which its stream need not say. */
  async #look(): Promise<void> {
    const state = await this.#exec.inspect().catch(() => undefined);
    if (state?.Running === false) await this.#gone();
  }

  /** The supervisor ended: did the command kill it, or is the container dead? */
  async #gone(): Promise<void> {
    this.#usable = false;
    const running = this.#running;
    if (!running) return;
    try {
      // The stream of a dying container ends a little before its state says so.
      for (const end = performance.now() + settleMs; performance.now() < end; await sleep(pollMs)) await assertRunning(this.#engine);
      running.finish(killed);
    } catch (error) {
      running.fail(error as Error);
    }
  }
}

function silent(): InfrastructureError {
  return new InfrastructureError(`a timed-out command was killed, and its shell says nothing for ${graceMs} ms; the sandbox is given up`);
}

function abortReason(signal: AbortSignal | undefined): Error {
  return signal?.reason instanceof Error ? signal.reason : new Error('aborted');
}
