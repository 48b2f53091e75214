/**
 * A terminal of 160 × 40 characters with a login shell in it: tmux in the container, spoken to by commands. Every such command has a
 * deadline, since tmux can hang (an agent may stop its server). The terminal has then ended, as when its shell has: typing into it
 * does nothing and it shows nothing.
 *
 * The limit of the scrollback is set before the session is made: a later one leaves the pane with 2,000 lines.
 */
import { randomBytes } from 'node:crypto';
import { InfrastructureError, TaskError } from '../errors.ts';
import { quote } from '../tasks/dockerfile.ts';
import type { ExecOptions, ExecResult, FileTree, Terminal, TerminalOptions } from '../types.ts';

/** Lines. All of them full are about 40 MB in the sandbox. */
const historyLines = 50_000;
/** Of a reading of the scrollback: its head and tail beyond that. */
const historyBytes = 8 * 1024 * 1024;
/** Seconds for one tmux command: a busy machine takes a tenth of it. */
const deadlineSec = 30;
/** Beyond this tmux answers "command too long". */
const keysBytes = 16_000;

/** A server of our own, which the agent's use of tmux does not touch, in UTF-8 and without a configuration. */
const tmux = 'tmux -L terminal-rsi -u -f /dev/null';
const target = 'main';
const start =
  `command -v tmux >/dev/null || exit 127; S=$(command -v bash || command -v sh); ` +
  `exec ${tmux} start-server \\; set-option -g history-limit ${historyLines} \\; set-option -g status off \\; ` +
  // Else the user's own, which for many users is nologin.
  `set-option -g default-shell "$S" \\; set-option -g default-terminal screen \\; new-session -d -s ${target} -x 160 -y 40 "exec $S --login"`;
/** What tmux says when nothing is there any more. */
const gone = /no server running|can't find (session|pane|window)|no current (target|session)|lost server|server exited|error connecting/;

/** What a terminal needs of its sandbox. */
export interface TerminalHost {
  readonly image: string;
  exec(command: string, options: ExecOptions & { readonly maxOutputBytes?: number }): Promise<ExecResult>;
  upload(files: FileTree, destination: string): Promise<void>;
}

/** @throws TaskError where the image has no tmux or it does not start */
export async function openTerminal(host: TerminalHost, { user, env, signal }: TerminalOptions = {}): Promise<Terminal> {
  const terminal = new TmuxTerminal(host, user);
  const { exitCode, stderr, timedOut } = await terminal.run(start, { ...(env ? { env } : {}), ...(signal ? { signal } : {}) });
  if (exitCode === 127)
    throw new TaskError(`the image ${host.image} has no tmux, which terminals need: install the package tmux in the task's Dockerfile`);
  if (exitCode !== 0)
    throw new TaskError(`tmux does not start in ${host.image}: ${timedOut ? `no answer in ${deadlineSec} s` : stderr.trim()}`);
  return terminal;
}

class TmuxTerminal implements Terminal {
  readonly #host: TerminalHost;
  readonly #user: string | undefined;
  #ended = false;

  constructor(host: TerminalHost, user: string | undefined) {
    this.#host = host;
    this.#user = user;
  }

  async send(keystrokes: string, signal?: AbortSignal): Promise<void> {
    if (keystrokes === '') return;
    // A semicolon at an argument's end would separate tmux commands.
    const keys = `send-keys -t ${target} -- ${quote(keystrokes.replace(/;$/, '\\;'))}`;
    if (Buffer.byteLength(keys) <= keysBytes) await this.#tmux(keys, signal);
    else await this.#paste(keystrokes, signal);
  }

  screen(signal?: AbortSignal): Promise<string> {
    return this.#tmux(`capture-pane -p -t ${target}`, signal);
  }

  history(signal?: AbortSignal): Promise<string> {
    return this.#tmux(`capture-pane -p -S - -t ${target}`, signal);
  }

  async alive(signal?: AbortSignal): Promise<boolean> {
    await this.#tmux(`has-session -t ${target}`, signal);
    return !this.#ended;
  }

  /** By way of a file, because a command line is limited too. The buffer's line breaks are typed as Enter. */
  async #paste(text: string, signal: AbortSignal | undefined): Promise<void> {
    const name = `.terminal-rsi-${randomBytes(6).toString('hex')}`;
    await this.#host.upload(new Map([[name, { data: Buffer.from(text), mode: 0o644 }]]), '/tmp');
    await this.#tmux(`load-buffer -b typed /tmp/${name} \\; paste-buffer -d -b typed -t ${target}`, signal);
    await this.#host.exec(`rm -f /tmp/${name}`, { timeoutSec: deadlineSec, user: 'root', ...(signal ? { signal } : {}) });
  }

  async #tmux(command: string, signal: AbortSignal | undefined): Promise<string> {
    if (this.#ended) return '';
    const { stdout, stderr, exitCode, timedOut } = await this.run(`exec ${tmux} ${command}`, signal ? { signal } : {});
    if (exitCode === 0) return stdout;
    // 127: the agent removed it. Above 128: a signal of the agent's, or of the kernel for want of memory.
    this.#ended = timedOut || exitCode >= 127 || gone.test(stderr);
    if (this.#ended) return '';
    throw new InfrastructureError(`tmux ${command.slice(0, 200)}: ${stderr.trim()}`);
  }

  run(command: string, options: Pick<ExecOptions, 'signal' | 'env'>): Promise<ExecResult> {
    const user = this.#user === undefined ? {} : { user: this.#user };
    return this.#host.exec(command, { timeoutSec: deadlineSec, maxOutputBytes: historyBytes, ...user, ...options });
  }
}
