/** What the trainer says about itself reaches the ledger, and ledgers that say less stay readable. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import pino from 'pino';
import { SamplerPool } from '../policy/sampler-pool.ts';
import { device } from '../policy/tensorflow.ts';
import { LocalTrainer } from '../policy/trainer/local.ts';
import { startTrainerServer } from '../policy/trainer/server.ts';
import { stage } from '../records/ledger-fixture.ts';
import { recordBodySchema } from '../records/ledger-schema.ts';
import { rolloutDependencies } from './dependencies.ts';

const data = await mkdtemp(join(tmpdir(), 'numerics-test-'));
process.env['TERMINAL_RSI_DATA'] = data;
const logger = pino({ level: 'silent' });
const server = await startTrainerServer({
  ...{ trainer: new LocalTrainer(), samplers: new SamplerPool(() => Promise.reject(new Error('none')), { slots: 3 }), logger },
  ...{ host: '127.0.0.1', port: 0 },
});
process.env['TERMINAL_RSI_TRAINER_URL'] = `http://127.0.0.1:${server.port}`;
const dependencies = rolloutDependencies(logger);
after(async () => {
  await dependencies.close();
  await server.close();
  await rm(data, { recursive: true, force: true });
});

test('device, engine and counts of a running trainer are a stage record', async () => {
  const numerics = await dependencies.numerics?.();
  const { kind, name, tensorflow, threads } = device();
  assert.deepEqual(
    { ...numerics, driver: undefined, tensorFloat32: undefined },
    {
      ...{ device: kind, deviceName: name, tensorflow, threads, samplerSlots: 3, node: process.version },
      ...{ engine: 'graph', driver: undefined, tensorFloat32: undefined },
    },
  );
  const body = stage('Base');
  const record = { ...body, observed: { ...body.observed, numerics } };
  assert.deepEqual(recordBodySchema.parse(record), record);
});

test('a record of version 0.2.0, which tells less, is read', () => {
  const body = stage('Base');
  const record = { ...body, observed: { ...body.observed, numerics: { device: 'CPU', threads: 2, samplerSlots: 48, node: 'v22.0.0' } } };
  assert.deepEqual(recordBodySchema.parse(record), record);
});
