/** One container's place in the networks: settled when it is made, changed between its phases. */
import type Docker from 'dockerode';
import { InfrastructureError, TaskError } from '../errors.ts';
import type { NetworkPolicy, Task, TaskPhase } from '../types.ts';
import type { Admission, AllowlistProxy } from './allowlist-proxy.ts';
import { listenAtGateway } from './networks.ts';
import type { Bridge, BridgeNetworks } from './networks.ts';

/** The proxy's name in the sandbox: its address would differ from bridge to bridge. */
const proxyName = 'network-proxy';

/** Every policy that some phase of the task runs under. */
export function policiesOf(task: Task): NetworkPolicy[] {
  const phases: readonly TaskPhase[] = [task, ...(task.steps ?? [])];
  return [task.environment.network, ...phases.flatMap(({ agentNetwork, verifierNetwork }) => [agentNetwork, verifierNetwork])].filter(
    (policy) => policy !== undefined,
  );
}

export class Attachment {
  readonly #docker: Docker;
  readonly #networks: BridgeNetworks;
  readonly #proxy: AllowlistProxy;
  readonly #initial: NetworkPolicy;
  readonly #reach: 'none' | 'public' | 'proxied';
  /** Promised until the container is on it. */
  #promised: Bridge | undefined;
  /** Where all phases of a proxied container are. */
  #home: Bridge | undefined;
  #current: Bridge | undefined;
  #container: Docker.Container | undefined;
  #admission: Admission | undefined;

  constructor(docker: Docker, networks: BridgeNetworks, proxy: AllowlistProxy, task: Task) {
    this.#docker = docker;
    this.#networks = networks;
    this.#proxy = proxy;
    this.#initial = task.environment.network;
    const modes = policiesOf(task).map(({ mode }) => mode);
    this.#reach = modes.includes('allowlist') ? 'proxied' : modes.includes('public') ? 'public' : 'none';
  }

  /** What the container is created with. */
  async settings(): Promise<{ readonly env: Record<string, string>; readonly hostname: string; readonly host: Docker.HostConfig }> {
    // A container with a network of its own has its address under its name: that must not be `localhost`.
    const hostname = this.#reach === 'none' ? 'localhost' : 'sandbox';
    if (this.#reach !== 'none' && this.#initial.mode !== 'none') await this.#promise(this.#reach === 'public' ? 'public' : 'allowlist');
    const host = { NetworkMode: this.#promised?.name ?? 'none' };
    if (this.#reach !== 'proxied') return { env: {}, hostname, host };
    this.#home = this.#promised ?? (await this.#promise('allowlist'));
    const port = await listenAtGateway(this.#proxy, this.#home);
    const address = `http://${proxyName}:${port}`;
    const env = { HTTP_PROXY: address, HTTPS_PROXY: address, NO_PROXY: 'localhost,127.0.0.1,::1' };
    const lowercase = Object.fromEntries(Object.entries(env).map(([name, value]) => [name.toLowerCase(), value]));
    return {
      env: { ...env, ...lowercase },
      hostname,
      // Name servers would be a way out of an internal bridge (CVE-2024-29018): the proxy alone resolves names.
      host: { NetworkMode: host.NetworkMode, Dns: ['127.0.0.1'], ExtraHosts: [`${proxyName}:${this.#home.gateway}`] },
    };
  }

  /** The container runs. */
  async started(container: Docker.Container): Promise<void> {
    this.#container = container;
    if (this.#initial.mode !== 'none') this.#current = this.#promised;
    this.#settle();
    await this.#admit(this.#initial);
  }

  async set(policy: NetworkPolicy): Promise<void> {
    const { mode } = policy;
    if (mode !== 'none' && this.#reach === 'none')
      throw new TaskError(`its network cannot become ${mode}: no phase of the task declares one`);
    if (mode === 'allowlist' && this.#reach !== 'proxied')
      throw new TaskError('its network cannot get an allow-list: no phase of the task declares one');
    this.#admission?.close();
    this.#admission = undefined;
    if (mode === 'none') return this.#move(undefined);
    await this.#move(this.#reach === 'proxied' ? this.#home : (this.#current ?? (await this.#promise('public'))));
    this.#settle();
    await this.#admit(policy);
  }

  close(): void {
    this.#admission?.close();
    this.#settle();
  }

  async #promise(kind: 'public' | 'allowlist'): Promise<Bridge> {
    this.#settle();
    return (this.#promised = await this.#networks.acquire(kind));
  }

  #settle(): void {
    if (this.#promised) this.#networks.settle(this.#promised);
    this.#promised = undefined;
  }

  /** A container without a network is on the engine's network `none`, and on that one alone. */
  async #move(to: Bridge | undefined): Promise<void> {
    if (!this.#container) throw new InfrastructureError('the sandbox has not started');
    if (to === this.#current) return;
    const Container = this.#container.id;
    await this.#docker.getNetwork(this.#current?.name ?? 'none').disconnect({ Container });
    await this.#docker.getNetwork(to?.name ?? 'none').connect({ Container });
    this.#current = to;
  }

  async #admit(policy: NetworkPolicy): Promise<void> {
    if (this.#reach !== 'proxied' || policy.mode === 'none' || !this.#container || !this.#current) return;
    const { NetworkSettings: settings } = await this.#container.inspect();
    const address = settings.Networks[this.#current.name]?.IPAddress;
    if (!address) throw new InfrastructureError(`the container has no address on ${this.#current.name}`);
    this.#admission = this.#proxy.admit(address, policy.mode === 'allowlist' ? policy.hosts : ['*']);
  }
}
