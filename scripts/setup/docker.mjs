/**
 * Whether a Docker engine answers, and starting one for the tests where the daemon is installed but nobody started it.
 * Built-ins only (doctor works before set-up), so the engine is asked over its socket directly.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, openSync } from 'node:fs';
import { request } from 'node:http';
import { delimiter, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { cacheDirectory } from './command.mjs';

/** Where the engine is expected: DOCKER_HOST, else the usual socket. */
export function dockerAddress(host = process.env.DOCKER_HOST) {
  if (host?.startsWith('unix://')) return { text: host, socketPath: host.slice('unix://'.length) };
  if (host?.startsWith('tcp://')) {
    const url = new URL(host);
    return { text: host, host: url.hostname, port: Number(url.port || 2375) };
  }
  return { text: 'unix:///var/run/docker.sock', socketPath: '/var/run/docker.sock' };
}

function get(path, { socketPath, host, port }) {
  return new Promise((resolve, reject) => {
    const call = request({ ...(socketPath ? { socketPath } : { host, port }), path, timeout: 5_000 }, (response) => {
      let body = '';
      response.on('data', (chunk) => (body += chunk));
      response.on('end', () =>
        response.statusCode === 200 ? resolve(body) : reject(new Error(`HTTP ${response.statusCode} from ${path}`)),
      );
    });
    call.on('timeout', () => call.destroy(new Error('no answer within 5 s')));
    call.on('error', reject);
    call.end();
  });
}

/** @returns {Promise<{ reachable: boolean, address: string, version: string | null, problem: string | null }>} */
export async function findDocker(address = dockerAddress()) {
  try {
    await get('/_ping', address);
    const { Version } = JSON.parse(await get('/version', address));
    return { reachable: true, address: address.text, version: Version, problem: null };
  } catch (error) {
    return { reachable: false, address: address.text, version: null, problem: error.message };
  }
}

function findDaemon() {
  const folders = [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin', '/usr/local/sbin'];
  return folders.map((folder) => join(folder, 'dockerd')).find((file) => existsSync(file)) ?? null;
}

const startLimitMs = 30_000;

/**
 * Starts dockerd when no engine answers, the daemon is installed, and we are root on the usual socket.
 * @returns {Promise<{ started: boolean, reason: string, stop: () => Promise<void> }>} `stop` ends what was started, and only that
 */
export async function startDockerIfNeeded(logFile = join(cacheDirectory, 'dockerd.log')) {
  const nothing = async () => {};
  const found = await findDocker();
  if (found.reachable) return { started: false, reason: `engine ${found.version} answers at ${found.address}`, stop: nothing };
  const daemon = findDaemon();
  if (!daemon) return { started: false, reason: 'dockerd is not installed', stop: nothing };
  if (process.getuid?.() !== 0)
    return { started: false, reason: 'dockerd is installed but not running, and only root can start it', stop: nothing };
  if (process.env.DOCKER_HOST) return { started: false, reason: `no engine at DOCKER_HOST=${process.env.DOCKER_HOST}`, stop: nothing };

  mkdirSync(dirname(logFile), { recursive: true });
  const log = openSync(logFile, 'a');
  // Its own process group: a Ctrl-C meant for the tests must not end it before the tests' containers are removed.
  const child = spawn(daemon, [], { stdio: ['ignore', log, log], detached: true });
  let ended = false;
  const end = new Promise((resolve) => {
    for (const event of ['exit', 'error']) {
      child.on(event, () => {
        ended = true;
        resolve();
      });
    }
  });
  const stop = async () => {
    if (!ended) child.kill('SIGTERM');
    await Promise.race([end, sleep(15_000, undefined, { ref: false })]);
    if (!ended) child.kill('SIGKILL');
  };
  const deadline = Date.now() + startLimitMs;
  while (Date.now() < deadline && !ended) {
    const now = await findDocker();
    if (now.reachable) return { started: true, reason: `started dockerd ${now.version} for these tests (log: ${logFile})`, stop };
    await sleep(250);
  }
  await stop();
  return { started: false, reason: `dockerd did not come up within ${startLimitMs / 1000} s (log: ${logFile})`, stop: nothing };
}
