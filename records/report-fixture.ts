/**
 * A small run for tests: made-up verdicts, and everything else computed from them by the real code (evaluation, audit,
 * artifact store), so that the fixture cannot disagree with the formulas.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { CheckResult, EpisodeRecord, EpisodeVerdict, Tier } from '../environment/types.ts';
import { deriveSeed, Random } from '../method/seeds.ts';
import type { PpoMetrics } from '../policy/types.ts';
import type { ChunkResult, ReportInput, StageResult, SuiteListing } from '../workflows/contract.ts';
import { profiles } from '../workflows/profiles.ts';
import type { ArtifactStore } from './artifacts.ts';
import type { Calibration } from './calibration.ts';
import { buildEvaluation } from './evaluation.ts';
import type { ArtifactRef } from './types.ts';

const TIERS: readonly Tier[] = ['easy', 'medium', 'hard', 'extreme'];
const CHECKS = ['exists', 'content', 'format'];

export function fixtureSuites(): SuiteListing[] {
  const suite = (name: string, headline: boolean, metric: 'strict' | 'process', tasks = 8): SuiteListing => ({
    ...{ name, headline, metric },
    tasks: Array.from({ length: tasks }, (_, i) => ({
      suite: name,
      id: `${name}-${i}`,
      family: `family-${i % 4}`,
      tier: TIERS[i % 4] ?? 'easy',
      checksum: `${name}${i}`,
    })),
  });
  return [
    suite('core', true, 'strict'),
    suite('broad', true, 'strict'),
    suite('fresh', true, 'strict'),
    suite('hard', true, 'strict'),
    suite('long', false, 'process'),
    suite('workflow', false, 'strict'),
  ];
}

export function fixtureCalibration(suites: readonly SuiteListing[]): Calibration {
  const tasks = suites
    .flatMap((suite) => suite.tasks)
    .map(
      ({ suite, id, family, checksum }) =>
        [`${suite}/${id}`, { checksum, family, validChecks: CHECKS.map((name) => ({ name, weight: 1 })) }] as const,
    );
  return { schema: 'terminal-rsi/calibration@1', tasks: Object.fromEntries(tasks) };
}

/** One verified chunk: an episode of every task, each check passing with probability `skill` (less in harder tiers). */
export async function fixtureChunk(
  store: ArtifactStore,
  suites: readonly SuiteListing[],
  skill: number,
  name: string,
): Promise<ChunkResult> {
  const random = new Random(deriveSeed('fixture', name));
  const verdicts: EpisodeVerdict[] = [];
  const episodes: EpisodeRecord[] = [];
  for (const { suite, id: taskId, family, tier, checksum } of suites.flatMap((listing) => listing.tasks)) {
    const chance = Math.min(0.97, skill * (1 - 0.12 * TIERS.indexOf(tier)));
    const checks: CheckResult[] = CHECKS.map((check) => ({ name: check, passed: random.chance(Math.cbrt(chance)) }));
    const passed = checks.every((check) => check.passed);
    const episodeId = `${name}/${suite}/${taskId}`;
    verdicts.push({ episodeId, suite, taskId, family, tier, outcome: passed ? 'passed' : 'failed', reward: passed ? 1 : 0, checks });
    episodes.push({
      ...{
        episodeId,
        suite,
        taskId,
        taskChecksum: checksum,
        family,
        tier,
        harness: 'shell',
        sandbox: 'embedded',
        agent: 'policy:fixture',
        sample: 0,
        seed: 1,
      },
      turns: [
        {
          reply: 'ls',
          commands: [{ command: 'ls', stdout: '<input>.txt\nb & c', stderr: '', exitCode: 0, timedOut: false }],
          observation: '',
        },
        { reply: 'cat x', commands: [{ command: "cat 'x'", stdout: '', stderr: 'cat: x: No such file', exitCode: 1, timedOut: false }] },
      ],
      ...{ stopReason: 'exit', agentTokens: 20, totalTokens: 90 },
    });
  }
  const empty = await store.putJsonLines('tokens', []);
  return {
    rollout: {
      ...{ episodes: await store.putJsonLines('episodes', episodes), tokens: empty, snapshots: empty },
      ...{ episodeCount: episodes.length, agentTokens: 20 * episodes.length, totalTokens: 90 * episodes.length, timeouts: 0 },
    },
    verify: {
      ...{ verdicts: await store.putJsonLines('verdicts', verdicts), noVerdict: 0 },
      ...{
        passed: verdicts.filter(({ outcome }) => outcome === 'passed').length,
        failed: verdicts.filter(({ outcome }) => outcome === 'failed').length,
      },
    },
  };
}

