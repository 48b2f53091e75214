/**
 * Kills processes inside a container, and proves that they are gone.
 *
 * The killing is done from a second container that shares the first one's process namespace and nothing else: it is made of our own
 * image and has the capability KILL alone. So no program of the agent takes part (it may have replaced /bin/sh), the process limit that
 * a fork bomb has reached does not apply, and neither the users nor the missing capabilities of the sandbox matter. `exec` with
 * `Privileged`, the usual way, would run a program of the agent's with every capability of the host's root.
 *
 * The sandbox is paused meanwhile: the list of processes stands still, what was struck dies before its next instruction, and nothing can
 * strike back. Then it goes on and the list is read until nothing of what was to die is in it.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type Docker from 'dockerode';
import { InfrastructureError } from '../errors.ts';
import { remove, statusOf } from './engine.ts';
import { ensureShellImage, SHELL_IMAGE } from './shell-image.ts';
import { Demultiplexer } from './stream.ts';

/** A moment in a container: hundredths of a second since the machine's start, and the youngest process id. Ids break the ties. */
export interface Moment {
  readonly ticks: number;
  readonly lastPid: number;
}

/**
 * `all`: everything but init, the keeper and its `sleep`. Else what a command started: `shells` are the supervisor, which is spared, and
 * the session's shell, if there is one. Their children die, and what began after `since`, unless it descends from an older process that
 * lives on or from one that Docker started (another supervisor).
 */
export type Victims = 'all' | { readonly shells: readonly number[]; readonly since: Moment };

/** For each step of a kill: the engine makes and starts a container in a fraction of a second when it is not busy. */
const deadlineMs = 30_000;

/**
 * Arguments: `all`, or `command` with ticks, last pid, supervisor and perhaps a shell. Prints `struck` after the first pass, then `gone`, or `left` with
 * process ids. State Z is dead unless threads are left: a main thread may end before the others.
 */
const script = `declare -A parent start
list() {
  parent=() start=() victims=()
  for d in /proc/[0-9]*; do
    line=; { IFS= read -r -d '' line <"$d/stat"; } 2>/dev/null; [[ -n $line ]] || continue
    f=(\${line##*) }); [[ \${f[0]} == [ZX] && \${f[17]} -le 1 ]] && continue
    p=\${d#/proc/}; parent[$p]=\${f[1]}; start[$p]=\${f[19]}
  done
  keeper=
  for p in "\${!parent[@]}"; do
    [[ \${parent[$p]} == 1 ]] || continue
    [[ -z $keeper ]] || (( start[$p] < start[$keeper] || start[$p] == start[$keeper] && p < keeper )) || continue
    keeper=$p
  done
  for p in "\${!parent[@]}"; do
    [[ $p == 1 || $p == $$ || $p == "$keeper" || \${parent[$p]} == $$ || \${parent[$p]} == "$keeper" ]] && continue
    if [[ $1 == all ]] || belongs "$p" "$2" "$3" "$4" "$5"; then victims+=("$p"); fi
  done
}
young() { (( start[$1] > $2 || start[$1] == $2 && $1 > $3 )); }
belongs() {
  local p=$1 up
  [[ $p == "$4" ]] && return 1
  [[ $p == "$5" || \${parent[$p]} == "$4" ]] && return 0
  while young "$p" "$2" "$3"; do
    up=\${parent[$p]}
    [[ $up == 0 ]] && return 1
    [[ $up == 1 || $up == "$4" || $up == "$5" || -z \${parent[$up]} || \${parent[$up]} == "$4" ]] && return 0
    p=$up
  done
  return 1
}
for (( i = 0; i < 500; i++ )); do
  list "$@"
  for p in "\${victims[@]}"; do kill -KILL "$p" 2>/dev/null; done
  (( i == 0 )) && echo struck
  (( i > 0 && \${#victims[@]} == 0 )) && { echo gone; exit; }
  sleep 0.02
done
echo "left \${victims[*]}"`;

