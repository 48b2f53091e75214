/** An audit on a terminal. */
import Table from 'cli-table3';
import pc from 'picocolors';
import type { RewardAudit } from '../../method/rewards.ts';
import type { Audit, AuditedStage, NamedArtifact } from './audit.ts';
import type { WholeEpisode } from './dropped.ts';
import { show } from './findings.ts';
import type { Shares, Timeline, TimelineActivity, TimelineStage } from './timeline.ts';

/** More of one kind are in the HTML report. */
const SHOWN_PROBLEMS = 40;
const SHOWN_DROPS = 12;

export function auditText(audit: Audit): string {
  const { timeline } = audit;
  const parts = [
    `${pc.bold('Audit')} of ${audit.from}${audit.only === undefined ? '' : `, stage ${audit.only} only`}`,
    ...audit.notes.map((note) => pc.dim(`· ${note}`)),
    heading('Verification'),
    checksTable(audit),
    ...absences(audit),
    ...problems(audit),
    heading('Stages'),
    ...lineage(audit),
    ...audit.stages.map(stageText),
  ];
  if (timeline)
    parts.push(
      heading('Timeline'),
      timelineTable(timeline),
      pc.dim(SHARES),
      ...troubles(timeline),
      ...messages(timeline),
      workersTable(timeline),
    );
  if (audit.dropped.length > 0) parts.push(heading('Dropped episodes'), ...drops(audit));
  if (audit.rewards) parts.push(heading('Reward audit'), rewardTable(audit.rewards));
  parts.push('', verdict(audit));
  return `${parts.join('\n')}\n`;
}

/** The last line, and the reason for the exit status. */
export function verdict({ sound, problems, lastRecord, absent }: Audit): string {
  const [first] = problems;
  if (!sound && first) {
    return pc.red(
      `BROKEN: ${first.place}: expected ${first.expected}, found ${first.found}${problems.length > 1 ? ` (and ${problems.length - 1} more)` : ''}`,
    );
  }
  const anchor = lastRecord ? ` Last record: ${lastRecord.index}, ${lastRecord.hash}` : '';
  return `${pc.green('Everything that is here holds.')}${absent.length > 0 ? ` ${absent.length} things could not be looked at (above).` : ''}${anchor}`;
}

const heading = (text: string): string => `\n${pc.bold(text)}`;
const short = (hash: string): string => hash.slice(0, 12);
const seconds = (value: number): string => (value >= 100 ? value.toFixed(0) : value.toFixed(1));
const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;
const clock = (ms: number): string => new Date(ms).toISOString().slice(11, 19);
const day = (ms: number): string => new Date(ms).toISOString().replace('T', ' ').slice(0, 19);

function table(head: readonly string[], rows: readonly (readonly string[])[], right: readonly number[] = []): string {
  const made = new Table({
    head: head.map((cell) => pc.bold(cell)),
    colAligns: head.map((_, i) => (right.includes(i) ? 'right' : 'left')),
    style: { head: [], border: [], compact: true },
    chars: {
      ...Object.fromEntries(
        ['top', 'top-mid', 'top-left', 'top-right', 'bottom', 'bottom-mid', 'bottom-left', 'bottom-right'].map((c) => [c, '']),
      ),
      left: '',
      right: '',
      middle: '  ',
      mid: '─',
      'mid-mid': '──',
      'left-mid': '',
      'right-mid': '',
    },
  });
  made.push(...rows.map((row) => [...row]));
  return made.toString();
}

function checksTable({ checks }: Audit): string {
  const mark = (broken: number): string => (broken === 0 ? pc.green('holds') : pc.red(`${broken} broken`));
  return table(
    ['', 'checked', ''],
    checks.map(({ what, checked, problems: broken }) => [what, String(checked), mark(broken)]),
    [1],
  );
}

function absences({ absent }: Audit): string[] {
  if (absent.length === 0) return [];
  const reasons = new Map<string, number>();
  for (const { why } of absent) {
    const kind = why.replace(/\b[0-9a-f]{12}\b/, '…');
    reasons.set(kind, (reasons.get(kind) ?? 0) + 1);
  }
  return [pc.yellow('Not looked at:'), ...[...reasons].map(([why, times]) => `  ${times > 1 ? `${times} × ` : ''}${why}`)];
}

