/** One pino logger and one Temporal Runtime per process: JSON lines, or readable text on a terminal. */
import { Runtime } from '@temporalio/worker';
import type { LogLevel, LogMetadata, Logger as TemporalLogger, RuntimeOptions } from '@temporalio/worker';
import { pino } from 'pino';
import type { Logger } from 'pino';
import { countWith } from '../activities/metrics.ts';
import { addressUrl, metricsAddress } from './listen-address.ts';
import { metricsExporter } from './metrics.ts';
import { pinoPretty } from './pretty.ts';

export type { Logger } from 'pino';

/** Logs to stdout. TERMINAL_RSI_LOG_LEVEL: trace, debug, info (default), warn, error. */
export function createLogger(name: string): Logger {
  const level = process.env['TERMINAL_RSI_LOG_LEVEL'] ?? 'info';
  // Synchronous in both forms: the last words of a dying process are the ones that matter.
  const stream = process.stdout.isTTY
    ? pinoPretty({ colorize: true, sync: true, ignore: 'pid,hostname' })
    : pino.destination({ fd: 1, sync: true });
  return pino({ name, level, timestamp: pino.stdTimeFunctions.isoTime }, stream);
}

/**
 * Must be called before anything else of the SDK: there is one Runtime per process. With TERMINAL_RSI_METRICS_ADDRESS it serves
 * metrics there. @throws UserError when that setting is wrong
 */
export function installRuntime(logger: Logger): void {
  const install = (telemetry: RuntimeOptions['telemetryOptions'] = {}): void => {
    Runtime.install({
      logger: temporalLogger(logger),
      telemetryOptions: { logging: { filter: { core: 'WARN', other: 'ERROR' }, forward: {} }, ...telemetry },
      // workers/run.ts handles signals, because the SDK's own handler ignores a second one.
      shutdownSignals: [],
    });
  };
  const address = metricsAddress();
  if (!address) return install();
  try {
    install({ metrics: metricsExporter(address) });
    logger.info({ url: `${addressUrl(address)}/metrics` }, 'metrics');
  } catch (error) {
    // A port that is taken must not stop training.
    logger.error({ err: error }, 'no metrics');
    install();
  }
  countWith(Runtime.instance().metricMeter);
}

const LEVELS = { TRACE: 'trace', DEBUG: 'debug', INFO: 'info', WARN: 'warn', ERROR: 'error' } as const;

/** The SDK logs (message, meta); pino wants them the other way round. */
function temporalLogger(logger: Logger): TemporalLogger {
  const log = (level: LogLevel, message: string, meta?: LogMetadata): void => logger[LEVELS[level]](serialisable(meta), message);
  return {
    log,
    trace: (message, meta) => log('TRACE', message, meta),
    debug: (message, meta) => log('DEBUG', message, meta),
    info: (message, meta) => log('INFO', message, meta),
    warn: (message, meta) => log('WARN', message, meta),
    error: (message, meta) => log('ERROR', message, meta),
  };
}

/** Errors go under pino's `err`; symbols and bigints of the SDK's metadata are not JSON. */
function serialisable(meta: LogMetadata | undefined): Record<string, unknown> {
  const result: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(meta ?? {})) {
    if (typeof value === 'symbol' || typeof value === 'function') continue;
    if (typeof value === 'bigint') result[key] = value.toString();
    else result[key === 'error' ? 'err' : key] = value;
  }
  return result;
}
