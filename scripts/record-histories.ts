/**
 * `npm run record-histories [-- --version X.Y.Z]`: records the histories that later versions have to replay
 * (docs/workflow-changes.md): real workflows on a real dev server; only the activities answer at once.
 *
 * Each scenario's histories go to tests/fixtures/histories/<version>/ when they have been cleared of what belongs to this
 * machine and replayed. A set that is there already is replaced; `--scenario NAME` adds one that the set lacks.
 *
 * With `--run RUN --as NAME --shows TEXT` the histories of a real run of this data folder, or of an archive, are added to the set.
 */
import { rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { parseArgs } from 'node:util';
import { UserError } from '../environment/errors.ts';
import { isArchive, openArchive } from '../records/audit/archive.ts';
import type { WorkflowHistory } from '../records/history.ts';
import { recordedActivities } from '../tests/recorded-activities.ts';
import { readIndex, readScenario, versionFolder, writeIndex, writeScenario } from '../tests/recorded-histories.ts';
import type { HistoryIndex } from '../tests/recorded-histories.ts';
import { fetchHistories, replayHistories, workflowBundle } from '../tests/replay.ts';
import { TemporalServer } from '../tests/temporal.ts';
import { stampText } from '../workers/bundle.ts';
import type { StageResult } from '../workflows/contract.ts';
import * as workflows from '../workflows/index.ts';
import { openRun } from './audit/open-run.ts';
import { driveRun } from './record-histories/driven-run.ts';
import { neutral } from './record-histories/neutral.ts';
import { scenarios } from './record-histories/scenarios.ts';
import type { Scenario } from './record-histories/scenarios.ts';

const { version: current } = createRequire(import.meta.url)('../package.json') as { version: string };
const { values } = parseArgs({
  options: {
    version: { type: 'string', default: current },
    scenario: { type: 'string' },
    run: { type: 'string' },
    as: { type: 'string' },
    shows: { type: 'string' },
  },
});
const { version, run, as, shows: told } = values;
if (!/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(version)) throw new UserError(`--version: got ${version}, expected one such as ${current}`);
if (values.scenario !== undefined) await addScenario(values.scenario);
else if (run === undefined) await recordScenarios();
else if (as !== undefined && /^[a-z0-9-]+$/.test(as) && told !== undefined) await addRun(run, as, told);
else throw new UserError(`--run needs --as with a name in small letters and --shows with what the run went through; got ${as} and ${told}`);

async function recordScenarios(): Promise<void> {
  const stamp = stampText((await workflowBundle()).stamp);
  await rm(versionFolder(version), { recursive: true, force: true });
  const listed: HistoryIndex['scenarios'][number][] = [];
  const all: WorkflowHistory[] = [];
  const finishedOf = new Map<string, Record<string, StageResult>>();
  const server = await TemporalServer.start();
  try {
    for (const scenario of scenarios) {
      const { name, shows, ends, reuses } = scenario;
      const found = Object.entries(finishedOf.get(reuses?.scenario ?? '') ?? {}).filter(([stage]) => reuses?.stages.includes(stage));
      const finished = Object.fromEntries(found);
      finishedOf.set(name, finished);
      const own = await record(server, scenario, finished);
      listed.push({ name, shows, ends, executions: own.length, events: eventsOf(own) });
      all.push(...own);
    }
  } finally {
    await server.stop();
  }
  requireAll('workflow', Object.keys(workflows), new Set(all.map(({ type }) => type)));
  const { rollout, gpu } = recordedActivities();
  const called = all.flatMap(({ events }) =>
    events.flatMap((event) => event.activityTaskScheduledEventAttributes?.activityType.name ?? []),
  );
  requireAll('activity', [...Object.keys(rollout), ...Object.keys(gpu)], new Set(called));
  await writeIndex({ version, bundle: stamp, scenarios: listed });
  process.stdout.write(`${versionFolder(version)}: ${stamp}\n`);
}

async function addScenario(name: string): Promise<void> {
  const scenario = scenarios.find((one) => one.name === name);
  if (!scenario || scenario.reuses)
    throw new UserError(`--scenario: got ${name}, expected the name of a scenario that reuses no other one`);
  const server = await TemporalServer.start();
  try {
    const own = await record(server, scenario, {});
    await addToIndex({ name, shows: scenario.shows, ends: scenario.ends, executions: own.length, events: eventsOf(own) });
  } finally {
    await server.stop();
  }
}

async function addRun(target: string, name: string, shows: string): Promise<void> {
  const source = (await isArchive(target))
    ? await openArchive(target)
    : await openRun(target, (message) => process.stderr.write(`${message}\n`));
  try {
    await keep(name, source.histories);
    await addToIndex({ name, shows, ends: 'completed', executions: source.histories.length, events: eventsOf(source.histories) });
  } finally {
    await source.close();
  }
}

async function record(server: TemporalServer, scenario: Scenario, finished: Record<string, StageResult>): Promise<WorkflowHistory[]> {
  const ended = await driveRun(server, scenario, finished);
  if (ended !== scenario.ends) throw new Error(`scenario ${scenario.name} ended as ${ended}, expected ${scenario.ends}`);
  const own = await fetchHistories(server.client, scenario.name);
  await keep(scenario.name, own);
  return own;
}
async function keep(name: string, histories: readonly WorkflowHistory[]): Promise<void> {
  await writeScenario(version, name, histories.map(neutral));
  await replayHistories(await readScenario(version, name));
  process.stdout.write(`${name}: ${histories.length} executions, ${eventsOf(histories)} events\n`);
}
async function addToIndex(added: HistoryIndex['scenarios'][number]): Promise<void> {
  const index = readIndex(version);
  await writeIndex({ ...index, scenarios: [...index.scenarios.filter(({ name }) => name !== added.name), added] });
}
function eventsOf(histories: readonly WorkflowHistory[]): number {
  return histories.reduce((sum, { events }) => sum + events.length, 0);
}

/** A scenario is missing where something is never run. */
function requireAll(what: string, names: readonly string[], seen: ReadonlySet<string>): void {
  const missing = names.filter((name) => !seen.has(name));
  if (missing.length > 0)
    throw new Error(`no scenario runs the ${what} ${missing.join(', ')}: add one to scripts/record-histories/scenarios.ts`);
}
