/** An audit as one page that loads nothing and runs no script: every problem, every activity, every dropped episode whole. */
import type { RewardAudit } from '../../method/rewards.ts';
import { renderRunbook } from '../../method/runbook.ts';
import { html, type Html } from '../html.ts';
import { framedPage } from '../report-frame.ts';
import { table } from '../report-table.ts';
import type { Audit, AuditedStage, NamedArtifact } from './audit.ts';
import type { DroppedEpisode, WholeEpisode } from './dropped.ts';
import { show } from './findings.ts';
import { sizeText } from './text.ts';
import type { Shares, Timeline, TimelineStage } from './timeline.ts';

const STYLE = `
.broken { border-left: 4px solid var(--bad); padding-left: 1rem; }
.bar { fill: var(--series-1); } .bar.gpu { fill: var(--series-3); } .bar.lost { fill: var(--bad); } .bar.wait { fill: var(--grid); }
svg.gantt { width: 100%; height: auto; background: var(--panel); border-radius: 6px; } svg.gantt text { font-size: 11px; fill: var(--ink); }
`;

/** `episodes`: the dropped ones by id, as far as they are here. */
export function auditPage(audit: Audit, episodes: ReadonlyMap<string, WholeEpisode>): string {
  const title = `Audit of run ${audit.workflowId || audit.runKey}${audit.only === undefined ? '' : `, stage ${audit.only}`}`;
  const sections = [
    ['verification', 'Verification', verification(audit)],
    ['stages', 'Stages', stages(audit)],
    ['timeline', 'Timeline', audit.timeline ? timeline(audit.timeline) : html`<p>No history of the training run is here.</p>`],
    ['messages', 'Messages, and workers', audit.timeline ? messages(audit.timeline) : ''],
    ['dropped', 'Dropped episodes', dropped(audit.dropped, episodes)],
    ['rewards', 'Reward audit', rewards(audit)],
    ['episodes', 'Episodes', html`${[...episodes.values()].map(whole)}`],
  ] as const;
  const header = html`<p class="lead">
    <span class="badge ${audit.sound ? 'good' : 'bad'}"
      >${audit.sound ? 'everything that is here holds' : `${audit.problems.length} broken`}</span
    >
    ${audit.from}${audit.lastRecord ? html`. Last record ${audit.lastRecord.index}: <code>${audit.lastRecord.hash}</code>` : ''}
  </p>`;
  return framedPage(title, header, sections, STYLE);
}

function verification({ checks, problems, absent, notes }: Audit): Html {
  const rows = checks.map(({ what, checked, problems: broken }) => [
    what,
    checked.toLocaleString('en-US'),
    html`<span class="badge ${broken === 0 ? 'good' : 'bad'}">${broken === 0 ? 'holds' : `${broken} broken`}</span>`,
  ]);
  return html`${table('', ['check', 'checked', ''], rows)}
  ${
    problems.length > 0
      ? html`<div class="broken">
          <h3>What does not hold, in the order of the chain</h3>
          <ol>
            ${problems.map(
              ({ stage, place, expected, found }) =>
                html`<li>
                  ${stage === undefined ? '' : `${stage}: `}<code>${place}</code><br />expected <code>${expected}</code><br />found
                  <code>${found}</code>
                </li> `,
            )}
          </ol>
        </div>`
      : ''
  }
  ${
    absent.length > 0
      ? html`<details>
          <summary>${absent.length} things could not be looked at</summary>
          <ul>
            ${absent.map(({ place, why }) => html`<li>${place}: ${why}</li> `)}
          </ul>
        </details>`
      : ''
  }
  ${
    notes.length > 0
      ? html`<ul class="note">
          ${notes.map((note) => html`<li>${note}</li> `)}
        </ul>`
      : ''
  }`;
}

function stages({ stages: all, fork, restarts }: Audit): Html {
  return html`${
    fork
      ? html`<p>Forked from run <code>${fork.run}</code>; its own from ${fork.from} on.</p>
          ${table(
            'Settings changed by the fork',
            ['setting', 'before', 'after'],
            fork.changes.map(({ path, before, after }) => [path, show(before), show(after)]),
          )}`
      : ''
  }
  ${restarts.map(({ from, by, at, kept }) => html`<p>Restarted from ${from} by ${by} at ${at}; kept: ${kept.join(', ') || 'nothing'}.</p>`)}
  ${all.map(stage)}`;
}

