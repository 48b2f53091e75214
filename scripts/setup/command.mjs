/**
 * Running other programs during set-up: output goes to .cache/setup.log, and only a failure shows its last lines.
 * Also `SetupError`, the one error type that set-up throws on purpose: what is wrong, and the command that fixes it.
 */
import { spawn, spawnSync } from 'node:child_process';
import { createWriteStream, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const repoRoot = fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '');
export const cacheDirectory = join(repoRoot, '.cache');
export const logFile = join(cacheDirectory, 'setup.log');

export class SetupError extends Error {
  /** @param {string} message what is wrong, with the value found and what was expected @param {string} fix a command or sentence that mends it */
  constructor(message, fix) {
    super(message);
    this.name = 'SetupError';
    this.fix = fix;
  }
}

/** First line that a program prints for its version, or null when it is not there or fails. */
export function versionOf(command, args = ['--version']) {
  const done = spawnSync(command, args, { encoding: 'utf8', timeout: 20_000 });
  if (done.error || done.status !== 0) return null;
  return (done.stdout || done.stderr).trim().split('\n')[0] ?? null;
}

const tailLines = 15;

/**
 * Runs a program to its end. Its output is appended to .cache/setup.log.
 * @returns {Promise<string>} what it wrote to stdout
 * @throws {SetupError} when it cannot start or exits non-zero: with the last lines of its output, and `fix`
 */
export function execute(command, args, { cwd = repoRoot, env = process.env, fix = '' } = {}) {
  mkdirSync(cacheDirectory, { recursive: true });
  const log = createWriteStream(logFile, { flags: 'a' });
  log.write(`\n$ ${[command, ...args].join(' ')}\n`);
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] });
    let stdout = '';
    let tail = '';
    const keep = (chunk) => {
      log.write(chunk);
      tail = (tail + chunk).slice(-8_000);
    };
    child.stdout.on('data', (chunk) => {
      stdout += chunk;
      keep(chunk);
    });
    child.stderr.on('data', keep);
    child.on('error', (error) => {
      log.end();
      reject(new SetupError(`${command} could not be started: ${error.message}`, fix));
    });
    child.on('close', (code, signal) => {
      log.end();
      if (code === 0) return resolve(stdout);
      const last = tail.trim().split('\n').slice(-tailLines).join('\n    ');
      reject(
        new SetupError(
          `${command} ${args[0] ?? ''} ended with ${signal ?? `exit code ${code}`}:\n    ${last}\n  (whole output: ${logFile})`,
          fix,
        ),
      );
    });
  });
}
