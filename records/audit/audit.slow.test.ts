/**
 * A real run is audited and exported; then one thing after the other in its archive is changed, as someone would who wants the
 * run to have been another one: each is found, and the place and the value are named.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { cp, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { makeAuditedRun } from '../../tests/audited-run.ts';
import type { AuditedRun } from '../../tests/audited-run.ts';
import { canonicalHash, canonicalJson } from '../canonical-json.ts';
import { loadTask } from '../../environment/tasks/task.ts';
import type { Trajectory } from '../atif.ts';
import { readTrials } from '../harbor-job.ts';
import type { LedgerRecord } from '../ledger.ts';
import type { StageRecord } from '../lineage.ts';
import { suiteDirectory } from '../../suites/suites.ts';
import { writeTrajectories } from '../trajectories.ts';
import { manifestSchema, openArchive } from './archive.ts';
import type { Manifest } from './archive.ts';
import { auditSource } from './audit.ts';
import type { Audit } from './audit.ts';
import { openDataFolder } from './data-source.ts';
import { writeArchive } from './export.ts';
import type { Problem } from './findings.ts';
import { auditText } from './text.ts';

let run: AuditedRun;
before(async () => {
  run = await makeAuditedRun();
});
after(async () => {
  await rm(run.directory, { recursive: true, force: true });
});

async function audit(target: string, options: { stage?: string; replay?: boolean; anchor?: string } = {}): Promise<Audit> {
  const source = await openArchive(target);
  try {
    return (await auditSource(source, { replay: false, ...options })).audit;
  } finally {
    await source.close();
  }
}

/** A copy of the unpacked archive that a test may spoil. */
class Archive {
  readonly folder: string;
  private constructor(folder: string) {
    this.folder = folder;
  }
  static async copy(): Promise<Archive> {
    const folder = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-tampered-'));
    await cp(run.unpacked, folder, { recursive: true });
    return new Archive(folder);
  }
  read(name: string): Promise<string> {
    return readFile(path.join(this.folder, name), 'utf8');
  }
  async write(name: string, text: string | Buffer): Promise<void> {
    await writeFile(path.join(this.folder, name), text);
  }
  /** Makes the manifest fit what is there now: the change of someone who knows the format. */
  async seal(): Promise<void> {
    const manifest = JSON.parse(await this.read('manifest.json')) as Manifest;
    const names = (await readdir(this.folder, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
    const members = [];
    for (const entry of names) {
      const name = path.relative(this.folder, path.join(entry.parentPath, entry.name));
      if (name === 'manifest.json') continue;
      const bytes = await readFile(path.join(this.folder, name));
      members.push({ name, sha256: createHash('sha256').update(bytes).digest('hex'), bytes: bytes.byteLength });
    }
    await this.write('manifest.json', JSON.stringify(manifestSchema.parse({ ...manifest, members })));
  }
  async record(stage: string): Promise<{ name: string; record: StageRecord }> {
    for (const name of await readdir(path.join(this.folder, 'ledger'))) {
      const record = JSON.parse(await this.read(`ledger/${name}`)) as LedgerRecord;
      if (record.kind === 'stage' && record.content.stage === stage) return { name: `ledger/${name}`, record };
    }
    throw new Error(`no record of ${stage}`);
  }
  /** Writes a record with the hash that its content has. */
  async rewrite(name: string, record: LedgerRecord): Promise<LedgerRecord> {
    const { hash: _, ...rest } = record;
    const next = { ...rest, hash: canonicalHash(rest) } as LedgerRecord;
    await this.write(name, `${canonicalJson(next)}\n`);
    return next;
  }
  /** Writes the records from `name` on anew, so that the chain holds again. */
  async rechain(from: string): Promise<void> {
    let before: LedgerRecord | undefined;
    for (const file of (await readdir(path.join(this.folder, 'ledger'))).sort()) {
      const name = `ledger/${file}`;
      const record = JSON.parse(await this.read(name)) as LedgerRecord;
      before = name < from ? record : await this.rewrite(name, { ...record, previous: before?.hash ?? null });
    }
  }
  async flip(name: string, at = -2): Promise<void> {
    const bytes = await readFile(path.join(this.folder, name));
    const place = at < 0 ? bytes.length + at : at;
    bytes[place] = (bytes[place] ?? 0) ^ 1;
    await this.write(name, bytes);
  }
}

/** Spoils a copy, audits it, and removes it. */
async function tampered(spoil: (archive: Archive) => Promise<void>, options: { stage?: string } = {}): Promise<readonly Problem[]> {
  const archive = await Archive.copy();
  try {
    await spoil(archive);
    const found = await audit(archive.folder, options);
    assert.equal(found.sound, false, 'the audit found nothing');
    return found.problems;
  } finally {
    await rm(archive.folder, { recursive: true, force: true });
  }
}
function assertNamed(problems: readonly Problem[], place: string | RegExp, expected: string | RegExp, found: string | RegExp): void {
  const fits = (text: string, wanted: string | RegExp): boolean => (typeof wanted === 'string' ? text.includes(wanted) : wanted.test(text));
  const hit = problems.some((problem) => fits(problem.place, place) && fits(problem.expected, expected) && fits(problem.found, found));
  assert.ok(
    hit,
    `no problem at ${place} with ${expected} → ${found} among\n${problems.map((p) => `${p.place}: ${p.expected} → ${p.found}`).join('\n')}`,
  );
}

describe('an untouched run', () => {
  it('is sound in its data folder, in the packed archive and in the unpacked one, and its histories replay', async () => {
    const data = await openDataFolder(run.data, 'audited', 'the test ended it');
    for (const found of [(await auditSource(data, { replay: true })).audit, await audit(run.archive), await audit(run.unpacked)]) {
      assert.deepEqual(found.problems, []);
      assert.deepEqual(found.absent, []);
      assert.ok(found.sound);
      assert.equal(found.lastRecord?.hash, run.result.ledger.hash);
      assert.deepEqual(
        found.stages.map(({ stage }) => stage),
        ['Base', 'RSR-1', 'RPR-1'],
      );
      for (const name of ['ledger', 'artifacts', 'lineage', 'counts', 'evaluation', 'decisions', 'rewards', 'histories', 'events'] as const)
        assert.ok(
          found.checks.some((check) => check.name === name && check.checked > 0),
          `${name} was not checked`,
        );
    }
  });

  it('shows who approved, paused and resumed', async () => {
    const { timeline, stages } = await audit(run.unpacked);
    assert.deepEqual(
      timeline?.messages.map(({ kind, name }) => `${kind} ${name}`),
      ['start trainingRun', 'update approveStage', 'update pause', 'update resume', 'update approveStage'],
    );
    assert.ok(timeline?.messages.every(({ by }) => by !== undefined && by !== ''));
    assert.deepEqual(
      stages.map(({ decision }) => decision.startedBy),
      ['rule', 'Ada', 'Grace'],
    );
    assert.match(auditText(await audit(run.unpacked)), /update approveStage \{"stage":"RSR-1","by":"Ada"\} by .* → "?approved RSR-1/);
  });

  it('holds the record that was noted elsewhere, and no other', async () => {
    assert.deepEqual((await audit(run.unpacked, { anchor: run.result.ledger.hash })).problems, []);
    const other = 'f'.repeat(64);
    assertNamed((await audit(run.unpacked, { anchor: other })).problems, 'noted elsewhere', other, 'nothing');
  });

  it('can be exported without its large artifacts, or without any: what is not there is no failure', async () => {
    for (const artifacts of ['records', 'hashes'] as const) {
      const source = await openDataFolder(run.data, 'audited', 'the test ended it');
      const file = path.join(run.directory, `${artifacts}.tar.gz`);
      await writeArchive(source, { file, artifacts, versions: {} });
      const found = await audit(file);
      assert.deepEqual(found.problems, []);
      assert.ok(found.absent.some(({ why }) => /policy .* is not in the archive/.test(why)));
      assert.equal(
        found.absent.some(({ why }) => why.startsWith('verdicts')),
        artifacts === 'hashes',
      );
    }
  });

  it('can be read as trajectories: every episode of every stage, with what its agent was told and all its tokens', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-trajectories-'));
    const source = await openArchive(run.unpacked);
    const { jobs, trials } = await writeTrajectories(source, folder);
    assert.deepEqual(
      jobs.map((job) => path.basename(job).replace(/^\d+-/, '')).filter((name) => name.startsWith('RSR-1')),
      ['RSR-1-rollouts', 'RSR-1-evaluation'],
    );
    const results = (await Promise.all(jobs.map(readTrials))).flat();
    assert.equal(results.length, trials);
    const counted = run.result.stages.reduce((sum, { counts }) => sum + counts.episodes, 0);
    const rollouts = await Promise.all(jobs.filter((job) => job.endsWith('-rollouts')).map(readTrials));
    assert.equal(rollouts.flat().length, counted);
    const [job = ''] = jobs;
    const [first] = await readTrials(job);
    const place = path.join(job, first?.trial_name ?? '', 'agent');
    const { steps, extra } = JSON.parse(await readFile(path.join(place, 'trajectory.json'), 'utf8')) as Trajectory;
    const task = await loadTask(path.join(suiteDirectory(String(extra['suite'])), String(extra['task_id'])));
    assert.equal(steps[0]?.message, task.instruction);
    const tokens = await readFile(path.join(place, 'tokens.jsonl'));
    assert.equal(createHash('sha256').update(tokens).digest('hex'), (extra['tokens'] as { sha256: string }).sha256);
    assert.equal((await writeTrajectories(source, folder)).trials, 0, 'what is there stays');
    await source.close();
    await rm(folder, { recursive: true });
  });

  it('leaves no file when the export is stopped', async () => {
    const source = await openDataFolder(run.data, 'audited', 'the test ended it');
    const folder = path.join(run.directory, 'stopped');
    await assert.rejects(
      writeArchive(source, { file: path.join(folder, 'a.tar.gz'), artifacts: 'all', versions: {}, signal: AbortSignal.abort() }),
    );
    assert.deepEqual(await readdir(folder).catch(() => []), []);
  });
});

describe('tampering is found and named', () => {
  it('one byte of a policy', async () => {
    const sha256 = run.result.finalPolicy.sha256;
    const problems = await tampered(async (archive) => {
      const { files } = JSON.parse(await archive.read(`artifacts/${sha256}`)) as { files: { path: string; sha256: string }[] };
      const weights = files.find((file) => file.path === 'model.safetensors')?.sha256 ?? '';
      await archive.flip(`artifacts/${weights}`);
      await archive.seal();
    });
    assertNamed(
      problems,
      /^artifacts\/[0-9a-f]{64}$/,
      new RegExp(`policy with SHA-256 .* \\(named by policy artifact ${sha256.slice(0, 12)}, file model.safetensors\\)`),
      'bytes with SHA-256',
    );
  });

  it('one byte of an episode', async () => {
    let artifact = '';
    const problems = await tampered(async (archive) => {
      artifact = await episodesOf(archive, 'RSR-1');
      await archive.flip(`artifacts/${artifact}`, 40);
      await archive.seal();
    });
    assert.equal(problems[0]?.stage, 'RSR-1');
    assertNamed(problems, `artifacts/${artifact}`, `episodes with SHA-256 ${artifact}`, 'bytes with SHA-256');
  });

  it('a member that no longer fits the manifest', async () => {
    const problems = await tampered((archive) => archive.flip('result.json', 30));
    assertNamed(problems.slice(0, 1), 'result.json', /SHA-256 [0-9a-f]{64} as the manifest says/, /^SHA-256 [0-9a-f]{64}$/);
  });

  it('a line of the ledger', async () => {
    const problems = await tampered(async (archive) => {
      const { name } = await archive.record('RSR-1');
      await archive.write(name, (await archive.read(name)).replace('"adopted":true', '"adopted":false'));
      await archive.seal();
    });
    assertNamed(problems.slice(0, 1), 'ledger/000002.json', 'bytes with the SHA-256 that the record says it has', 'the record was changed');
  });

  it('a line of the ledger with its own hash made to fit: the next one names another', async () => {
    const problems = await tampered(async (archive) => {
      const { name, record } = await archive.record('RSR-1');
      await archive.rewrite(name, { ...record, observed: { ...record.observed, seconds: 1 } });
      await archive.seal();
    });
    assertNamed(problems.slice(0, 1), 'ledger/000003.json, previous', 'the hash of record 2', /^[0-9a-f]{64}$/);
  });

  it('a line of the ledger with the whole chain made to fit: the history knows the hash', async () => {
    const problems = await tampered(async (archive) => {
      const { name, record } = await archive.record('RSR-1');
      await archive.rewrite(name, { ...record, observed: { ...record.observed, seconds: 1 } });
      await archive.rechain(name);
      await archive.seal();
    });
    assertNamed(problems, /event \d+ \(recordStage\), result\.hash/, /^[0-9a-f]{64}$/, /^[0-9a-f]{64}$/);
    assertNamed(problems, /\(result of the run\), ledger, hash/, /^[0-9a-f]{64}$/, run.result.ledger.hash);
  });

  it('an event of a history', async () => {
    let event = '';
    const problems = await tampered(async (archive) => {
      const { name, text, changed, eventId } = await changedEvent(archive, 'rsrStage');
      event = eventId;
      assert.notEqual(changed, text);
      await archive.write(name, changed);
      await archive.seal();
    });
    assertNamed(
      problems,
      new RegExp(`^histories/[\\w-]+\\.json, event ${event}, activityTaskCompletedEventAttributes.identity`),
      'the history stored with SHA-256',
      'somebody else',
    );
  });

  it('an event of a history together with the hash that the ledger has of it: the chain no longer fits the run', async () => {
    const problems = await tampered(async (archive) => {
      const { runId, name, changed } = await changedEvent(archive, 'rsrStage');
      await archive.write(name, changed);
      const sha256 = createHash('sha256').update(changed).digest('hex');
      await archive.write(`artifacts/${sha256}`, changed);
      const { name: file, record } = await archive.record('RSR-1');
      const histories = record.observed.histories.map((history) =>
        history.runId === runId
          ? { ...history, artifact: { ...history.artifact, uri: `artifact:${sha256}`, sha256, bytes: Buffer.byteLength(changed) } }
          : history,
      );
      await archive.rewrite(file, { ...record, observed: { ...record.observed, histories } });
      await archive.rechain(file);
      await archive.seal();
    });
    assertNamed(problems, /event \d+ \(recordStage\), result\.hash/, /^[0-9a-f]{64}$/, /^[0-9a-f]{64}$/);
  });

  it('a result in a history that the ledger stores too late to know: the last event', async () => {
    const problems = await tampered(async (archive) => {
      const { name, text } = await historyOf(archive, 'trainingRun');
      const history = JSON.parse(text) as {
        events: { workflowExecutionCompletedEventAttributes?: { result: { payloads: { data: string }[] } } }[];
      };
      const payload = history.events.at(-1)?.workflowExecutionCompletedEventAttributes?.result.payloads[0];
      assert.ok(payload);
      const result = JSON.parse(Buffer.from(payload.data, 'base64').toString()) as { finalPolicy: { sha256: string } };
      result.finalPolicy.sha256 = 'a'.repeat(64);
      payload.data = Buffer.from(JSON.stringify(result)).toString('base64');
      await archive.write(name, canonicalJson(history));
      await archive.seal();
    });
    assertNamed(problems, /\(result of the run\), finalPolicy$/, run.result.finalPolicy.sha256, 'a'.repeat(64));
  });

  it('two stages exchanged', async () => {
    const problems = await tampered(async (archive) => {
      const [first, second] = [(await archive.record('RSR-1')).name, (await archive.record('RPR-1')).name];
      const [one, two] = [await archive.read(first), await archive.read(second)];
      await archive.write(first, two);
      await archive.write(second, one);
      await archive.seal();
    });
    assertNamed(
      problems.slice(0, 1),
      'ledger/000002.json, index',
      '2: one more than the record before it',
      '3: records are missing or exchanged',
    );
  });

  it('two stages exchanged, numbered and chained anew: lineage and history tell', async () => {
    const problems = await tampered(async (archive) => {
      const [first, second] = [await archive.record('RSR-1'), await archive.record('RPR-1')];
      await archive.rewrite(first.name, { ...second.record, index: first.record.index });
      await archive.rewrite(second.name, { ...first.record, index: second.record.index });
      await archive.rechain(first.name);
      await archive.seal();
    });
    assertNamed(
      problems,
      'ledger/000002.json, content.inputs.policy',
      run.result.stages[0]?.policy.sha256 ?? '',
      run.result.stages[1]?.policy.sha256 ?? '',
    );
    assertNamed(problems, 'order of the stages in the ledger', 'RSR-1', 'RPR-1');
  });

  it('an artifact deleted', async () => {
    const sha256 = run.result.stages[2]?.batches[0]?.rewarded?.sha256 ?? '';
    const problems = await tampered(async (archive) => {
      await rm(path.join(archive.folder, 'artifacts', sha256));
      await archive.seal();
    });
    assertNamed(problems, `artifacts/${sha256}`, `batch with SHA-256 ${sha256}`, 'nothing: it is missing');
  });

  it('a record dropped, and the last one', async () => {
    const dropped = await tampered(async (archive) => {
      const { name } = await archive.record('RSR-1');
      await rm(path.join(archive.folder, name));
      await archive.seal();
    });
    assertNamed(dropped.slice(0, 1), 'ledger/000003.json, index', '2: one more', '3: records are missing');
    const cut = await tampered(async (archive) => {
      await rm(path.join(archive.folder, 'ledger/000004.json'));
      await archive.seal();
    });
    assertNamed(cut, /\(result of the run\), ledger/, 'nothing', run.result.ledger.hash);
  });

  it('an evaluation table exchanged for that of another stage', async () => {
    const base = run.result.stages[0]?.evaluation.table;
    const own = run.result.stages[2]?.evaluation.table;
    assert.ok(base && own && base.sha256 !== own.sha256);
    const problems = await tampered(async (archive) => {
      const { name, record } = await archive.record('RPR-1');
      const outputs = { ...record.content.outputs, evaluation: base };
      await archive.rewrite(name, { ...record, content: { ...record.content, outputs } });
      await archive.rechain(name);
      await archive.seal();
    });
    assertNamed(problems, `evaluation artifact ${base.sha256.slice(0, 12)} of RPR-1`, /./, /./);
    assertNamed(problems, 'ledger/000003.json, content against its result', own.sha256, base.sha256);
  });

  it('a decision changed, with result, hashes and chain made to fit', async () => {
    const problems = await tampered(async (archive) => {
      const { name, record } = await archive.record('RPR-1');
      const result = JSON.parse(await archive.read(`artifacts/${record.content.result.sha256}`)) as { adopted: boolean };
      const text = canonicalJson({ ...result, adopted: !result.adopted });
      const sha256 = createHash('sha256').update(text).digest('hex');
      await archive.write(`artifacts/${sha256}`, text);
      await archive.rewrite(name, {
        ...record,
        content: {
          ...record.content,
          result: { ...record.content.result, uri: `artifact:${sha256}`, sha256, bytes: Buffer.byteLength(text) },
          decision: { ...record.content.decision, adopted: !result.adopted },
        },
      });
      await archive.rechain(name);
      await archive.seal();
    });
    const adopted = run.result.stages[2]?.adopted;
    assertNamed(problems, 'ledger/000003.json, content.decision, adopted', String(adopted), String(!adopted));
  });

  it('in the data folder too: a policy in the store, the copy that the trainer reads, and the copy of the report', async () => {
    for (const file of ['store', 'tree', 'report'] as const) {
      const data = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-tampered-'));
      try {
        await cp(run.data, data, { recursive: true });
        const { sha256 } = run.result.finalPolicy;
        const tree = path.join(data, 'artifacts', 'trees', sha256, 'model.safetensors');
        const weights = createHash('sha256')
          .update(await readFile(tree))
          .digest('hex');
        const store = path.join(data, 'artifacts', 'sha256', weights.slice(0, 2), weights);
        const places = { store, tree, report: path.join(data, run.result.report, 'policy', 'model.safetensors') };
        const bytes = await readFile(places[file]);
        bytes[bytes.length - 3] = (bytes.at(-3) ?? 0) ^ 4;
        await writeFile(`${places[file]}.new`, bytes);
        await rename(`${places[file]}.new`, places[file]);
        const source = await openDataFolder(data, run.result.runKey, 'no server');
        const { problems } = (await auditSource(source, { replay: false })).audit;
        assertNamed(problems, places[file], weights, /SHA-256 [0-9a-f]{64}/);
      } finally {
        await rm(data, { recursive: true, force: true });
      }
    }
  });

  it('limited to one stage, only what is wrong with that stage', async () => {
    const spoil = async (archive: Archive): Promise<void> => {
      await archive.flip(`artifacts/${await episodesOf(archive, 'RSR-1')}`, 40);
      await archive.seal();
    };
    assert.ok((await tampered(spoil, { stage: 'RSR-1' })).every(({ stage }) => stage === 'RSR-1'));
    const archive = await Archive.copy();
    try {
      await spoil(archive);
      const found = await audit(archive.folder, { stage: 'RPR-1' });
      assert.deepEqual(found.problems, []);
      assert.deepEqual(
        found.timeline?.stages.map(({ stage }) => stage),
        ['RPR-1'],
      );
    } finally {
      await rm(archive.folder, { recursive: true, force: true });
    }
  });
});

/** Hash of the first `episodes` artifact of a stage's training. */
async function episodesOf(archive: Archive, stage: string): Promise<string> {
  const { record } = await archive.record(stage);
  const [line = ''] = (await archive.read(`artifacts/${record.content.outputs.chunks[0]?.sha256}`)).split('\n');
  return (JSON.parse(line) as { rollout: { episodes: { sha256: string } } }).rollout.episodes.sha256;
}
async function historyOf(archive: Archive, type: string): Promise<{ runId: string; name: string; text: string }> {
  const { histories } = JSON.parse(await archive.read('manifest.json')) as Manifest;
  const found = histories.find((history) => history.type === type);
  assert.ok(found);
  return { runId: found.runId, name: found.member, text: await archive.read(found.member) };
}
/** The history of that type with another worker in its last completed activity. */
async function changedEvent(
  archive: Archive,
  type: string,
): Promise<{ runId: string; name: string; text: string; changed: string; eventId: string }> {
  const found = await historyOf(archive, type);
  const history = JSON.parse(found.text) as { events: { eventId: string; activityTaskCompletedEventAttributes?: { identity: string } }[] };
  const event = history.events.findLast(({ activityTaskCompletedEventAttributes: ended }) => ended);
  assert.ok(event?.activityTaskCompletedEventAttributes);
  event.activityTaskCompletedEventAttributes.identity = 'somebody else';
  return { ...found, changed: canonicalJson(history), eventId: event.eventId };
}
