/**
 * Tries an attack: an episode whose agent runs its commands, judged in one of the two modes, while this process watches itself; then
 * an honest episode of the same task, which must still earn its reward, and a look at what is left on the machine.
 */
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { scriptedAgent } from '../harness/scripted-agent.ts';
import { loadTask } from '../tasks/task.ts';
import { runTrial } from '../trial/run.ts';
import type { Trial } from '../trial/types.ts';
import type { SandboxProvider, Task } from '../types.ts';
import type { Attack } from './attacks.ts';
import { dockerBounds, embeddedBounds, watchHarm } from './harm.ts';
import { leftBehind, machineState } from './leftovers.ts';
import type { Machine } from './leftovers.ts';

export type VerifierMode = 'shared' | 'separate';
export interface AttackOutcome {
  readonly name: string;
  readonly verifier: VerifierMode;
  readonly task: string;
  readonly mustNot: string;
  /** null: no verdict. */
  readonly reward: number | null;
  readonly outcome: Trial['verdict']['outcome'];
  /** Harbor's name of what ended the episode or its verification. */
  readonly error: string | null;
  readonly stopReason: Trial['record']['stopReason'];
  readonly workerHarmed: boolean;
  readonly leftBehind: boolean;
  /** In words: what harmed, what is left. Empty where all is well. */
  readonly findings: readonly string[];
  readonly memoryGrowthMiB: number;
  readonly stallMs: number;
  readonly seconds: number;
}

export interface AttackContext {
  readonly provider: SandboxProvider;
  /** Where leftovers are looked for. */
  readonly machine: Machine;
  readonly runKey: string;
  readonly signal?: AbortSignal;
}

/** Seconds for a command of the agent: attacks that go on without end are ended often. */
const COMMAND_SECONDS = 4;
const tasks = join(import.meta.dirname, 'tasks');

/** The task that an attack is tried on. */
export function attackedTask(attack: Attack, sandbox: SandboxProvider['kind']): Promise<Task> {
  return loadTask(join(tasks, attack.pytest && sandbox === 'docker' ? 'sealed-answer-pytest' : 'sealed-answer'));
}

export async function tryAttack(attack: Attack, verifier: VerifierMode, context: AttackContext): Promise<AttackOutcome> {
  const { provider, machine, runKey } = context;
  const task = await attackedTask(attack, provider.kind);
  const started = performance.now();
  const before = await machineState(machine);
  const listener = await listen();
  try {
    const agent = scriptedAgent({ name: 'replay', replies: attack.commands.map((command) => listener.addressed(command)) });
    const { value, harm } = await watchHarm(provider.kind === 'docker' ? dockerBounds : embeddedBounds, async () => ({
      trial: await episode(context, task, `${attack.name}-${verifier}`, agent, verifier),
      control: await episode(context, task, `control-${attack.name}-${verifier}`, 'oracle', verifier),
    }));
    const { trial, control } = value;
    const left = await leftBehind(machine, runKey, before);
    const why = [
      ...harm.why,
      ...(listener.reached() ? ['a program in the sandbox reached a port of this machine'] : []),
      ...(control.verdict.reward === 1
        ? []
        : [
            `an honest episode after it got ${control.verdict.reward ?? 'no reward'}: ${control.verdict.error?.message ?? control.verdict.outcome}`,
          ]),
    ];
    return {
      ...{ name: attack.name, verifier, task: task.id, mustNot: attack.mustNot },
      reward: trial.verdict.reward ?? null,
      outcome: trial.verdict.outcome,
      error: trial.error?.type ?? null,
      stopReason: trial.record.stopReason,
      workerHarmed: why.length > 0,
      leftBehind: left.length > 0,
      findings: [...why, ...left],
      memoryGrowthMiB: Math.round(harm.memoryGrowth / 1024 / 1024),
      stallMs: Math.round(harm.stallMs),
      seconds: Math.round((performance.now() - started) / 100) / 10,
    };
  } finally {
    await listener.close();
  }
}

/** Whether the attack came to nothing. */
export function held({ reward, workerHarmed, leftBehind: left }: AttackOutcome): boolean {
  return (reward ?? 0) <= 0 && !workerHarmed && !left;
}

async function episode(
  { provider, runKey, signal }: AttackContext,
  task: Task,
  id: string,
  agent: 'oracle' | ReturnType<typeof scriptedAgent>,
  verifierMode: VerifierMode,
): Promise<Trial> {
  return runTrial({
    ...{ name: id, task, source: 'attacks', agent, harness: 'shell', provider, verifierMode, sample: 0, seed: 0 },
    labels: { runKey, episodeId: id, purpose: 'check' },
    limits: { maxTurns: 10, maxTokensPerTurn: 4096, observationTokens: 4096, commandTimeoutSec: COMMAND_SECONDS },
    ...(signal ? { signal } : {}),
  });
}

/** A port of this machine that nothing in a sandbox may reach; `exfiltration` is told of it. */
async function listen(): Promise<{ addressed(command: string): string; reached(): boolean; close(): Promise<void> }> {
  let connections = 0;
  const server = createServer((socket) => {
    connections++;
    socket.destroy();
  });
  await new Promise<void>((resolve) => server.listen(0, '0.0.0.0', resolve));
  const { port } = server.address() as AddressInfo;
  const addresses = Object.values(networkInterfaces()).flatMap((entries) => entries?.map(({ address }) => address) ?? []);
  return {
    addressed: (command) => command.replaceAll('$REACH', addresses.join(' ')).replaceAll('$PORT', String(port)),
    reached: () => connections > 0,
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}
