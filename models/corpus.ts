/**
 * The pre-training corpus of the tiny base policy: noisy demonstrations of the trained task families, executed for real in the
 * embedded sandbox, so that every observation in the corpus is what a shell printed.
 */
import { EmbeddedProvider } from '../environment/embedded/provider.ts';
import { observationText } from '../environment/harness/observation.ts';
import { SHELL_IMAGE } from '../environment/docker/shell-image.ts';
import type { CommandRecord, HarnessName, Task } from '../environment/types.ts';
import { demonstrationStream } from '../suites/demonstrations.ts';
import type { TaskInstance } from '../suites/family.ts';

/** One demonstration as text: what the agent said each turn, and what it saw between turns. */
export interface Demonstration {
  readonly harness: HarnessName;
  readonly family: string;
  readonly instruction: string;
  readonly turns: readonly { readonly reply: string; readonly observation?: string }[];
}

const COMMAND_TIMEOUT_SEC = 5;

/** Executes `count` demonstrations of the stream with this seed. Deterministic: same seed, same corpus. */
export async function buildCorpus(seed: number, count: number, onProgress: (done: number) => void): Promise<Demonstration[]> {
  const provider = new EmbeddedProvider();
  const corpus: Demonstration[] = [];
  for (const { family, instance, harness, turns: commandTurns } of demonstrationStream(seed)) {
    if (corpus.length === count) break;
    const episodeId = `corpus-${corpus.length}`;
    const sandbox = await provider.start(taskOf(instance, episodeId), { runKey: 'corpus', episodeId, purpose: 'rollout' });
    try {
      const turns: { reply: string; observation?: string }[] = [];
      for (const lines of commandTurns) {
        const results: CommandRecord[] = [];
        for (const command of lines) {
          if (command === 'exit') break;
          results.push({ command, ...(await sandbox.exec(command, { timeoutSec: COMMAND_TIMEOUT_SEC })) });
        }
        const last = lines.includes('exit');
        turns.push(last ? { reply: lines.join('\n') } : { reply: lines.join('\n'), observation: observationText(results) });
        if (last) break;
      }
      corpus.push({ harness, family, instruction: instance.instruction, turns });
    } finally {
      await sandbox.close();
    }
    if (corpus.length % 500 === 0) onProgress(corpus.length);
  }
  return corpus;
}

function taskOf(instance: TaskInstance, id: string): Task {
  const encoder = new TextEncoder();
  const files = new Map(Object.entries(instance.files).map(([path, text]) => [`app/${path}`, { data: encoder.encode(text), mode: 0o644 }]));
  return {
    id,
    dir: '',
    instruction: instance.instruction,
    family: 'demonstration',
    tier: 'easy',
    workdir: '/app',
    agentTimeoutSec: 60,
    verifierTimeoutSec: 60,
    environment: {
      image: SHELL_IMAGE,
      simple: true,
      env: {},
      files,
      run: [],
      buildTimeoutSec: 600,
      memoryMb: 256,
      pidsLimit: 64,
      network: { mode: 'none' },
      needs: [],
    },
    verifierEnv: {},
    solutionEnv: {},
    tests: new Map(),
    checksum: '',
  };
}
