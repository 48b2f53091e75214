/**
 * What the GPU worker knows of its trainer from outside: whether it answers, how often it was started again, and how fast it
 * samples. Its answers come late while TensorFlow is inside a long operation, so one that is missed means little by itself.
 */
import type { SamplerStatistics } from '../policy/sampler-metrics.ts';

export interface TrainerHealth {
  readonly url: string;
  /** Absent while no trainer process runs. */
  readonly pid?: number;
  readonly responding: boolean;
  /** Since the last answer, or since the watch began. */
  readonly secondsSinceAnswer: number;
  readonly restarts: number;
  readonly device?: string;
  /** Models that training has loaded. */
  readonly models?: number;
  /** Tokens sampled per second since an answer a second or more ago, all policies together. */
  readonly tokensPerSecond?: number;
  /** Requests that wait for a slot of the sampler, all policies together. */
  readonly queued?: number;
  /** 95th percentile over the latest requests, of the policy with the greatest. */
  readonly secondsToFirstToken?: number;
  /** Of the training activity that runs; absent when none does. */
  readonly lastStep?: unknown;
}

/** The part of workers/trainer-process.ts that is watched. */
export interface WatchedTrainer {
  readonly url: string;
  readonly pid: number | undefined;
  readonly restarts: number;
}

/** The parts of the trainer's own `GET /health` that are used (policy/trainer/server.ts). */
interface Answer {
  readonly pid: number;
  readonly device: string;
  readonly models: readonly string[];
  readonly policies: Readonly<Record<string, Pick<SamplerStatistics, 'sampledTokens' | 'queued' | 'timeToFirstToken'>>>;
}

const ANSWER_MS = 2_000;

export class TrainerWatch {
  readonly #trainer: WatchedTrainer;
  /** Called with the tokens that were sampled since the answer before. */
  readonly #sampled: (tokens: number) => void;
  #answer: Answer | undefined;
  #answeredAt = performance.now();
  #responding = false;
  #tokensPerSecond: number | undefined;
  #rate = { since: performance.now(), tokens: 0 };
  #asking: Promise<void> | undefined;

  constructor(trainer: WatchedTrainer, sampled: (tokens: number) => void = () => undefined) {
    this.#trainer = trainer;
    this.#sampled = sampled;
  }

  /** Asks the trainer; callers that come meanwhile share the answer. Takes at most two seconds and does not throw. */
  ask(): Promise<void> {
    return (this.#asking ??= this.#ask().finally(() => (this.#asking = undefined)));
  }

  health(): TrainerHealth {
    const { url, pid, restarts } = this.#trainer;
    const answer = this.#answer?.pid === pid ? this.#answer : undefined;
    const policies = Object.values(answer?.policies ?? {});
    const firstTokens = policies.flatMap(({ timeToFirstToken }) => timeToFirstToken?.p95 ?? []);
    return {
      url,
      ...(pid === undefined ? {} : { pid }),
      responding: this.#responding,
      secondsSinceAnswer: (performance.now() - this.#answeredAt) / 1000,
      restarts,
      ...(answer
        ? { device: answer.device, models: answer.models.length, queued: policies.reduce((sum, { queued }) => sum + queued, 0) }
        : {}),
      ...(firstTokens.length > 0 ? { secondsToFirstToken: Math.max(...firstTokens) } : {}),
      ...(this.#tokensPerSecond === undefined ? {} : { tokensPerSecond: this.#tokensPerSecond }),
    };
  }

  async #ask(): Promise<void> {
    const token = process.env['TERMINAL_RSI_TRAINER_TOKEN'];
    try {
      const response = await fetch(`${this.#trainer.url}/health`, {
        signal: AbortSignal.timeout(ANSWER_MS),
        headers: token ? { authorization: `Bearer ${token}` } : {},
      });
      const answer = (await response.json()) as Answer;
      if (!response.ok) throw new Error(`status ${response.status}`);
      this.#count(answer);
      this.#responding = true;
    } catch {
      this.#responding = false;
      this.#tokensPerSecond = undefined;
      this.#rate = { since: performance.now(), tokens: 0 };
    }
  }

  #count(answer: Answer): void {
    const now = performance.now();
    // Another process counts from zero.
    const before = this.#answer?.pid === answer.pid ? this.#answer.policies : {};
    let tokens = 0;
    // A policy that was dropped and loaded again counts from zero as well.
    for (const [policy, { sampledTokens }] of Object.entries(answer.policies)) {
      const known = before[policy]?.sampledTokens ?? 0;
      tokens += sampledTokens >= known ? sampledTokens - known : sampledTokens;
    }
    this.#rate.tokens += tokens;
    const seconds = (now - this.#rate.since) / 1000;
    if (seconds >= 1) {
      this.#tokensPerSecond = this.#rate.tokens / seconds;
      this.#rate = { since: now, tokens: 0 };
    }
    if (tokens > 0) this.#sampled(tokens);
    this.#answer = answer;
    this.#answeredAt = now;
  }
}
