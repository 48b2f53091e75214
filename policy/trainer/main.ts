/**
 * The trainer process: owns TensorFlow, serves sampling and training over HTTP. The GPU worker forks it; alone it runs as
 *
 *   node --import tsx policy/trainer/main.ts
 *
 * Environment: TERMINAL_RSI_TRAINER_PORT (0 or unset: a free port, sent to the parent as {type: 'ready', port}),
 * TERMINAL_RSI_TRAINER_HOST (127.0.0.1), TERMINAL_RSI_TRAINER_TOKEN (required for another host),
 * TERMINAL_RSI_SAMPLER_SLOTS (48), TERMINAL_RSI_SAMPLER_GIB (half of the memory), TERMINAL_RSI_LOG_LEVEL (info). Logs are JSON
 * lines on stderr.
 *
 * Ends when its parent dies, and on SIGTERM after the current training call.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import pino from 'pino';
import { UserError } from '../../environment/errors.ts';
import { openStore } from '../../records/artifacts.ts';
import { DEFAULT_SLOTS } from '../sampler.ts';
import { engineMode, onFallback } from '../engine/mode.ts';
import { SamplerPool } from '../sampler-pool.ts';
import { device } from '../tensorflow.ts';
import { LocalTrainer } from './local.ts';
import { startTrainerServer } from './server.ts';
import type { RunningServer, TrainerServerOptions } from './server.ts';
import { warmUp } from './warm-up.ts';

/** A trainer whose worker was killed ends with its current TensorFlow operation, and holds the port until then. */
const PORT_PATIENCE_MS = 30_000;

const logger = pino({ name: 'trainer', level: process.env['TERMINAL_RSI_LOG_LEVEL'] ?? 'info' }, pino.destination({ fd: 2, sync: true }));

function integer(name: string, fallback: number, least: number, most: number): number {
  const text = process.env[name];
  if (text === undefined || text === '') return fallback;
  const value = Number(text);
  if (!Number.isInteger(value) || value < least || value > most)
    throw new UserError(`${name} is '${text}', expected an integer from ${least} to ${most}`);
  return value;
}

/** Starts the server, after a while if its port is still taken. */
async function listen(options: TrainerServerOptions): Promise<RunningServer> {
  const deadline = Date.now() + PORT_PATIENCE_MS;
  for (let attempt = 1; ; attempt++) {
    try {
      return await startTrainerServer(options);
    } catch (error) {
      const taken = error instanceof UserError && (error.cause as NodeJS.ErrnoException | undefined)?.code === 'EADDRINUSE';
      if (!taken || Date.now() > deadline) throw error;
      if (attempt === 1) logger.warn({ port: options.port }, 'the port is taken: waiting for it');
      await sleep(100);
    }
  }
}

async function main(): Promise<void> {
  // Before anything that takes time: a parent that dies meanwhile would leave a trainer that nobody ends.
  const parentGone = (): never => {
    logger.warn('the parent process is gone');
    process.exit(1);
  };
  process.on('disconnect', parentGone);
  if (process.send !== undefined && !process.connected) parentGone();

  onFallback((reason) => logger.warn({ reason }, 'steps run eagerly, several times slower: the results are the same'));
  const engine = engineMode();
  if (device().kind === 'GPU') warmUp();
  const store = openStore();
  const gibibytes = integer('TERMINAL_RSI_SAMPLER_GIB', 0, 0, 65536);
  const samplers = new SamplerPool((sha256) => store.directory({ sha256 }), {
    slots: integer('TERMINAL_RSI_SAMPLER_SLOTS', DEFAULT_SLOTS, 1, 4096),
    ...(gibibytes > 0 && { memoryBytes: gibibytes * 2 ** 30 }),
  });
  const server = await listen({
    trainer: new LocalTrainer(),
    samplers,
    logger,
    host: process.env['TERMINAL_RSI_TRAINER_HOST'] ?? '127.0.0.1',
    port: integer('TERMINAL_RSI_TRAINER_PORT', 0, 0, 65535),
    token: process.env['TERMINAL_RSI_TRAINER_TOKEN'],
  });
  let signals = 0;
  const close = (why: string): void => {
    signals++;
    if (signals > 1) process.exit(130);
    logger.info({ why }, 'trainer stops');
    void server.close().finally(() => process.exit(0));
  };
  process.on('SIGTERM', () => close('SIGTERM'));
  // Ctrl-C reaches the whole process group; the parent decides when its trainer ends.
  process.on('SIGINT', () => (process.connected ? undefined : close('SIGINT')));
  logger.info({ pid: process.pid, port: server.port, device: device(), engine }, 'trainer ready');
  process.send?.({ type: 'ready', port: server.port });
}

main().catch((error: unknown) => {
  logger.fatal({ err: error }, 'trainer cannot start');
  process.exit(1);
});
