/**
 * Only one set-up works on a folder at a time. The lock is a Unix socket in Linux's abstract namespace: taking it is atomic, and the
 * kernel drops it when its holder ends however it ends, so there is no stale lock file to judge or to remove.
 */
import { createHash } from 'node:crypto';
import { connect, createServer } from 'node:net';
import { repoRoot } from './command.mjs';

/** The lock's name: one per folder, so two clones can be set up at once. */
export function lockName(folder = repoRoot) {
  return `\0terminal-rsi-setup-${createHash('sha256').update(folder).digest('hex').slice(0, 16)}`;
}

function tryToTake(name) {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.on('error', () => socket.destroy()));
    server.once('error', (error) => (error.code === 'EADDRINUSE' ? resolve(null) : reject(error)));
    server.listen(name, () => resolve(server));
  });
}

/** Resolves when the holder lets go: it keeps our connection open for as long as it lives. */
function waitForHolder(name) {
  return new Promise((resolve) => {
    const socket = connect(name);
    socket.on('error', resolve);
    socket.on('close', resolve);
    socket.resume();
  });
}

/**
 * Runs `work` while holding the lock; waits for another holder first.
 * @template T @param {() => Promise<T>} work @param {{ name?: string, onWait?: () => void }} [options] @returns {Promise<T>}
 */
export async function withSetupLock(work, { name = lockName(), onWait = () => {} } = {}) {
  const waiting = new Set();
  let server = await tryToTake(name);
  if (!server) onWait();
  while (!server) {
    await waitForHolder(name);
    server = await tryToTake(name);
  }
  server.on('connection', (socket) => waiting.add(socket));
  try {
    return await work();
  } finally {
    for (const socket of waiting) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  }
}
