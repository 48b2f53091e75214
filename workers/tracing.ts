/**
 * OpenTelemetry traces, from the start of a run over its workflows to their activities. On when OTEL_EXPORTER_OTLP_ENDPOINT or
 * OTEL_EXPORTER_OTLP_TRACES_ENDPOINT names a collector (OTLP over HTTP with JSON); the other OTEL_* variables mean what OpenTelemetry
 * says they do. Off, nothing of OpenTelemetry is loaded, here and in the workflow bundle.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { WorkflowClientInterceptor } from '@temporalio/client';
import type { ActivityInterceptorsFactory, InjectedSinks } from '@temporalio/worker';
import type { WorkflowInfo } from '@temporalio/workflow';
import type { OpenTelemetrySinks } from '@temporalio/interceptors-opentelemetry';
import { placeOf } from './activity-monitor.ts';
import type { Logger } from './runtime.ts';

/** A collector that is gone must not hold up a worker that ends. */
const LAST_EXPORT_MS = 3_000;

export interface Tracing {
  readonly client: WorkflowClientInterceptor;
  readonly activity: ActivityInterceptorsFactory;
  /** Takes the workflows' spans out of the sandbox. */
  readonly sinks: InjectedSinks<OpenTelemetrySinks>;
  /** Sends what has ended; waits for at most three seconds. */
  close(): Promise<void>;
}

export function tracingIsOn(): boolean {
  const { OTEL_SDK_DISABLED, OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT } = process.env;
  if (OTEL_SDK_DISABLED?.toLowerCase() === 'true' || OTEL_TRACES_EXPORTER === 'none') return false;
  return Boolean(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT ?? OTEL_EXPORTER_OTLP_ENDPOINT);
}

/** What the workflow bundle has to be built with (workers/bundle.ts): its stamp tells whether tracing is in. */
export function workflowInterceptorModules(): string[] {
  return tracingIsOn() ? [fileURLToPath(new URL('../workflows/tracing.ts', import.meta.url))] : [];
}

let started: Promise<Tracing> | undefined;

/** Once per process; `service` is the name in the traces unless OTEL_SERVICE_NAME gives another. undefined where tracing is off. */
export async function startTracing(service: string, logger?: Pick<Logger, 'warn'>): Promise<Tracing | undefined> {
  return tracingIsOn() ? await (started ??= start(service, logger)) : undefined;
}

/** For the end of a process, whether it traced or not. */
export async function stopTracing(): Promise<void> {
  await (await started)?.close();
}

async function start(service: string, logger: Pick<Logger, 'warn'> | undefined): Promise<Tracing> {
  const [api, resources, { AsyncLocalStorageContextManager }, sdk, { OTLPTraceExporter }, temporal] = await Promise.all([
    import('@opentelemetry/api'),
    import('@opentelemetry/resources'),
    import('@opentelemetry/context-async-hooks'),
    import('@opentelemetry/sdk-trace-base'),
    import('@opentelemetry/exporter-trace-otlp-http'),
    import('@temporalio/interceptors-opentelemetry'),
  ]);
  const warn = (message: string, ...details: unknown[]): void => logger?.warn({ details }, `tracing: ${message}`);
  const quiet = (): void => undefined;
  api.diag.setLogger({ error: warn, warn, info: quiet, debug: quiet, verbose: quiet }, api.DiagLogLevel.WARN);

  const resource = new resources.Resource({ 'service.name': service }).merge(resources.envDetectorSync.detect());
  const processor = new sdk.BatchSpanProcessor(new OTLPTraceExporter());
  const provider = new sdk.BasicTracerProvider({ resource, spanProcessors: [processor] });
  provider.register({ contextManager: new AsyncLocalStorageContextManager().enable() });

  const client = new temporal.OpenTelemetryWorkflowClientInterceptor();
  const exporter = temporal.makeWorkflowExporter(processor, resource);
  return {
    // Starts only: the launcher's queries would be a span a second.
    client: { startWithDetails: (input, next) => client.startWithDetails(input, next) },
    activity: (context) => {
      const inbound = new temporal.OpenTelemetryActivityInboundInterceptor(context);
      return {
        inbound: {
          execute: (input, next) =>
            inbound.execute(input, (traced) => {
              const { stage, purpose, chunk } = placeOf(traced.args[0]);
              api.trace.getActiveSpan()?.setAttributes({
                'terminal_rsi.attempt': context.info.attempt,
                ...(stage === undefined ? {} : { 'terminal_rsi.stage': stage }),
                ...(purpose === undefined ? {} : { 'terminal_rsi.purpose': purpose }),
                ...(chunk === undefined ? {} : { 'terminal_rsi.chunk': chunk }),
              });
              return next(traced);
            }),
        },
      };
    },
    sinks: {
      exporter: {
        export: {
          // It would copy everything that it is given of the workflow into each span.
          fn: ({ workflowId, runId, workflowType }, spans) =>
            exporter.export.fn({ workflowId, runId, workflowType } as WorkflowInfo, spans),
        },
      },
    },
    async close() {
      await Promise.race([
        provider.shutdown().catch((error: unknown) => warn(String(error))),
        sleep(LAST_EXPORT_MS, undefined, { ref: false }),
      ]);
    },
  };
}