function stage(one: AuditedStage): Html {
  const { decision, counts, cost, reusedFrom } = one;
  const { training, evaluation } = counts;
  const rows = (what: string, list: readonly NamedArtifact[]) =>
    list.map(({ name, sha256, bytes }) => [what, name, html`<code>${sha256}</code>`, bytes === undefined ? 'not here' : sizeText(bytes)]);
  return html`<h3 id="stage-${one.stage}">
      ${one.stage} <span class="badge ${decision.adopted ? 'good' : 'bad'}">${decision.adopted ? 'adopted' : 'not adopted'}</span>
      ${reusedFrom ? html`<span class="badge neutral">taken over from run ${reusedFrom.runKey}, record ${reusedFrom.index}</span>` : ''}
    </h3>
    <p>
      Record ${one.index}. ${decision.reason}; decided by ${decision.adoptedBy}, start let by ${decision.startedBy}. ${training.episodes}
      training episodes (${training.passed} passed, ${training.failed} failed, ${training.noVerdict} without verdict),
      ${evaluation.episodes} in evaluation. ${one.seconds.toFixed(1)} s; GPU activities ${cost.gpuSeconds.toFixed(1)} s, others
      ${cost.cpuActivitySeconds.toFixed(1)} s; ${cost.tokens} tokens; code ${one.code}; key <code>${one.key}</code>.
    </p>
    ${table('', ['', 'what', 'SHA-256', 'size'], [...rows('consumed', one.consumed), ...rows('produced', one.produced)])}`;
}

const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;
const time = (ms: number): string => new Date(ms).toISOString().slice(11, 23);

function timeline({ stages: all, shares, void: voided, lostTasks }: Timeline): Html {
  const row = (name: string, { wallSeconds, active, lost, paused, idle }: Shares) => [
    name,
    wallSeconds.toFixed(1),
    percent(active),
    percent(lost),
    percent(paused),
    percent(idle),
  ];
  return html`${table(
    'Shares of the wall time. Idle: no activity ran, which is orchestration and the wait in queues.',
    ['', 'seconds', 'an activity ran', 'lost attempts only', 'paused', 'idle'],
    [...all.map((one) => row(one.stage, one.shares)), row('whole run', shares)],
    true,
  )}
  ${all.map(stageTimeline)}
  ${
    lostTasks.length > 0
      ? html`<h3>Lost workflow tasks</h3>
          <ul>
            ${lostTasks.map(({ place, at, what }) => html`<li>${time(at)} ${place}: ${what}</li> `)}
          </ul>`
      : ''
  }
  ${
    voided.length > 0
      ? html`<h3>Made void by a reset</h3>
          <ul>
            ${voided.map((one) => html`<li>${time(one.scheduledAt)} ${one.summary ?? one.type}: ${one.outcome}, ${one.attempts} attempts</li> `)}
          </ul>`
      : ''
  }`;
}

function stageTimeline(one: TimelineStage): Html {
  const rows = one.activities.map((activity) => [
    time(activity.scheduledAt),
    activity.summary ?? activity.type,
    activity.attempts,
    activity.outcome,
    activity.queueSeconds.toFixed(2),
    activity.lostSeconds.toFixed(2),
    activity.seconds.toFixed(2),
    activity.worker ?? '–',
    activity.failure ?? activity.lastFailure ?? '',
  ]);
  const troubled = one.activities.filter(({ attempts, failure }) => attempts > 1 || failure !== undefined);
  return html`<h3>${one.stage}</h3>
    ${gantt(one)}
    ${
      troubled.length > 0
        ? html`<ul>
            ${troubled.map((activity) => html`<li>${time(activity.scheduledAt)} ${activity.summary ?? activity.type}: ${activity.attempts} attempts, ${activity.outcome}; ${activity.failure ?? activity.lastFailure ?? 'no failure is told'} (<code>${activity.place}</code>)</li> `)}
          </ul>`
        : ''
    }
    <details>
      <summary>${one.activities.length} activities</summary>
      ${table('', ['scheduled', 'activity', 'attempts', 'outcome', 'queue s', 'lost s', 'seconds', 'worker', 'failure'], rows)}
    </details>`;
}

/** One row an activity type; grey is the wait, red what earlier attempts took. */
function gantt({ activities, startedAt, endedAt }: TimelineStage): Html {
  const types = [...new Set(activities.map(({ type }) => type))];
  const [left, width, line] = [110, 900, 18];
  const x = (ms: number): string => (left + (width * (ms - startedAt)) / Math.max(endedAt - startedAt, 1)).toFixed(1);
  const bar = (kind: string, from: number, until: number, y: number): Html =>
    html`<rect
      class="bar ${kind}"
      x="${x(from)}"
      y="${y}"
      width="${Math.max(Number(x(until)) - Number(x(from)), 0.7).toFixed(1)}"
      height="12"
    />`;
  const bars = activities.map(({ type, scheduledAt, startedAt: begun, closedAt, attempts, taskQueue }) => {
    const y = 4 + line * types.indexOf(type);
    const start = begun ?? endedAt;
    return html`${bar(attempts > 1 ? 'lost' : 'wait', scheduledAt, start, y)}${begun === undefined ? '' : bar(taskQueue.endsWith('-gpu') ? 'gpu' : '', begun, closedAt ?? endedAt, y)}`;
  });
  return html`<svg class="gantt" viewBox="0 0 ${left + width + 10} ${types.length * line + 6}" role="img" aria-label="Activities over time">
    ${types.map((type, i) => html`<text x="4" y="${14 + line * i}">${type}</text>`)}${bars}
  </svg>`;
}

