/** What a container may use and do: memory, processes, processor, disk, privileges. */
import type Docker from 'dockerode';
import type { EnvironmentSpec, Task, TaskPhase } from '../types.ts';
import type { EnvironmentImage } from './images.ts';
import { SHELL_IMAGE } from './shell-image.ts';

/**
 * What package managers and services of an image of its own need: files and processes of other users, ports below 1024, a changed root
 * (sshd). All are in Docker's own default set, of which NET_RAW, MKNOD, SETFCAP, SETPCAP and AUDIT_WRITE are missing here.
 */
export const CAPABILITIES = 'CHOWN DAC_OVERRIDE FOWNER FSETID KILL NET_BIND_SERVICE SETGID SETUID SYS_CHROOT'.split(' ');

/** Tasks that the provider lays over the shell image without a build: they need no privilege at all. */
export function isPlain({ image }: EnvironmentSpec, { built }: EnvironmentImage): boolean {
  return image === SHELL_IMAGE && !built;
}

export function limitsOf(task: Task, image: EnvironmentImage): Docker.HostConfig {
  const { memoryMb, pidsLimit, cpus } = task.environment;
  const bytes = memoryMb * 1024 * 1024;
  const plain = isPlain(task.environment, image);
  return {
    CapDrop: ['ALL'],
    ...(plain ? {} : { CapAdd: CAPABILITIES }),
    // Where everybody is root already, a set-user-id program (sudo, su, ping) gains nothing that the capabilities above do not bound.
    SecurityOpt: !plain && onlyRoot(task, image) ? [] : ['no-new-privileges'],
    Init: true, // reaps orphans: otherwise zombies fill the pids limit
    Memory: bytes,
    MemorySwap: bytes,
    PidsLimit: pidsLimit,
    ...(cpus === undefined ? {} : { NanoCpus: Math.round(cpus * 1e9) }),
    // A core dump of a few gigabytes helps nobody.
    Ulimits: [{ Name: 'core', Soft: 0, Hard: 0 }],
    LogConfig: { Type: 'none', Config: {} },
    RestartPolicy: { Name: 'no' },
  };
}

function onlyRoot(task: Task, { user }: EnvironmentImage): boolean {
  const phases: readonly TaskPhase[] = [task, ...(task.steps ?? [])];
  return phases
    .flatMap(({ agentUser, verifierUser }) => [agentUser ?? user, verifierUser ?? user])
    .every((name) => /^(root|0)?(:.*)?$/.test(name));
}
