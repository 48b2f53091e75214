/**
 * The workflow side of tracing (workers/tracing.ts): spans of workflows, and the trace context that goes on to their activities and
 * children. Only in the bundle when tracing is on.
 *
 * Invariant: tracing changes nothing that a history records, so that a run may go on with it switched on or off. The SDK's
 * interceptors are asynchronous, and whatever waits for them goes on a few microtasks later than it would without; commands could
 * change places. Here the workflow waits for its own call, and tracing only looks on.
 */
import { trace } from '@opentelemetry/api';
import { interceptors as sdkInterceptors } from '@temporalio/interceptors-opentelemetry/lib/workflow-interceptors.js';
import type { WorkflowInterceptors } from '@temporalio/workflow';

/** Progress signals and queries are not traced: there are many, and they tell nothing about where the time goes. */
export function interceptors(): WorkflowInterceptors {
  const { inbound: [inbound] = [], outbound: [outbound] = [], internals = [] } = sdkInterceptors();
  return {
    inbound: [
      { ...lookOn(inbound, 'execute'), ...lookOn(inbound, 'handleUpdate') },
      {
        execute(input, next) {
          trace.getActiveSpan()?.setAttributes(place(input.args[0]));
          return next(input);
        },
      },
    ],
    outbound: [
      {
        ...lookOn(outbound, 'scheduleActivity'),
        ...lookOn(outbound, 'startChildWorkflowExecution'),
        ...lookOn(outbound, 'continueAsNew'),
      },
    ],
    internals,
  };
}

type Next = (input: unknown) => Promise<unknown>;

/** The interceptor's method, beside the call instead of around it. */
function lookOn<T extends object, K extends keyof T>(interceptor: T | undefined, method: K): Pick<T, K> | undefined {
  const around = interceptor?.[method] as ((input: unknown, next: Next) => Promise<unknown>) | undefined;
  if (!interceptor || !around) return undefined;
  const beside = (input: unknown, next: Next): Promise<unknown> => {
    let call: Promise<unknown> | undefined;
    const once: Next = (withContext) => (call ??= next(withContext));
    // Its errors are those of the call, which the workflow gets from `call` itself.
    around.call(interceptor, input, once).catch(() => undefined);
    // Without a call by now it is the replay of a history that was made without tracing, where it waits first: too late for us.
    return call ?? once(input);
  };
  return { [method]: beside } as unknown as Pick<T, K>;
}

/** Stage and purpose, where the workflow's input has them (workflows/contract.ts). */
function place(input: unknown): Record<string, string> {
  const { stage, key } = (input ?? {}) as { stage?: unknown; key?: { stage?: unknown; purpose?: unknown } };
  const found = { 'terminal_rsi.stage': key?.stage ?? stage, 'terminal_rsi.purpose': key?.purpose };
  return Object.fromEntries(Object.entries(found).filter((entry): entry is [string, string] => typeof entry[1] === 'string'));
}
