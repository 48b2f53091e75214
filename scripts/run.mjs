/**
 * `node scripts/run.mjs NAME [arguments]`: sets up, then runs a command of this project that is written in TypeScript.
 * This entry exists because TypeScript needs tsx, which a fresh clone does not have yet.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { repoRoot } from './setup/command.mjs';
import { orExplain, setUp } from './setup.mjs';

/** Commands that do not lie in scripts/ under their own name. */
const elsewhere = { 'make-base': 'models/make-base.ts' };

const [name = '', ...rest] = process.argv.slice(2);
const file = elsewhere[name] ?? `scripts/${name}.ts`;
if (!/^[a-z][a-z-]*$/.test(name) || !existsSync(join(repoRoot, file))) {
  process.stderr.write(`Unknown command "${name}": expected the name of a .ts file in scripts/ (see "scripts" in package.json).\n`);
  process.exit(2);
}

await orExplain(setUp);

// Spawned with tsx on its command line, so that processes it forks are started with tsx too.
const child = spawn(process.execPath, ['--import', 'tsx', join(repoRoot, file), ...rest], { stdio: 'inherit' });
// Ctrl-C reaches the child from the terminal itself; it decides how to stop, and we wait for it.
process.on('SIGINT', () => {});
for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
child.on('error', (error) => {
  process.stderr.write(`${file} could not be started: ${error.message}\n`);
  process.exit(1);
});
// 128 + number: as shells report a process that a signal ended.
child.on('close', (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
