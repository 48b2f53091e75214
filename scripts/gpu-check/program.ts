/** The check's parts that need TensorFlow run in processes of their own: each has one device, and gives it back when it ends. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { InfrastructureError } from '../../environment/errors.ts';
import { adviceFor } from '../../policy/gpu.ts';

/** The environment in which a program uses the CPU. */
export const ON_CPU = { CUDA_VISIBLE_DEVICES: '-1', TERMINAL_RSI_TENSORFLOW: 'cpu' };

/** What the program in this folder prints. @throws InfrastructureError with its reason, and advice where we have some */
export async function runProgram(file: string, args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<string> {
  const child = spawn(process.execPath, ['--import', 'tsx', path.join(import.meta.dirname, file), ...args], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  let errors = '';
  child.stdout.on('data', (data: Buffer) => (output += data.toString()));
  child.stderr.on('data', (data: Buffer) => {
    errors = (errors + data.toString()).slice(-20_000);
    // The user wants TensorFlow's own words.
    if (process.env['TF_CPP_MIN_LOG_LEVEL'] === '0') process.stderr.write(data);
  });
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
  if (code === 0) return output;
  const lines = errors.trim().split('\n');
  const reason = lines.findLast((line) => /^\w*Error\b/.test(line)) ?? lines.at(-1) ?? '';
  const advice = adviceFor(errors);
  throw new InfrastructureError(`${file} ended with ${code ?? signal}: ${reason}${advice === undefined ? '' : `\n→ ${advice}`}`);
}
