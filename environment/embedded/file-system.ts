/**
 * The file system of an embedded sandbox: just-bash's in memory, stricter about folders and with a limit on what a command reads, since
 * the time of most commands goes by that.
 */
import { posix } from 'node:path';
import { InMemoryFs } from 'just-bash';

/** A write into a folder that is not there. */
export class MissingParentError extends Error {
  readonly path: string;
  constructor(path: string) {
    super(`ENOENT: no such file or directory, open '${path}'`);
    this.path = path;
  }
}

/**
 * Refuses to write where there is no folder. just-bash's file system makes missing parents, so that `mkdir` would
 * never matter and rewriting would drop it from every procedure.
 */
export class StrictFs extends InMemoryFs {
  #readable = Infinity;

  /** Limits what `work` may read, in bytes of all its readings together; `onExhausted` is called at the first one beyond. */
  async reading<T>(bytes: number, onExhausted: () => void, work: () => Promise<T>): Promise<T> {
    this.#readable = bytes;
    this.#onExhausted = onExhausted;
    try {
      return await work();
    } finally {
      this.#readable = Infinity;
    }
  }
  #onExhausted = (): void => undefined;

  override async readFileBuffer(path: string): Promise<Uint8Array> {
    if (this.#readable < 0) throw new Error(`EFBIG: too much was read before '${path}'`);
    const bytes = await super.readFileBuffer(path);
    this.#readable -= bytes.length;
    if (this.#readable >= 0) return bytes;
    this.#onExhausted();
    throw new Error(`EFBIG: too much was read with '${path}'`);
  }

  override async writeFile(path: string, ...rest: Rest<InMemoryFs['writeFile']>): Promise<void> {
    await this.#needParent(path);
    await super.writeFile(path, ...rest);
  }

  override async appendFile(path: string, ...rest: Rest<InMemoryFs['appendFile']>): Promise<void> {
    await this.#needParent(path);
    await super.appendFile(path, ...rest);
  }

  override async cp(source: string, target: string, ...rest: Rest2<InMemoryFs['cp']>): Promise<void> {
    await this.#needParent(target);
    await super.cp(source, target, ...rest);
  }

  override async mv(source: string, target: string): Promise<void> {
    await this.#needParent(target);
    await super.mv(source, target);
  }

  async #needParent(path: string): Promise<void> {
    if (!(await this.exists(posix.dirname(path)))) throw new MissingParentError(path);
  }
}

type Rest<F> = F extends (first: string, ...rest: infer R) => unknown ? R : never;
type Rest2<F> = F extends (first: string, second: string, ...rest: infer R) => unknown ? R : never;