/** Between the sandbox's name and a random number, in the name of a killer; its labels are the sandbox's. */
const suffix = '-killer-';

/** The sandbox's name, for a killer's. */
export function sandboxOfKiller(name: string): string | undefined {
  const at = name.lastIndexOf(suffix);
  return at === -1 ? undefined : name.slice(0, at);
}

/**
 * @throws InfrastructureError where processes are left or it cannot be known; then the sandbox must be given up.
 */
export async function killProcesses(docker: Docker, container: Docker.Container, victims: Victims, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await ensureShellImage(docker);
  const { Config, Name, State } = await container.inspect();
  if (!State.Running) return; // with its init the kernel has killed them all
  const killer = await docker.createContainer({
    name: `${Name.slice(1)}${suffix}${randomBytes(4).toString('hex')}`,
    Image: SHELL_IMAGE,
    Entrypoint: ['/bin/bash', '-c', script, 'bash'],
    Cmd: victims === 'all' ? ['all'] : ['command', ...[victims.since.ticks, victims.since.lastPid, ...victims.shells].map(String)],
    User: '0',
    Labels: Config.Labels,
    HostConfig: {
      PidMode: `container:${container.id}`,
      NetworkMode: 'none',
      CapDrop: ['ALL'],
      CapAdd: ['KILL'],
      SecurityOpt: ['no-new-privileges'],
      ReadonlyRootfs: true,
      Memory: 64 * 1024 * 1024,
      PidsLimit: 16,
      LogConfig: { Type: 'none', Config: {} },
      AutoRemove: true,
    },
  });
  let paused = false;
  const goOn = async (): Promise<void> => {
    if (!paused) return;
    paused = false;
    // A container that died while it was paused cannot go on.
    await container.unpause().catch(ifRunning);
  };
  try {
    const lines = await reports(killer);
    // What cannot be frozen (a process in a system call that never returns) is struck while it runs.
    paused = await container.pause().then(
      () => true,
      () => false,
    );
    await killer.start();
    const first = await within(lines.next(), 'look at the processes');
    if (first !== 'struck') throw survived(first);
    await goOn();
    const last = await within(lines.next(), 'see the processes end');
    if (last !== 'gone' && (await container.inspect()).State.Running) throw survived(last);
  } finally {
    await goOn();
    await remove(killer);
  }
}

function survived(report: string | undefined): InfrastructureError {
  return new InfrastructureError(
    `processes in the sandbox outlived their kill (the killer says: ${report ?? 'nothing'}); the sandbox is given up`,
  );
}

/** 409: it is not paused, or not running. */
function ifRunning(error: unknown): void {
  if (statusOf(error) !== 409) throw error;
}

/** The lines that a container prints; undefined once it has ended. */
async function reports(container: Docker.Container): Promise<{ next(): Promise<string | undefined> }> {
  const stream = await container.attach({ stream: true, stdout: true });
  async function* lines(): AsyncGenerator<string> {
    const parts: string[] = [];
    const demultiplexer = new Demultiplexer((_, payload) => parts.push(payload.toString()));
    let text = '';
    for await (const chunk of stream) {
      demultiplexer.push(chunk as Buffer);
      text += parts.splice(0).join('');
      for (let end = text.indexOf('\n'); end !== -1; end = text.indexOf('\n')) {
        yield text.slice(0, end);
        text = text.slice(end + 1);
      }
    }
  }
  const iterator = lines();
  return { next: async () => (await iterator.next()).value as string | undefined };
}

async function within<T>(work: Promise<T>, action: string): Promise<T> {
  const timer = new AbortController();
  try {
    return await Promise.race([
      work,
      sleep(deadlineMs, undefined, { signal: timer.signal }).then(() => {
        throw new InfrastructureError(`cannot ${action} of a sandbox within ${deadlineMs / 1000} s; the sandbox is given up`);
      }),
    ]);
  } finally {
    work.catch(() => undefined);
    timer.abort();
  }
}
