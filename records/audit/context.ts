/** What all checks of an audit share: the records that can be read, the stages' results, and the calls that the histories tell of. */
import { sourceHash } from '../../activities/code-version.ts';
import type { StageResult } from '../../workflows/contract.ts';
import { ArtifactError } from '../artifacts.ts';
import { activityTraces, childrenOf, continuedAs, payloadValue } from '../history.ts';
import type { ActivityTrace, Payload } from '../history.ts';
import { effectiveStages } from '../ledger.ts';
import type { LedgerRecord } from '../ledger.ts';
import type { StageRecord } from '../lineage.ts';
import { Findings } from './findings.ts';
import type { CheckName } from './findings.ts';
import { ArtifactReader, NotInArchive } from './source.ts';
import type { AuditSource, SourcedHistory } from './source.ts';

/** What a stage's record calls `result`: everything but its times and its own place in the ledger. */
export type StoredResult = Omit<StageResult, 'record' | 'seconds'>;

/** One activity of a history, with what went in and what came out. */
export interface Call {
  readonly history: SourcedHistory;
  readonly trace: ActivityTrace;
  /** For messages. */
  readonly place: string;
  // The shapes are those of workflows/contract.ts; each check looks at fields whose presence it compares.
  readonly input: unknown;
  readonly result: unknown;
}

export class AuditContext {
  readonly source: AuditSource;
  readonly reader: ArtifactReader;
  readonly findings = new Findings();
  readonly records: readonly LedgerRecord[];
  /** File of a record. */
  readonly places: ReadonlyMap<LedgerRecord, string>;
  /** The stages that count, in order; limited to one with `--stage`. */
  readonly stages: readonly StageRecord[];
  /** All that count, whatever the audit is limited to. */
  readonly chain: readonly StageRecord[];
  readonly only: string | undefined;
  readonly code: string;
  readonly #results = new Map<LedgerRecord, StoredResult | undefined>();

  private constructor(source: AuditSource, only: string | undefined, code: string, parsed: ReadonlyMap<LedgerRecord, string>) {
    this.source = source;
    this.reader = new ArtifactReader(source);
    this.only = only;
    this.code = code;
    this.places = parsed;
    this.records = [...parsed.keys()];
    this.chain = effectiveStages(this.records);
    this.stages = this.chain.filter(({ content }) => this.covers(content.stage));
  }

  static async of(source: AuditSource, only: string | undefined, parsed: ReadonlyMap<LedgerRecord, string>): Promise<AuditContext> {
    return new AuditContext(source, only, await sourceHash(), parsed);
  }

  covers(stage: string | undefined): boolean {
    return this.only === undefined || stage === this.only;
  }
  place(record: LedgerRecord): string {
    return this.places.get(record) ?? `record ${record.index}`;
  }
  get opened(): (LedgerRecord & { kind: 'opened' }) | undefined {
    return this.records.find((record) => record.kind === 'opened');
  }
  get closed(): (LedgerRecord & { kind: 'closed' }) | undefined {
    return this.records.findLast((record) => record.kind === 'closed');
  }
  get workflowId(): string {
    return this.opened?.observed.workflowId ?? this.roots[0]?.workflowId ?? '';
  }

  /** Executions of the training run, oldest first: a reset makes another one. */
  get roots(): SourcedHistory[] {
    const id = this.opened?.observed.workflowId;
    return this.source.histories
      .filter(({ type, workflowId }) => type === 'trainingRun' && (id === undefined || workflowId === id))
      .sort((a, b) => time(a) - time(b));
  }
  /** The execution that counts. */
  get root(): SourcedHistory | undefined {
    return this.roots.at(-1);
  }

  history(runId: string): SourcedHistory | undefined {
    return this.source.histories.find((history) => history.runId === runId);
  }
  /** Histories of a stage's workflows, as its record lists them. */
  historiesOf(record: StageRecord): SourcedHistory[] {
    return record.observed.histories.slice(1).flatMap(({ runId }) => this.history(runId) ?? []);
  }
  /** An execution and all below it, as today's histories tell. */
  below(history: SourcedHistory): SourcedHistory[] {
    const next = continuedAs(history);
    const ids = [...childrenOf(history).map(({ runId }) => runId), ...(next === undefined ? [] : [next])];
    const found = ids.flatMap((runId) => this.history(runId) ?? []);
    return [history, ...found.flatMap((child) => this.below(child))];
  }
  calls(history: SourcedHistory, ...types: readonly string[]): Call[] {
    return activityTraces(history)
      .filter(({ type }) => types.length === 0 || types.includes(type))
      .map((trace) => {
        const place = `${history.place}, event ${trace.eventId} (${trace.type})`;
        return {
          history,
          trace,
          place,
          input: this.#value(trace.input, `${place}, input`),
          result: this.#value(trace.result, `${place}, result`),
        };
      });
  }
  /** undefined for a payload that cannot be read any more. */
  #value(given: Payload | undefined, place: string): unknown {
    try {
      return given && payloadValue(given);
    } catch (error) {
      this.findings.problem('events', place, 'a value in JSON', error instanceof Error ? error.message : String(error));
      return undefined;
    }
  }
  /** `RSR-1` for `<run>/rsr-1/rollout`; undefined for the training run itself. */
  stageOf(workflowId: string): string | undefined {
    const name = workflowId.startsWith(`${this.workflowId}/`) ? workflowId.slice(this.workflowId.length + 1).split('/')[0] : undefined;
    return name === 'base' ? 'Base' : name?.toUpperCase();
  }

  /** The stage's result; undefined where it cannot be read, which the check of the artifacts tells. */
  async result(record: StageRecord): Promise<StoredResult | undefined> {
    if (!this.#results.has(record))
      this.#results.set(
        record,
        await this.attempt('artifacts', this.place(record), () => this.reader.readJson<StoredResult>(record.content.result)),
      );
    return this.#results.get(record);
  }

  /**
   * Runs a check that reads artifacts. One that is not in the archive makes it an absence; a broken one is told by the check of
   * the artifacts, so that here only what depends on it is left out.
   */
  async attempt<T>(check: CheckName, place: string, work: () => Promise<T>): Promise<T | undefined> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof NotInArchive) this.findings.missing(check, place, error.message);
      else if (error instanceof ArtifactError)
        this.findings.missing(check, place, `artifact ${error.expected.slice(0, 12)} is missing or changed`);
      // A changed artifact may hold anything; whatever follows from it is no fault of the check.
      else this.findings.problem(check, place, 'values that can be computed with', error instanceof Error ? error.message : String(error));
      return undefined;
    }
  }
}

function time({ events }: SourcedHistory): number {
  return Date.parse(events[0]?.eventTime ?? '');
}
