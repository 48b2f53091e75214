import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { SupervisedChild } from './child.ts';
import { freePort } from '../../tests/free-port.ts';

const directory = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-child-'));
after(() => rm(directory, { recursive: true, force: true }));

/** A process that serves /health with `answer`, JavaScript of a request handler's body. */
async function serve(
  name: string,
  answer: string,
  patienceMs = 200,
): Promise<{ child: SupervisedChild; starts: number[]; messages: string[] }> {
  const port = await freePort();
  const program = `require('node:http').createServer((request, response) => { ${answer} }).listen(${port}, '127.0.0.1')`;
  const starts: number[] = [];
  const messages: string[] = [];
  const child = new SupervisedChild({
    name,
    command: process.execPath,
    args: ['-e', program],
    env: process.env,
    cwd: directory,
    logFile: path.join(directory, `${name}.log`),
    health: { url: `http://127.0.0.1:${port}/health`, patienceMs, startPatienceMs: 60_000, intervalMs: 100 },
    onCrash: (message) => messages.push(message),
    onStart: (pid) => starts.push(pid),
  });
  child.start();
  return { child, starts, messages };
}

test('a process that lives but no longer answers is killed and started again', async () => {
  const { child, starts, messages } = await serve('hangs', "response.end('{}', () => setTimeout(() => { for (;;); }, 300));");
  while (starts.length < 2) await sleep(20);
  await child.stop(0);
  assert.match(messages[0] ?? '', /^hangs has been unhealthy for too long: it does not answer; ending it$/);
  assert.match(messages[1] ?? '', /^hangs was ended by SIGKILL; starting it again/);
});

test('a process that says that it is stuck is killed, with its reason; one that says it is well is left alone', async () => {
  const stuck = await serve(
    'stuck',
    `globalThis.asked = (globalThis.asked ?? 0) + 1; response.statusCode = asked > 1 ? 503 : 200; response.end('{"status":"stuck","why":"no step"}');`,
  );
  const well = await serve('well', "process.stdout.write('asked\\n'); response.end('{}');", 60_000);
  while (stuck.starts.length < 2) await sleep(20);
  while (!(await readFile(well.child.logFile, 'utf8')).includes('asked\nasked\nasked\nasked\n')) await sleep(20);
  await stuck.child.stop(0);
  await well.child.stop(0);
  assert.match(stuck.messages[0] ?? '', /^stuck has been unhealthy for too long: stuck: no step; ending it$/);
  assert.deepEqual([well.starts.length, well.messages], [1, []]);
});
