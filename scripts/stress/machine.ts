/** What a run uses of the machine, and what it left: looked at before it, while nothing of it runs, and after it. */
import { readdirSync, readFileSync } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import path from 'node:path';
import type Docker from 'dockerode';
import { label } from '../../environment/docker/labels.ts';

export interface MachineUse {
  readonly containers: number;
  readonly networks: number;
  readonly volumes: number;
  /** Bytes of image layers and of containers' own layers. */
  readonly dockerBytes: number;
}

/** Containers of these runs, networks that bear our label, all volumes. */
export async function machineUse(docker: Docker, runKeys: readonly string[]): Promise<MachineUse> {
  const [containers, networks, { Volumes: volumes }, disk] = await Promise.all([
    docker.listContainers({ all: true, filters: { label: [label.run] } }),
    docker.listNetworks({ filters: { label: ['terminal-rsi.network'] } }),
    docker.listVolumes(),
    docker.df() as Promise<{ LayersSize?: number; Containers?: { SizeRw?: number }[] }>,
  ]);
  const own = (disk.Containers ?? []).reduce((sum, { SizeRw = 0 }) => sum + SizeRw, 0);
  return {
    containers: containers.filter(({ Labels }) => runKeys.includes(Labels[label.run] ?? '')).length,
    networks: networks.length,
    volumes: volumes.length,
    dockerBytes: (disk.LayersSize ?? 0) + own,
  };
}

/** Processes that were started with this data folder in their environment, this one aside. */
export function processesOf(data: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/environ`, 'utf8').includes(`TERMINAL_RSI_DATA=${data}\0`);
      } catch {
        return false; // It ended meanwhile.
      }
    })
    .map(Number);
}

export async function folderBytes(folder: string): Promise<number> {
  let total = 0;
  for (const entry of await readdir(folder, { withFileTypes: true, recursive: true })) {
    if (!entry.isFile()) continue;
    total += await stat(path.join(entry.parentPath, entry.name)).then(
      ({ size }) => size,
      () => 0,
    );
  }
  return total;
}
