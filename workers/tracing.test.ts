/**
 * Tracing against a real Temporal server and a collector that speaks OTLP: one trace goes from the client over every workflow to
 * every activity; and a history made with tracing replays without it, and the other way round.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { Client } from '@temporalio/client';
import { Worker } from '@temporalio/worker';
import { repoRoot } from '../records/paths.ts';
import { recordedActivities } from '../tests/recorded-activities.ts';
import type { Behaviour } from '../tests/recorded-activities.ts';
import { fetchHistories } from '../tests/replay.ts';
import { TemporalServer } from '../tests/temporal.ts';
import { GPU_TASK_QUEUE, TASK_QUEUE } from '../workflows/contract.ts';
import { bundleStamp, loadWorkflowBundle, stampText } from './bundle.ts';
import type { WorkflowBundle } from './bundle.ts';
import { startTracing, tracingIsOn, workflowInterceptorModules } from './tracing.ts';
import type { Tracing } from './tracing.ts';

interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly service: unknown;
}
interface OtlpAttribute {
  readonly key: string;
  readonly value: { readonly stringValue?: string; readonly intValue?: number };
}
interface OtlpRequest {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly OtlpAttribute[] };
    readonly scopeSpans: readonly {
      readonly spans: readonly (Omit<Span, 'attributes' | 'service'> & { readonly attributes: readonly OtlpAttribute[] })[];
    }[];
  }[];
}

const spans: Span[] = [];
const collector = http.createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    if (request.url === '/v1/traces') take(JSON.parse(Buffer.concat(chunks).toString()) as OtlpRequest);
    response.writeHead(request.url === '/v1/traces' ? 200 : 404, { 'content-type': 'application/json' }).end('{}');
  });
});
function take({ resourceSpans }: OtlpRequest): void {
  const values = (attributes: readonly OtlpAttribute[]): Record<string, unknown> =>
    Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue ?? value.intValue]));
  for (const { resource, scopeSpans } of resourceSpans)
    for (const span of scopeSpans.flatMap((scope) => scope.spans))
      spans.push({ ...span, attributes: values(span.attributes), service: values(resource.attributes)['service.name'] });
}

const small = {
  profile: 'smoke',
  rounds: 1,
  rollout: { chunkSize: 8, chunksInFlight: 2 },
  evaluation: { repeats: 1 },
  rpr: { iterations: [1], tasksPerIteration: 2, samplesPerTask: 3 },
};
let server: TemporalServer;
let plain: WorkflowBundle;
let traced: WorkflowBundle;
let tracing: Tracing;

before(async () => {
  plain = await loadWorkflowBundle();
  assert.equal(tracingIsOn(), false);
  assert.equal(await startTracing('nobody'), undefined);
  collector.listen(0, '127.0.0.1');
  await once(collector, 'listening');
  process.env['OTEL_EXPORTER_OTLP_ENDPOINT'] = `http://127.0.0.1:${(collector.address() as AddressInfo).port}`;
  const started = await startTracing('terminal-rsi-test');
  assert.ok(started);
  tracing = started;
  traced = await loadWorkflowBundle({ interceptorModules: workflowInterceptorModules() });
  server = await TemporalServer.start();
});
after(async () => {
  collector.close();
  collector.closeAllConnections();
  await server.stop();
});

/** Workers with recorded activities for as long as `during` runs. */
async function withWorkers<T>(on: boolean, behaviour: Behaviour, during: () => Promise<T>): Promise<T> {
  const { rollout, gpu } = recordedActivities(behaviour);
  const { connection } = server;
  const interceptors = { activity: on ? [tracing.activity] : [] };
  const worker = await Worker.create({
    ...{ connection, interceptors, taskQueue: TASK_QUEUE, activities: rollout },
    workflowBundle: on ? traced : plain,
    ...(on ? { sinks: tracing.sinks } : {}),
  });
  const gpuWorker = await Worker.create({ connection, interceptors, taskQueue: GPU_TASK_QUEUE, activities: gpu });
  return await worker.runUntil(gpuWorker.runUntil(during));
}
async function run(workflowId: string, on: boolean): Promise<void> {
  const client = new Client({ connection: server.client.connection, interceptors: on ? { workflow: [tracing.client] } : {} });
  await client.workflow.execute('trainingRun', { workflowId, taskQueue: TASK_QUEUE, args: [small], workflowExecutionTimeout: '5m' });
}
/** Every history of the run replays with tracing and without it. */
async function replaysBothWays(id: string): Promise<void> {
  const histories = (await historiesOf(id)).map(({ workflowId, json }) => ({ workflowId, history: JSON.parse(json) as unknown }));
  assert.ok(histories.length >= 6);
  for (const options of [{ workflowBundle: plain }, { workflowBundle: traced, sinks: tracing.sinks }]) {
    for await (const { workflowId, error } of Worker.runReplayHistories(options, histories))
      assert.equal(error, undefined, `${workflowId}, ${stampText(options.workflowBundle.stamp)}`);
  }
}
const historiesOf = async (id: string): ReturnType<typeof fetchHistories> =>
  (await fetchHistories(server.client)).filter(({ workflowId }) => workflowId === id || workflowId.startsWith(`${id}/`));