function problems({ problems: all }: Audit): string[] {
  if (all.length === 0) return [];
  const lines = all
    .slice(0, SHOWN_PROBLEMS)
    .flatMap(({ place, expected, found, stage, check }, i) => [
      `${pc.red(`${i + 1}.`)} ${stage === undefined ? '' : `${stage}: `}${place} ${pc.dim(`[${check}]`)}`,
      `     expected ${expected}`,
      `     found    ${found}`,
    ]);
  const rest = all.length - SHOWN_PROBLEMS;
  return [
    pc.red('What does not hold, in the order of the chain:'),
    ...lines,
    ...(rest > 0 ? [`  and ${rest} more (--html lists all)`] : []),
  ];
}

function lineage({ fork, restarts }: Audit): string[] {
  const lines: string[] = [];
  if (fork) {
    lines.push(`Forked from run ${fork.run}; its own from ${fork.from} on. Settings changed: ${fork.changes.length === 0 ? 'none' : ''}`);
    for (const { path, before, after } of fork.changes) lines.push(`  ${path}: ${show(before)} → ${show(after)}`);
  }
  for (const { from, by, at, kept } of restarts)
    lines.push(`Restarted from ${from} by ${by} at ${at}; kept: ${kept.join(', ') || 'nothing'}`);
  return lines;
}

function stageText(stage: AuditedStage): string {
  const { decision, counts, cost, reusedFrom } = stage;
  const { training, evaluation, dropped, kept } = counts;
  const rules = Object.entries(dropped).map(([rule, number]) => `${rule} ${number}`);
  const adopted = decision.adopted ? pc.green('adopted') : pc.yellow('not adopted');
  const lines = [
    `${pc.bold(stage.stage)}  record ${stage.index}, ${adopted} by ${decision.adoptedBy}: ${decision.reason}${decision.startedBy === 'rule' ? '' : `; start approved by ${decision.startedBy}`}`,
    ...(reusedFrom ? [`  taken over from record ${reusedFrom.index} of run ${reusedFrom.runKey}`] : []),
    `  consumed  ${artifactList(stage.consumed)}`,
    `  produced  ${artifactList(stage.produced)}`,
    `  episodes  ${training.episodes} in training (${training.passed} passed, ${training.failed} failed, ${training.noVerdict} without verdict), ${evaluation.episodes} in evaluation (${evaluation.noVerdict} without verdict)`,
    ...(stage.kind === 'rsr' ? [`  runbooks  ${kept} kept; dropped: ${rules.join(', ') || 'none'}`] : []),
    `  cost      ${seconds(stage.seconds)} s, GPU activities ${seconds(cost.gpuSeconds)} s, others ${seconds(cost.cpuActivitySeconds)} s, ${cost.tokens} tokens; code ${stage.code}`,
    ...(stage.numerics ? [`  computed  ${numericsText(stage.numerics)}`] : []),
  ];
  return lines.join('\n');
}

/** What a repetition must have in common to give the same bits. Older records tell less. */
function numericsText(numerics: NonNullable<AuditedStage['numerics']>): string {
  const { device, deviceName, driver, tensorFloat32, tensorflow, engine, fallbacks = [], threads, samplerSlots, node } = numerics;
  const versions = [tensorflow && `TensorFlow ${tensorflow}`, driver && `driver ${driver}`, `Node ${node}`].filter(Boolean).join(', ');
  const mode = engine === undefined ? '' : `, as ${engine}${fallbacks.length > 0 ? ` (${fallbacks.length} fall backs to eager)` : ''}`;
  const rounding = tensorFloat32 === true ? ', TensorFloat-32' : '';
  return `${device} ${deviceName ?? ''}`.trimEnd() + `${mode}${rounding}; ${threads} threads, ${samplerSlots} sampler slots; ${versions}`;
}

