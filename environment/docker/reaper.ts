/**
 * Removes what crashed owners left: containers, networks that none of them uses, images over the limit. It runs at a worker's start
 * and on a timer.
 *
 * What it may remove follows from labels and from what can be asked, never from a guess:
 *   the owner is a process of this host     that lives: kept, whatever else holds; that is gone: removed
 *   the owner is this process               kept, but for what it closed and could not remove
 *   another host's, or none is named        its workflow is closed: removed; is open: kept
 *                                           no workflow, or one that this Temporal server does not know, or does not tell: kept
 *                                           until the lease is over; except that what stopped long ago is nobody's
 */
import type Docker from 'dockerode';
import { remove, statusOf } from './engine.ts';
import { label, owner, ownerFate } from './labels.ts';

export interface WorkflowRef {
  readonly workflowId: string;
  readonly runId: string;
}
export interface Reaped {
  readonly containers: number;
  readonly networks: number;
  readonly images: number;
}
export interface ReaperLogger {
  info(details: object, message: string): void;
  warn(details: object, message: string): void;
}
export interface ReaperOptions {
  /** undefined where nobody knows: another server's, or the server does not answer. */
  isOpen(workflow: WorkflowRef): Promise<boolean | undefined>;
  readonly logger?: ReaperLogger;
  /** Whether this process works with its container of this name. Default: with all. */
  isHeld?(name: string): boolean;
  /** What else to clean: BridgeNetworks and EnvironmentImages. */
  readonly networks?: { sweep(): Promise<number> };
  readonly images?: { prune(): Promise<number> };
}

/** A stopped container may be one whose owner, on another host, still reads its files. */
const stoppedLongAgoMs = 15 * 60_000;

export class Reaper {
  readonly #docker: Docker;
  readonly #options: ReaperOptions;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<Reaped> | undefined;

  constructor(docker: Docker, options: ReaperOptions) {
    this.#docker = docker;
    this.#options = options;
  }

  /** One round; a call during a round waits for that one. What cannot be removed is logged and left to the next. @throws when the engine does not answer */
  reapOnce(): Promise<Reaped> {
    this.#running ??= this.#reap().finally(() => (this.#running = undefined));
    return this.#running;
  }

  /** A round now and then one after each interval. Never throws; does not hold the process. */
  start(intervalMs: number): void {
    if (this.#timer) return;
    const round = (): void =>
      void this.reapOnce().catch((error: unknown) => {
        this.#options.logger?.warn({ err: error }, 'the reaper could not look for what crashed processes left');
      });
    this.#timer = setInterval(round, intervalMs);
    this.#timer.unref();
    round();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#timer = undefined;
    await this.#running?.catch(() => undefined);
  }

  async #reap(): Promise<Reaped> {
    const found = await this.#docker.listContainers({ all: true, filters: { label: [label.run] } });
    let containers = 0;
    for (const info of found) {
      try {
        const reason = await this.#reason(info);
        if (reason === undefined) continue;
        await remove(this.#docker.getContainer(info.Id));
        containers++;
        const { [label.run]: run, [label.episode]: episode } = info.Labels;
        this.#options.logger?.info({ container: info.Names[0]?.slice(1), run, episode, reason }, 'removed a left-over container');
      } catch (error) {
        this.#options.logger?.warn({ err: error, container: info.Names[0]?.slice(1) }, 'a left-over container could not be removed');
      }
    }
    const networks = await this.#also('networks', this.#options.networks?.sweep());
    const images = await this.#also('images', this.#options.images?.prune());
    return { containers, networks, images };
  }

  async #also(what: string, cleaning: Promise<number> | undefined): Promise<number> {
    try {
      const removed = (await cleaning) ?? 0;
      if (removed > 0) this.#options.logger?.info({ removed }, `removed unused ${what}`);
      return removed;
    } catch (error) {
      this.#options.logger?.warn({ err: error }, `unused ${what} could not be removed`);
      return 0;
    }
  }

  /** Why a container is nobody's any more, or undefined. */
  async #reason({ Id, Names, Labels, State }: Docker.ContainerInfo): Promise<string | undefined> {
    const fate = ownerFate(Labels[label.owner]);
    if (fate === 'alive') {
      const ours = Labels[label.owner] === owner && this.#options.isHeld !== undefined;
      return ours && !Names.some((name) => this.#options.isHeld?.(name.slice(1))) ? 'this process could not remove it before' : undefined;
    }
    if (fate === 'gone') return 'its process has ended';
    const [workflowId = '', runId = ''] = (Labels[label.workflow] ?? '').split(' ');
    const open = workflowId === '' ? undefined : await this.#options.isOpen({ workflowId, runId }).catch(() => undefined);
    if (open === true) return undefined;
    if (open === false) return `its workflow ${workflowId} is closed`;
    if (Number(Labels[label.lease]) * 1000 < Date.now()) return 'its lease is over';
    if (State !== 'running' && (await this.#stoppedLongAgo(Id))) return 'it stopped long ago';
    return undefined;
  }

  async #stoppedLongAgo(id: string): Promise<boolean> {
    try {
      const { State: state, Created: created } = await this.#docker.getContainer(id).inspect();
      // A container that never ran has finished in the year 1.
      return Date.now() - Math.max(Date.parse(state.FinishedAt), Date.parse(created)) > stoppedLongAgoMs;
    } catch (error) {
      if (statusOf(error) === 404) return false;
      throw error;
    }
  }
}
