/** A running container as a sandbox: commands, sessions, terminals, files. provider.ts makes and removes it. */
import type Docker from 'dockerode';
import { remove, typed } from './engine.ts';
import { newEngine, ProcessLimitError } from './container-state.ts';
import type { Engine } from './container-state.ts';
import { Supervisor } from './exec.ts';
import { getFiles, putFiles } from './files.ts';
import { killProcesses } from './processes.ts';
import { ContainerSession } from './session.ts';
import { openTerminal } from './terminal.ts';
import type {
  DownloadLimit,
  ExecOptions,
  ExecResult,
  FileTree,
  NetworkPolicy,
  Sandbox,
  ShellSession,
  Task,
  Terminal,
  TerminalOptions,
} from '../types.ts';

/** What only the provider knows of a container. */
export interface SandboxHooks {
  /** The image's user, who runs what names no other; '' = root. */
  readonly user: string;
  setNetwork(policy: NetworkPolicy): Promise<void>;
  /** Called once the container is removed. */
  closed(): void;
}

export class DockerSandbox implements Sandbox {
  readonly kind = 'docker';
  readonly #container: Docker.Container;
  readonly #engine: Engine;
  /** Supervisors that no command uses. */
  readonly #idle: Supervisor[] = [];
  readonly #image: string;
  readonly #workdir: string;
  readonly #hooks: SandboxHooks;
  #closing: Promise<void> | undefined;

  constructor(container: Docker.Container, task: Task, hooks: SandboxHooks) {
    this.#container = container;
    this.#engine = newEngine(container);
    this.#image = task.environment.image;
    this.#workdir = task.workdir;
    this.#hooks = hooks;
  }

  /** `maxOutputBytes`: of each stream, else as output-cap.ts says. */
  async exec(command: string, options: ExecOptions & { readonly maxOutputBytes?: number }): Promise<ExecResult> {
    try {
      options.signal?.throwIfAborted();
      const supervisor = await this.#supervisor(options.user);
      const result = await supervisor.run(command, { ...options, cwd: options.cwd ?? this.#workdir });
      this.#release(supervisor);
      return result;
    } catch (error) {
      options.signal?.throwIfAborted();
      throw typed(error, 'run a command in a container');
    }
  }

  openShell({ user, env = {} }: Pick<ExecOptions, 'user' | 'env'> = {}): Promise<ShellSession> {
    const session = new ContainerSession(this.#engine, {
      workdir: this.#workdir,
      env,
      open: () => this.#supervisor(user),
      release: (supervisor) => this.#release(supervisor),
    });
    return Promise.resolve({
      run: (command, options) =>
        session.run(command, options).catch((error: unknown) => {
          options.signal?.throwIfAborted();
          throw typed(error, 'run a command in a container');
        }),
      close: () => session.close(),
    });
  }

  async openTerminal(options?: TerminalOptions): Promise<Terminal> {
    const image = this.#image;
    return openTerminal({ image, exec: this.exec.bind(this), upload: this.upload.bind(this) }, options);
  }

  async killAll(signal?: AbortSignal): Promise<void> {
    // Those in use die with the rest.
    for (const supervisor of this.#idle.splice(0)) supervisor.close();
    await killProcesses(this.#engine.docker, this.#container, 'all', signal).catch((error: unknown) => {
      throw typed(error, 'kill the processes of a container');
    });
  }

  async upload(files: FileTree, destination: string): Promise<void> {
    await putFiles(this.#container, files, destination).catch((error: unknown) => {
      throw typed(error, `write files to ${destination}`);
    });
  }

  async download(source: string, limit?: DownloadLimit): Promise<FileTree> {
    try {
      return (await getFiles(this.#container, source, limit)) ?? new Map();
    } catch (error) {
      throw typed(error, `read files from ${source}`);
    }
  }

  async readFile(path: string): Promise<Uint8Array | undefined> {
    return (await this.download(path)).get('')?.data;
  }

  async setNetwork(policy: NetworkPolicy): Promise<void> {
    await this.#hooks.setNetwork(policy).catch((error: unknown) => {
      throw typed(error, `change the network to ${policy.mode}`);
    });
  }

  close(): Promise<void> {
    for (const supervisor of this.#idle.splice(0)) supervisor.close();
    // A failed removal is left to the sweeper: an episode's result must not be lost for it.
    this.#closing ??= remove(this.#container)
      .catch(() => undefined)
      .finally(() => this.#hooks.closed());
    return this.#closing;
  }

  async #supervisor(user: string = this.#hooks.user): Promise<Supervisor> {
    const name = user === '' || user === '0' ? 'root' : user;
    const at = this.#idle.findIndex((supervisor) => supervisor.user === name && supervisor.usable);
    return this.#idle.splice(at, at === -1 ? 0 : 1)[0] ?? (await this.#openSupervisor(name));
  }

  /** A sandbox that earlier commands filled with processes is no outage: these end, as at a time limit, and the episode goes on. */
  async #openSupervisor(user: string): Promise<Supervisor> {
    try {
      return await Supervisor.open(this.#engine, user);
    } catch (error) {
      if (!(error instanceof ProcessLimitError)) throw error;
      await this.killAll();
      return await Supervisor.open(this.#engine, user);
    }
  }

  #release(supervisor: Supervisor): void {
    if (supervisor.usable && !this.#closing) this.#idle.push(supervisor);
    else supervisor.close();
  }
}
