/** A running container as a sandbox: commands, sessions, terminals, files. provider.ts makes and removes it. */
import type Docker from 'dockerode';
import { remove, typed } from './engine.ts';
import { ContainerShell } from './exec.ts';
import { getFiles, putFiles } from './files.ts';
import type { DownloadLimit, ExecOptions, ExecResult, FileTree, NetworkPolicy, Sandbox, Task } from '../types.ts';

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
  readonly #shell: ContainerShell;
  readonly #workdir: string;
  readonly #hooks: SandboxHooks;
  #closing: Promise<void> | undefined;

  constructor(container: Docker.Container, task: Task, hooks: SandboxHooks) {
    this.#container = container;
    this.#shell = new ContainerShell(container);
    this.#workdir = task.workdir;
    this.#hooks = hooks;
  }

  async exec(command: string, options: ExecOptions): Promise<ExecResult> {
    try {
      return await this.#shell.exec(command, { ...options, cwd: options.cwd ?? this.#workdir });
    } catch (error) {
      options.signal?.throwIfAborted();
      throw typed(error, 'run a command in a container');
    }
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
    this.#shell.close();
    // A failed removal is left to the sweeper: an episode's result must not be lost for it.
    this.#closing ??= remove(this.#container)
      .catch(() => undefined)
      .finally(() => this.#hooks.closed());
    return this.#closing;
  }
}
