/**
 * Which process something belongs to, in words that stay true after the process is gone: process ids are reused, and a data
 * folder may be shared with other machines and containers.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, readlinkSync } from 'node:fs';
import { hostname } from 'node:os';

export interface ProcessIdentity {
  /** Tells the places apart in which process ids mean the same: machine, boot, container. */
  readonly host: string;
  readonly pid: number;
  /** When it started, in the operating system's own form; tells a reused process id apart. */
  readonly start: string;
}

/** The identity of process `pid` on this host, or undefined when there is no such process (any more). */
export function identify(pid: number): ProcessIdentity | undefined {
  const start = startOf(pid);
  return start === undefined ? undefined : { host: thisHost(), pid, start };
}

/** `alive` and `gone` are said only of what is sure; `unknown` is a process of another host, or one that may not be looked at. */
export function fate({ host, pid, start }: ProcessIdentity): 'alive' | 'gone' | 'unknown' {
  if (host !== thisHost()) return 'unknown';
  const now = startOf(pid);
  if (now === UNREADABLE || start === UNREADABLE) return 'unknown';
  return now === start ? 'alive' : 'gone';
}

/** A process of another user, whose start time this system does not show. */
const UNREADABLE = 'unreadable';

function startOf(pid: number): string | undefined {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return undefined;
  }
  try {
    return process.platform === 'linux' ? linuxStart(pid) : posixStart(pid);
  } catch {
    return UNREADABLE;
  }
}

/** Clock ticks since the boot: field 22 of /proc/PID/stat. A zombie has ended. */
function linuxStart(pid: number): string | undefined {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // The second field is the program's name in brackets, which may hold spaces and brackets itself.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields[0] === 'Z' || fields[0] === 'X' ? undefined : (fields[19] ?? UNREADABLE);
}

function posixStart(pid: number): string | undefined {
  const [state = '', ...started] = execFileSync('ps', ['-o', 'state=,lstart=', '-p', String(pid)], {
    encoding: 'utf8',
    env: { ...process.env, LC_ALL: 'C' },
  })
    .trim()
    .split(/\s+/);
  return state.startsWith('Z') ? undefined : started.join('-').replaceAll(':', '-');
}

let host: string | undefined;
/** A new boot and another container are other hosts: process ids from there mean nothing here. */
function thisHost(): string {
  return (host ??= createHash('sha256')
    .update([hostname(), ...(process.platform === 'linux' ? linuxPlace() : [])].join('\0'))
    .digest('hex')
    .slice(0, 12));
}
function linuxPlace(): string[] {
  return [readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim(), readlinkSync('/proc/self/ns/pid')];
}