function messages({ messages: all, workers }: Timeline): Html {
  return html`${table(
    'What people and programs told the run',
    ['time', 'what', 'value', 'by', 'answer'],
    all.map(({ at, kind, name, value, by, answer }) => [
      new Date(at).toISOString(),
      `${kind} ${name}`,
      value === undefined ? '' : show(value),
      by ?? '',
      answer === undefined ? '' : show(answer),
    ]),
  )}
  ${table(
    'Worker processes. One that follows another on a queue was started after the first had gone.',
    ['identity', 'queue', 'first', 'last', 'activities'],
    workers.map(({ identity, queues, firstAt, lastAt, activities }) => [
      identity,
      queues.join(', '),
      time(firstAt),
      time(lastAt),
      activities,
    ]),
  )}`;
}

const anchor = (episodeId: string): string => `episode-${episodeId.replaceAll(/[^\w-]/g, '_')}`;

function dropped(all: readonly DroppedEpisode[], episodes: ReadonlyMap<string, WholeEpisode>): Html {
  if (all.length === 0) return html`<p>No episode was dropped.</p>`;
  const rules = new Map<string, DroppedEpisode[]>();
  for (const one of all) rules.set(`${one.stage} · ${one.rule}`, [...(rules.get(`${one.stage} · ${one.rule}`) ?? []), one]);
  return html`${[...rules].map(
    ([rule, list]) =>
      html`<details>
        <summary>${rule}: ${list.length}</summary>
        ${list.map(({ episodeId, reason, runbook }) => {
          const name = episodes.has(episodeId) ? html`<a href="#${anchor(episodeId)}">${episodeId}</a>` : html`<code>${episodeId}</code>`;
          return html`<p>${name}: ${reason}</p>
            ${runbook && runbook.steps.length > 0 ? html`<pre>${renderRunbook(runbook)}</pre>` : ''}`;
        })}
      </details>`,
  )}`;
}

/** Nothing is cut: this is what the run has of the episode. */
function whole({ episode, verdict, artifact }: WholeEpisode): Html {
  return html`<details id="${anchor(episode.episodeId)}" open>
    <summary>
      ${episode.episodeId}: <span class="badge ${verdict?.outcome === 'passed' ? 'good' : 'bad'}">${verdict?.outcome ?? 'no verdict'}</span>
    </summary>
    <p class="note">
      Ended by ${episode.stopReason}, ${episode.agentTokens} agent tokens, seed ${episode.seed}, ${episode.agent}; artifact
      <code>${artifact}</code>. ${verdict?.error ? `${verdict.error.type}: ${verdict.error.message}` : ''}
    </p>
    ${episode.turns.map(({ reply, commands }) =>
      commands.length === 0
        ? html`<pre>${reply}</pre>`
        : commands.map(
            ({ command, stdout, stderr, exitCode, timedOut }) =>
              html`<pre><span class="prompt">$ </span>${command}
${[stdout, stderr].filter(Boolean).join('\n').trimEnd()}${exitCode !== 0 ? html` <span class="status">${timedOut ? 'timed out' : `exit code ${exitCode}`}</span>` : ''}</pre>`,
          ),
    )}
    <ul>
      ${(verdict?.checks ?? []).map(({ name, passed }) => html`<li>${passed ? 'passed' : 'failed'}: ${name}</li> `)}
    </ul>
  </details>`;
}

function rewards({ rewards: audit }: Audit): Html {
  if (!audit) return html`<p>There is no training episode with a verdict to re-score.</p>`;
  const row = (name: string, scale: string, reward: string, one: RewardAudit) => [
    ...[name, reward, scale, one.trajectories, one.failedRewardShare === undefined ? '–' : `${(100 * one.failedRewardShare).toFixed(2)} %`],
    ...[one.failedAtLeastOne, one.familyMeanDeviation.toFixed(2), one.trajectoryDeviation.toFixed(2)],
  ];
  return html`<p>
      Training episodes re-scored from their stored verdicts, outcomes unchanged. A stage is scored with the scale that its training used,
      the run with one scale (${audit.scale}).
    </p>
    ${table(
      '',
      [
        '',
        'reward',
        'scale of FDR',
        'trajectories',
        'share of failed',
        'failed with reward ≥ 1',
        'deviation of family means',
        'deviation of trajectories',
      ],
      [...audit.stages, { stage: 'run', trained: undefined, ...audit }].flatMap(({ stage: name, scale, trained, fdr, spr }) => [
        row(name, scale, trained === 'fdr' ? 'FDR (trained on)' : 'FDR', fdr),
        row('', '', trained === 'spr' ? 'SPR (trained on)' : 'SPR', spr),
      ]),
    )}`;
}
