/**
 * A shell that lives on between commands, as in a terminal. It is a child of a supervisor (exec.ts) and reads from the same stream: a loop
 * in it takes the lines of a command and gives them to `eval`, so that a command cannot run into the next one, and what it does to the
 * shell stays.
 *
 * The shell belongs to the agent. It may end it (`exit`, `exec`, `kill -9 $$`, `set -e`): then the supervisor, which waits for it, says
 * so, and the next command gets a new shell. It may redirect the shell's output for good: marks go through descriptors of their own,
 * which are closed while a command runs. If it prevents the mark all the same, the command's time-out ends the shell.
 */
import { quote } from '../tasks/dockerfile.ts';
import type { ExecOptions, ExecResult, ShellSession } from '../types.ts';
import type { Moment } from './processes.ts';
import type { Engine } from './container-state.ts';
import type { Supervisor } from './exec.ts';

/** Where marks go. Bash takes any number, other shells one digit. */
const bashMarks = [250, 251] as const;
const shMarks = [8, 9] as const;
/** For what is ours: to start a shell, to look at the processes. */
const ownSec = 60;
/** For EXIT traps when the session is closed. */
const exitSec = 5;

export interface SessionOptions {
  readonly workdir: string;
  readonly env: Readonly<Record<string, string>>;
  /** Gives a supervisor that nobody else uses. */
  open(): Promise<Supervisor>;
  /** Takes a supervisor back. */
  release(supervisor: Supervisor): void;
}

export class ContainerSession implements ShellSession {
  readonly #engine: Engine;
  readonly #options: SessionOptions;
  #supervisor: Supervisor | undefined;
  /** The shell is there, as far as is known. */
  #shell = false;
  #status = 0;
  #busy = false;
  /** When the session began, and what ran then. */
  #since: Moment | undefined;
  #before = new Set<string>();
  #queue: Promise<unknown> = Promise.resolve();
  #closing: Promise<void> | undefined;

  constructor(engine: Engine, options: SessionOptions) {
    this.#engine = engine;
    this.#options = options;
  }

  run(command: string, options: Pick<ExecOptions, 'timeoutSec' | 'signal'>): Promise<ExecResult> {
    const result = this.#queue.then(() => {
      this.#busy = true;
      return this.#run(command, options).finally(() => (this.#busy = false));
    });
    this.#queue = result.catch(() => undefined);
    return result;
  }

  close(): Promise<void> {
    this.#closing ??= this.#close().catch(() => this.#supervisor?.close());
    return this.#closing;
  }

  async #run(command: string, options: Pick<ExecOptions, 'timeoutSec' | 'signal'>): Promise<ExecResult> {
    for (;;) {
      options.signal?.throwIfAborted();
      if (this.#closing) throw new Error('the shell session is closed');
      const supervisor = await this.#ready();
      const result = await supervisor.statement((number) => this.#statement(supervisor, number, command), options);
      this.#shell = supervisor.usable && /^\d+$/.test(supervisor.lastMark);
      this.#status = this.#shell ? result.exitCode : 0;
      // The shell had ended between two commands, so this one did not run.
      if (supervisor.lastMark !== 'none' || !supervisor.usable) return result;
    }
  }

  /** The supervisor, with the session's shell waiting for a statement. */
  async #ready(): Promise<Supervisor> {
    if (!this.#supervisor?.usable) {
      this.#shell = false;
      this.#supervisor = await this.#options.open();
    }
    const supervisor = this.#supervisor;
    if (this.#shell && supervisor.lastMark !== 'shell') return supervisor;
    const { workdir, env } = this.#options;
    if (this.#since === undefined) {
      this.#before = await this.#processes(supervisor);
      this.#since = this.#engine.seen.moment;
    }
    const exports = Object.entries(env).map(([key, value]) => `export ${quote(`${key}=${value}`)}; `);
    const [out, err] = marksOf(supervisor);
    await supervisor.statement(
      (number) =>
        // The mark comes before the shell does: what is written meanwhile waits in the pipe. One line, for the shell reads from there on.
        `(cd ${quote(workdir)} 2>/dev/null || cd /; ${exports.join('')}${supervisor.mark(number, 1, 3)}; ` +
        `exec $N $S ${out}>&1 ${err}>&3 2>&3 3>&-); ${supervisor.mark('shell', 1, 3)}\n`,
      { timeoutSec: ownSec },
    );
    this.#shell = true;
    this.#status = 0;
    await supervisor.statement((number) => this.#loop(supervisor, number), { timeoutSec: ownSec });
    return supervisor;
  }

  /**
   * The session's loop, on one line so that errors of a command tell its own lines. It reads `: <status> <number> …`, the command's
   * lines behind `#`, and a line without. `$?` is then what the command before left. The mark comes at the head of the loop, where a
   * `continue` of the agent goes too; the outer loop is for its `break`.
   */
  #loop(supervisor: Supervisor, number: number): string {
    const [out, err] = marksOf(supervisor);
    const read =
      `IFS=' ' read -r _rsi_line _rsi_status _rsi_number _rsi_line || exit; _rsi_command=; ` +
      `while IFS= read -r _rsi_line; do case $_rsi_line in "#"*) _rsi_command=$_rsi_command\${_rsi_line#?}$_rsi_newline;; *) break;; esac; done`;
    const evaluate = `{ eval "$_rsi_command"; } </dev/null ${out}>&- ${err}>&-`;
    return (
      `_rsi_newline=$(printf '\\n.'); _rsi_newline=\${_rsi_newline%.}; _rsi_number=${number}; while :; do ` +
      `while { ${supervisor.mark('"$_rsi_number"', out, err)}; ${read}; } >/dev/null 2>&1; do ` +
      `if { [ "$_rsi_status" = 0 ] || (exit "$_rsi_status"); } 2>/dev/null; then ${evaluate}; else ${evaluate}; fi; done; done; exit\n`
    );
  }

  /** Where the shell has ended, the supervisor reads this: a mark, comments, nothing. */
  #statement(supervisor: Supervisor, number: number, command: string): string {
    const lines = command.split('\n').map((line) => `#${line}\n`);
    return `: ${this.#status} ${number} ; ${supervisor.mark('none', 1, 3)}\n${lines.join('')}:\n`;
  }

  /** The process ids of the container, as /proc names them. */
  async #processes(supervisor: Supervisor): Promise<Set<string>> {
    const { stdout } = await supervisor.statement((number) => `echo /proc/[0-9]*\n${supervisor.mark(number, 1, 3)}\n`, {
      timeoutSec: ownSec,
    });
    return new Set(stdout.trim().split(' '));
  }

  async #close(): Promise<void> {
    const supervisor = this.#supervisor;
    if (this.#since === undefined || !supervisor) return;
    const busy = this.#busy;
    if (!busy && supervisor.usable) {
      // The shell ends by itself, and the supervisor sees whether it leaves something.
      if (this.#shell && supervisor.lastMark !== 'shell')
        await supervisor.statement((number) => this.#statement(supervisor, number, 'exit'), { timeoutSec: exitSec });
      const left = [...(await this.#processes(supervisor))].filter((process) => !this.#before.has(process));
      if (left.length === 0) return this.#options.release(supervisor);
    }
    await supervisor.kill(this.#since);
    if (busy) supervisor.close();
    else this.#options.release(supervisor);
  }
}

function marksOf(supervisor: Supervisor): readonly [number, number] {
  return supervisor.bash ? bashMarks : shMarks;
}