/** A batch's list of chunks, as the activity `collectChunks` stores it. */
export async function fixtureChunks(store: ArtifactStore, chunks: readonly ChunkResult[]): Promise<ArtifactRef> {
  return await store.putJsonLines('chunks', chunks);
}

/** A complete five-stage input whose last stage is not adopted. */
export async function fixtureReportInput(store: ArtifactStore): Promise<ReportInput> {
  const suites = fixtureSuites();
  const calibration = fixtureCalibration(suites);
  const stages: StageResult[] = [];
  for (const [i, name] of ['Base', 'RSR-1', 'RPR-1', 'RSR-2', 'RPR-2'].entries()) {
    const skill = [0.3, 0.5, 0.65, 0.8, 0.78][i] ?? 0;
    const repeats = [];
    for (let repeat = 0; repeat < 3; repeat++)
      repeats.push([await fixtureChunks(store, [await fixtureChunk(store, suites, skill, `${name}-evaluation-${repeat}`)])]);
    const { result } = await buildEvaluation({ suites, repeats, calibration, store });
    const kind = name === 'Base' ? 'base' : name.startsWith('RSR') ? 'rsr' : 'rpr';
    const chunks = kind === 'base' ? [] : [await fixtureChunk(store, suites, skill - 0.1, `${name}-train`)];
    const episodes = 48 * chunks.length;
    stages.push({
      ...{
        name,
        kind,
        policy: await fixturePolicy(store, name),
        batches: chunks.length === 0 ? [] : [{ purpose: 'rollout', chunks: [await fixtureChunks(store, chunks)] }],
        ...{ runbooks: [], examples: [], decidedBy: { start: 'rule', adoption: 'rule' }, record: { index: i + 1, hash: '0'.repeat(64) } },
        evaluation: result,
        adopted: name !== 'RPR-2',
        decision: name === 'RPR-2' ? 'dev 80.0 % → 60.0 %: drop of 20.0 % is more than the limit' : 'dev: not lower',
      },
      counts: { episodes, passed: 0, failed: episodes, noVerdict: 0, agentTokens: 20 * episodes, totalTokens: 90 * episodes, timeouts: 0 },
      seconds: 30 + i,
      ...(kind === 'rsr'
        ? {
            rewrite: { successes: 20, kept: 12, executions: 90, dropped: { duplicate: 5, irrelevant: 2, tamper: 1 } },
            fineTune: { steps: 9, tokens: 400, epochLosses: [1.2 / i, 0.8 / i, 0.6 / i] },
          }
        : {}),
      ...(kind === 'rpr'
        ? {
            reward: i === 2 ? 'fdr' : 'spr',
            warmUp: {
              steps: 8,
              epochs: [
                { valueLoss: 0.3 },
                { valueLoss: 0.2, explainedVariance: 0.1 },
                { valueLoss: 0.17, explainedVariance: 0.2 },
                { valueLoss: 0.15, explainedVariance: 0.25 },
              ],
            },
            ppo: [0, 1, 2, 3].map((k) => ppoMetrics(k, i)),
          }
        : {}),
    });
  }
  return {
    runKey: 'fixture-run',
    workflowId: 'fixture-workflow',
    config: profiles.quick,
    stages,
    calibration: await store.putJson('calibration', calibration),
    wallSeconds: 421.3,
  };
}

/** A directory artifact whose configuration names the stage. */
async function fixturePolicy(store: ArtifactStore, stage: string): Promise<ArtifactRef> {
  const directory = await mkdtemp(path.join(tmpdir(), 'policy-'));
  try {
    await writeFile(path.join(directory, 'config.json'), JSON.stringify({ stage }));
    return await store.putDirectory('policy', directory);
  } finally {
    await rm(directory, { recursive: true });
  }
}

function ppoMetrics(k: number, stage: number): PpoMetrics {
  return {
    ...{
      steps: 4,
      policyLoss: -0.01 * k,
      valueLoss: 0.2 / (k + 1),
      meanReward: 0.6 + 0.05 * k,
      successRate: 0.5 + 0.04 * k,
      kl: 0.002 * (k + 1),
      klToStart: 0.01 * (k + 1),
    },
    ...{
      entropy: 0.4 - 0.03 * k,
      clipFraction: 0.05 + 0.01 * k,
      gradientNorm: 0.8,
      criticGradientNorm: 0.5,
      explainedVariance: 0.2 + 0.1 * k,
      tokensPerTurn: 11 + 0.2 * k,
    },
    ...(stage === 4 && k === 3 ? { stop: { rule: 'maxKlToStart' as const, value: 1.2, limit: 1 } } : {}),
  };
}