describe('tracing', () => {
  it('makes one trace of a run, from the client over stage and batch to each activity, and sends it before the process ends', async () => {
    await withWorkers(true, {}, () => run('traced', true));
    await tracing.close();
    const start = spans.find(({ name }) => name === 'StartWorkflow:trainingRun');
    assert.ok(start);
    assert.equal(start.parentSpanId, undefined);
    assert.deepEqual(new Set(spans.map(({ traceId }) => traceId)), new Set([start.traceId]));
    assert.deepEqual(new Set(spans.map(({ service }) => service)), new Set(['terminal-rsi-test']));

    const byId = new Map(spans.map((span) => [span.spanId, span]));
    const above = (span: Span | undefined): string[] => (span ? [...above(byId.get(span.parentSpanId ?? '')), span.name] : []);
    const rollout = spans.find(({ name, attributes }) => name === 'RunActivity:rollout' && attributes['terminal_rsi.stage'] === 'RSR-1');
    assert.deepEqual(above(rollout), [
      'StartWorkflow:trainingRun',
      'RunWorkflow:trainingRun',
      'StartChildWorkflow:rsrStage',
      'RunWorkflow:rsrStage',
      'StartChildWorkflow:episodeBatch',
      'RunWorkflow:episodeBatch',
      'StartActivity:rollout',
      'RunActivity:rollout',
    ]);
    assert.equal(rollout?.attributes['terminal_rsi.purpose'], 'rollout');
    assert.equal(rollout?.attributes['terminal_rsi.chunk'], 0);
    assert.equal(rollout?.attributes['terminal_rsi.attempt'], 1);
    const stages = spans.filter(({ name }) => name === 'RunWorkflow:rprStage').map(({ attributes }) => attributes['terminal_rsi.stage']);
    assert.deepEqual(stages, ['RPR-1']);

    const scheduled = (await historiesOf('traced'))
      .flatMap(({ events }) => events)
      .filter(({ eventType }) => eventType === 'EVENT_TYPE_ACTIVITY_TASK_SCHEDULED');
    assert.equal(spans.filter(({ name }) => name.startsWith('RunActivity:')).length, scheduled.length);
    assert.equal(new Set(spans.map(({ spanId }) => spanId)).size, spans.length, 'a span id is unique');
  });

  it('leaves no mark on histories: they replay with tracing on and off, whichever way they were made', async () => {
    await withWorkers(false, {}, () => run('plain', false));
    await replaysBothWays('traced');
    await replaysBothWays('plain');
    const commands = async (id: string): Promise<unknown[]> =>
      (await historiesOf(id)).map(({ workflowId, events }) => [
        workflowId.slice(id.length),
        events
          .map(({ eventType }) => eventType)
          .filter((type) => /ACTIVITY_TASK_SCHEDULED|CHILD_WORKFLOW_EXECUTION_INITIATED|UPSERT/.test(type)),
      ]);
    assert.deepEqual(sorted(await commands('traced')), sorted(await commands('plain')));
  });

  it('can be switched on and off again in the middle of a run', async () => {
    const client = new Client({ connection: server.client.connection });
    const handle = await client.workflow.start('trainingRun', { workflowId: 'switched', taskQueue: TASK_QUEUE, args: [small] });
    for (const [on, stage] of [
      [false, 'RSR-1'],
      [true, 'RPR-1'],
    ] as const) {
      let reached = (): void => undefined;
      const arrival = new Promise<void>((resolve) => (reached = resolve));
      await withWorkers(on, { before: async ({ input }) => void (input.key?.stage === stage && reached()) }, () => arrival);
    }
    await withWorkers(false, {}, () => handle.result());
    await replaysBothWays('switched');
  });

  it('is told by the stamp of the workflow bundle', async () => {
    assert.match(
      stampText(await bundleStamp({ interceptorModules: workflowInterceptorModules() })),
      /with workflows\/tracing\.ts [0-9a-f]{12}$/,
    );
    assert.doesNotMatch(stampText(await bundleStamp()), /tracing/);
  });

  it('loads nothing of OpenTelemetry while it is off', () => {
    const program = `await import('./workers/tracing.ts').then(({ startTracing }) => startTracing('off'));
      const loaded = (await import('node:module')).default._cache;
      process.stdout.write(JSON.stringify(Object.keys(loaded).filter((file) => file.includes('opentelemetry'))));`;
    const env = { ...process.env, OTEL_EXPORTER_OTLP_ENDPOINT: '' };
    const loaded = (on: string): string[] =>
      JSON.parse(
        execFileSync(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', program], {
          cwd: repoRoot,
          env: { ...env, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: on },
          encoding: 'utf8',
        }),
      ) as string[];
    assert.deepEqual(loaded(''), []);
    assert.notEqual(loaded('http://127.0.0.1:9').length, 0);
  });
});

function sorted(values: unknown[]): string[] {
  return values.map((value) => JSON.stringify(value)).sort();
}