function artifactList(artifacts: readonly NamedArtifact[]): string {
  const groups = new Map<string, NamedArtifact[]>();
  for (const one of artifacts) groups.set(one.name, [...(groups.get(one.name) ?? []), one]);
  return [...groups]
    .map(([name, list]) => {
      const [first] = list;
      const known = list.every(({ bytes }) => bytes !== undefined);
      const size = known ? sizeText(list.reduce((sum, { bytes }) => sum + (bytes ?? 0), 0)) : 'not here';
      return `${name} ${list.length === 1 ? short(first?.sha256 ?? '') : `${list.length} ×`} (${size})`;
    })
    .join(', ');
}

export function sizeText(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

const SHARES =
  'Shares of the wall time: an activity ran; only lost attempts or their repetition; paused; no activity ran (orchestration and queues).';
const shares = ({ wallSeconds, active, lost, paused, idle }: Shares): string[] => [
  seconds(wallSeconds),
  percent(active),
  percent(lost),
  percent(paused),
  percent(idle),
];

/** One line an activity type; each activity that did not go well by itself below. */
function timelineTable({ stages, shares: all }: Timeline): string {
  const rows = stages.flatMap(({ stage, startedAt, shares: own, activities }: TimelineStage) => {
    const types = new Map<string, TimelineActivity[]>();
    for (const activity of activities) types.set(activity.type, [...(types.get(activity.type) ?? []), activity]);
    const line = (type: string, list: readonly TimelineActivity[]): string[] => {
      const sum = (of: (one: TimelineActivity) => number): number => list.reduce((total, one) => total + of(one), 0);
      const failed = list.filter(({ outcome }) => outcome !== 'completed').length;
      return [
        ...[
          `  ${type}`,
          clock(Math.min(...list.map(({ scheduledAt }) => scheduledAt))),
          `${list.length}`,
          `${sum(({ attempts }) => attempts)}`,
        ],
        ...[
          failed === 0 ? '' : String(failed),
          seconds(sum((one) => one.seconds)),
          seconds(sum((one) => one.queueSeconds)),
          seconds(sum((one) => one.lostSeconds)),
        ],
        ...['', '', '', ''],
      ];
    };
    const [wall = '', ...rest] = shares(own);
    return [
      [pc.bold(stage), clock(startedAt), `${activities.length}`, '', '', wall, '', '', ...rest],
      ...[...types].map(([type, list]) => line(type, list)),
    ];
  });
  const [wall = '', ...rest] = shares(all);
  rows.push([pc.bold('whole run'), '', '', '', '', wall, '', '', ...rest]);
  const head = ['', 'from', 'n', 'attempts', 'failed', 'seconds', 'queue s', 'lost s', 'active', 'lost', 'paused', 'idle'];
  return table(head, rows, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
}

/** Every lost attempt. */
function troubles({ stages, void: voided, lostTasks }: Timeline): string[] {
  const all = stages.flatMap(({ activities }) => activities);
  const lines = all.flatMap((one) => {
    if (one.attempts <= 1 && one.failure === undefined) return [];
    const lost = one.outcome === 'completed' ? one.attempts - 1 : one.attempts;
    const why = one.failure ?? one.lastFailure ?? 'the server has no failure of it';
    return [
      `  ${clock(one.scheduledAt)} ${one.summary ?? one.type} (${one.place}): ${lost} of ${one.attempts} attempts lost, ${seconds(one.lostSeconds)} s; last: ${why}`,
    ];
  });
  return [
    ...(lines.length === 0 ? ['No attempt was lost.'] : [pc.yellow('Lost attempts:'), ...lines]),
    ...(lostTasks.length === 0
      ? []
      : [pc.yellow('Lost workflow tasks:'), ...lostTasks.map(({ place, at, what }) => `  ${clock(at)} ${place}: ${what}`)]),
    ...(voided.length === 0
      ? []
      : [`Made void by a reset: ${voided.length} activities (${[...new Set(voided.map(({ type }) => type))].join(', ')}).`]),
  ];
}

function messages({ messages: all }: Timeline): string[] {
  return [
    'What people and programs told the run:',
    ...all.map(({ at, kind, name, by, value, answer }) => {
      const what = [kind, name, value === undefined ? '' : show(value)].filter(Boolean).join(' ');
      return `  ${day(at)} ${what}${by === undefined ? '' : ` by ${by}`}${answer === undefined ? '' : ` → ${show(answer)}`}`;
    }),
  ];
}

function workersTable({ workers }: Timeline): string {
  const rows = workers.map(({ identity, queues, firstAt, lastAt, activities }) => [
    identity,
    queues.join(', '),
    clock(firstAt),
    clock(lastAt),
    String(activities),
  ]);
  return table(['worker', 'queue', 'first', 'last', 'activities'], rows, [4]);
}

function drops({ dropped }: Audit): string[] {
  const rules = new Map<string, typeof dropped>();
  for (const one of dropped) rules.set(`${one.stage} · ${one.rule}`, [...(rules.get(`${one.stage} · ${one.rule}`) ?? []), one]);
  return [...rules].flatMap(([rule, list]) => [
    `${pc.bold(rule)}  ${list.length}`,
    ...list
      .slice(0, SHOWN_DROPS)
      .map(
        ({ episodeId, artifact, reason }) =>
          `  ${episodeId} ${pc.dim(artifact === undefined ? '' : `(episodes ${short(artifact)})`)} ${reason}`,
      ),
    ...(list.length > SHOWN_DROPS ? [pc.dim(`  and ${list.length - SHOWN_DROPS} more (--html lists all; --episode ID prints one)`)] : []),
  ]);
}

function rewardTable(rewards: NonNullable<Audit['rewards']>): string {
  const line = (name: string, scale: string, reward: string, audit: RewardAudit): string[] => [
    ...[
      name,
      reward,
      scale,
      String(audit.trajectories),
      audit.failedRewardShare === undefined ? '–' : `${(100 * audit.failedRewardShare).toFixed(2)} %`,
    ],
    ...[String(audit.failedAtLeastOne), audit.familyMeanDeviation.toFixed(2), audit.trajectoryDeviation.toFixed(2)],
  ];
  const rows = [...rewards.stages, { stage: 'run', trained: undefined, ...rewards }].flatMap(({ stage, scale, trained, fdr, spr }) => [
    line(stage, scale, trained === 'fdr' ? 'FDR (trained on)' : 'FDR', fdr),
    line('', '', trained === 'spr' ? 'SPR (trained on)' : 'SPR', spr),
  ]);
  return table(['', 'reward', 'scale of FDR', 'n', 'share of failed', 'failed ≥ 1', 'σ families', 'σ trajectories'], rows, [3, 4, 5, 6, 7]);
}

/** One episode whole: turns, commands, outputs, checks. */
export function episodeText({ episode, verdict: judged, artifact }: WholeEpisode): string {
  const lines = [
    `${pc.bold(episode.episodeId)}  ${judged?.outcome ?? 'no verdict stored'}, ended by ${episode.stopReason}, ${episode.agentTokens} agent tokens`,
    pc.dim(
      `task ${episode.suite}/${episode.taskId} (${episode.taskChecksum}), ${episode.agent}, seed ${episode.seed}, artifact:${artifact}`,
    ),
  ];
  for (const turn of episode.turns) {
    if (turn.commands.length === 0) lines.push(turn.reply);
    for (const { command, stdout, stderr, exitCode, timedOut } of turn.commands) {
      lines.push(`${pc.cyan('$')} ${command}`, ...[stdout, stderr].filter(Boolean).map((text) => text.trimEnd()));
      if (exitCode !== 0) lines.push(pc.red(timedOut ? 'timed out' : `exit code ${exitCode}`));
    }
  }
  if (judged) lines.push('', ...judged.checks.map(({ name, passed }) => `${passed ? pc.green('passed') : pc.red('failed')} ${name}`));
  if (judged?.error) lines.push(`${judged.error.type}: ${judged.error.message}`);
  return `${lines.join('\n')}\n`;
}
