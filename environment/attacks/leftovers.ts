/**
 * What an attack left on the machine: containers of its run and files in this process's folder for temporary ones; and, where nobody else
 * uses the engine, networks and volumes that were not there before, and processes of containers that are gone.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import type Docker from 'dockerode';

export interface Machine {
  /** Absent: no engine is looked at. */
  readonly docker?: Docker;
  /** Nobody else uses the engine meanwhile, so that what is new in it is ours. */
  readonly alone: boolean;
}
export interface MachineState {
  readonly networks: ReadonlySet<string>;
  readonly volumes: ReadonlySet<string>;
  readonly temporaryFiles: ReadonlySet<string>;
}

/** The engine removes what it was told to remove a moment later. */
const SETTLE_MS = 10_000;
const POLL_MS = 100;

export async function machineState({ docker, alone }: Machine): Promise<MachineState> {
  const networks = docker && alone ? await docker.listNetworks() : [];
  const volumes = docker && alone ? (await docker.listVolumes()).Volumes : [];
  return {
    networks: new Set(networks.map(({ Name }) => Name)),
    volumes: new Set(volumes.map(({ Name }) => Name)),
    temporaryFiles: new Set(readdirSync(tmpdir())),
  };
}

/** @returns what is left after a moment of patience, in words; empty when nothing is */
export async function leftBehind(machine: Machine, runKey: string, before: MachineState, patienceMs = SETTLE_MS): Promise<string[]> {
  for (const end = performance.now() + patienceMs; ; await sleep(POLL_MS)) {
    const found = await look(machine, runKey, before);
    if (found.length === 0 || performance.now() >= end) return found;
  }
}

async function look(machine: Machine, runKey: string, before: MachineState): Promise<string[]> {
  const { docker, alone } = machine;
  const now = await machineState(machine);
  const fresh = (kind: string, those: ReadonlySet<string>, earlier: ReadonlySet<string>): string[] =>
    [...those].filter((name) => !earlier.has(name)).map((name) => `${kind} ${name}`);
  const containers = docker ? await docker.listContainers({ all: true, filters: { label: [`terminal-rsi.run=${runKey}`] } }) : [];
  return [
    ...containers.map(({ Names, State }) => `container ${Names.join(' ')} (${State})`),
    ...fresh('network', now.networks, before.networks),
    ...fresh('volume', now.volumes, before.volumes),
    ...fresh('file', now.temporaryFiles, before.temporaryFiles),
    ...(docker && alone ? await orphans(docker) : []),
  ];
}

/** Processes whose control group is that of a container which the engine does not know any more. */
async function orphans(docker: Docker): Promise<string[]> {
  const suspects = processesOfContainers();
  const ids = [...new Set(suspects.map(({ container }) => container))];
  const gone = new Set<string>();
  for (const id of ids)
    await docker
      .getContainer(id)
      .inspect()
      .catch((error: { statusCode?: number }) => error.statusCode === 404 && gone.add(id));
  return suspects
    .filter(({ container }) => gone.has(container))
    .map(({ pid, container }) => `process ${pid} of container ${container.slice(0, 12)}`);
}

function processesOfContainers(): { pid: string; container: string }[] {
  const found: { pid: string; container: string }[] = [];
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const [, container] = /docker[/-]([0-9a-f]{64})/.exec(readFileSync(`/proc/${pid}/cgroup`, 'utf8')) ?? [];
      if (container !== undefined) found.push({ pid, container });
    } catch {
      // It ended meanwhile.
    }
  }
  return found;
}
