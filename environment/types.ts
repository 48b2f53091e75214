/**
 * The vocabulary of the environment: tasks, sandboxes, episodes and verdicts. Types only; implementations live in
 * task.ts (Harbor format), embedded.ts, docker.ts, harness.ts and verifier.ts.
 */

export type Tier = 'easy' | 'medium' | 'hard' | 'extreme';
export type SandboxKind = 'embedded' | 'docker';
/** `shell`: one command a turn. `script`: a reply of several command lines, run in order (complementary harness). */
export type HarnessName = 'shell' | 'script';

/** A file tree held in memory. Keys are POSIX paths relative to the tree's root, without a leading slash. */
export type FileTree = Map<string, FileEntry>;
export interface FileEntry {
  readonly data: Uint8Array;
  /** POSIX permission bits, e.g. 0o644. */
  readonly mode: number;
}

/** One task of a dataset, loaded from a directory in Harbor's task format. */
export interface Task {
  /** Directory name; unique within its suite. */
  readonly id: string;
  readonly dir: string;
  /** What the agent reads (canary lines stripped). */
  readonly instruction: string;
  /** `[metadata].family` and `[metadata].tier`; a foreign task without them is family = its id, tier = 'medium'. */
  readonly family: string;
  readonly tier: Tier;
  /** Absolute path in the sandbox in which commands run (`[environment].workdir`, else the Dockerfile's WORKDIR, else `/app`). */
  readonly workdir: string;
  readonly agentTimeoutSec: number;
  readonly verifierTimeoutSec: number;
  readonly environment: EnvironmentSpec;
  /** `[verifier].env` and `[solution].env`: variables of test.sh and of solve.sh. */
  readonly verifierEnv: Readonly<Record<string, string>>;
  readonly solutionEnv: Readonly<Record<string, string>>;
  /** Uploaded to /tests, for verification only. */
  readonly tests: FileTree;
  /** `solution/`, uploaded to /solution for the oracle only; undefined where the task has none. */
  readonly solution?: FileTree;
  /** Hex SHA-256 over all files of the task directory (sorted path, NUL, bytes). */
  readonly checksum: string;
}

/** The starting state of a sandbox, read from `environment/Dockerfile` (FROM, COPY, ENV, WORKDIR, RUN) and task.toml. */
export interface EnvironmentSpec {
  readonly image: string;
  readonly env: Readonly<Record<string, string>>;
  /** Absolute destination path → file, from COPY instructions (paths in the tree are absolute without the leading slash). */
  readonly files: FileTree;
  /** RUN lines, in order. */
  readonly run: readonly string[];
  readonly memoryMb: number;
  readonly pidsLimit: number;
  /** What the task asks for by name beyond a shell without network (`network`, `gpu`); providers refuse what they lack. */
  readonly needs: readonly string[];
}

export interface ExecOptions {
  readonly timeoutSec: number;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly signal?: AbortSignal;
}
export interface ExecResult {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number;
  readonly timedOut: boolean;
  /** What the command took by the sandbox's own clock: real time in Docker, in the embedded sandbox what it slept. */
  readonly seconds: number;
}

/** Keeps a runaway file of the agent out of the worker's memory. */
export interface DownloadLimit {
  readonly maxFileBytes: number;
  /** Called with the relative path of every file that was left out. */
  onSkipped(path: string): void;
}

/** A running, private environment. Always close it; `close` never throws and may be called twice. */
export interface Sandbox {
  readonly kind: SandboxKind;
  /** Runs `command` with the shell in the task's workdir. Shell state (cwd, variables) does not persist between calls. */
  exec(command: string, options: ExecOptions): Promise<ExecResult>;
  /** Writes files below `destination` (absolute). Existing files are replaced; nothing is removed. */
  upload(files: FileTree, destination: string): Promise<void>;
  /** Reads all regular files below `source` (absolute); empty map where it does not exist. Files over the limit are left out and reported. */
  download(source: string, limit?: DownloadLimit): Promise<FileTree>;
  /** undefined where there is no such file. */
  readFile(path: string): Promise<Uint8Array | undefined>;
  close(): Promise<void>;
}

export interface SandboxProvider {
  readonly kind: SandboxKind;
  /** Why this provider cannot run the task, or undefined when it can. */
  refusal(task: Task): string | undefined;
  /** Starts a fresh sandbox holding the task's initial environment. Throws InfrastructureError (retryable) or TaskError (not). */
  start(task: Task, labels: SandboxLabels, signal?: AbortSignal): Promise<Sandbox>;
  /** Removes what crashed owners left behind for this run (`docker` only). Returns how many were removed. */
  sweep(runKey: string): Promise<number>;
  close(): Promise<void>;
}
export interface SandboxLabels {
  readonly runKey: string;
  readonly episodeId: string;
  readonly purpose: 'rollout' | 'verify' | 'rewrite' | 'check';
}

/** Turns text into the policy's tokens and back; the one place that knows the episode's token layout (policy/codec.ts). */
export interface EpisodeCodec {
  /** Tokens that open an episode: harness tag, optional runbook, instruction, and the marker after which the agent speaks. */
  prompt(harness: HarnessName, instruction: string, runbook?: string): number[];
  /** Tokens of an observation (cut to at most `maxTokens`) and the marker after which the agent speaks again. */
  observation(text: string, maxTokens: number): number[];
  /** Tokens of an agent reply including the end-of-turn token; for replayed commands only, never for sampled ones. */
  reply(text: string): number[];
  /** Text of sampled agent tokens, without the end-of-turn token. */
  decode(tokens: readonly number[]): string;
  readonly endOfTurn: number;
}

export interface SampleRequest {
  /** Constant over the turns of one episode attempt; lets the sampler keep the episode's key-value cache. */
  readonly sessionId: string;
  /** SHA-256 of the policy artifact. */
  readonly policy: string;
  /** The whole episode so far; must extend what the session has seen. */
  readonly tokens: readonly number[];
  /** Seed of this turn's uniforms (unsigned 32 bit). */
  readonly seed: number;
  readonly maxTokens: number;
  readonly temperature: number;
}
export interface SampleResult {
  /** Sampled tokens, the end-of-turn token included when the agent gave it. */
  readonly tokens: number[];
  /** Natural-log probabilities of those tokens under the distribution they were sampled from. Same length as `tokens`. */
  readonly logprobs: number[];
  readonly stopReason: 'end-of-turn' | 'max-tokens' | 'context';
}
/** Where a rollout gets its tokens: the trainer's HTTP sampler in a run, a script in a test. */
export interface Sampler {
  sample(request: SampleRequest, signal?: AbortSignal): Promise<SampleResult>;
  /** The episode is over; its cache slot may be reused. Never throws. */
  endSession(sessionId: string): Promise<void>;
}

export type StopReason =
  | 'exit' // the agent said it is done
  | 'max-turns'
  | 'output-length' // a reply without end-of-turn within the token limit; not executed
  | 'context' // the policy's context is full
  | 'agent-timeout';

/** One command and what came back. `script` turns hold several. */
export interface CommandRecord {
  readonly command: string;
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number;
  readonly timedOut: boolean;
}
export interface TurnRecord {
  readonly reply: string;
  readonly commands: readonly CommandRecord[];
  /** The text shown to the agent after the turn (before token truncation); undefined after the last turn. */
  readonly observation?: string;
}
export interface EpisodeRecord {
  readonly episodeId: string;
  readonly suite: string;
  readonly taskId: string;
  readonly taskChecksum: string;
  readonly family: string;
  readonly tier: Tier;
  readonly harness: HarnessName;
  readonly sandbox: SandboxKind;
  /** `policy:<sha256>`, `oracle`, `nop` or `replay`. */
  readonly agent: string;
  readonly sample: number;
  readonly seed: number;
  readonly turns: readonly TurnRecord[];
  readonly stopReason: StopReason;
  readonly agentTokens: number;
  readonly totalTokens: number;
}

/** The token record of one episode: one append-only sequence; arrays have equal length T. */
export interface EpisodeTokens {
  readonly episodeId: string;
  readonly tokens: number[];
  /** Turn number (0-based) at agent tokens, -1 elsewhere. */
  readonly turnIds: number[];
  /** Behaviour log-probability at agent tokens, 0 elsewhere; all 0 for replayed commands. */
  readonly logprobs: number[];
}

/** The files an episode left in the task's workdir; what the verifier's fresh sandbox starts from. */
export interface WorkspaceSnapshot {
  readonly episodeId: string;
  /** Path relative to workdir → base64 bytes and mode. */
  readonly files: Readonly<Record<string, { readonly data: string; readonly mode: number }>>;
  /** Directories that hold no file, relative to workdir (absent when there are none). */
  readonly emptyDirectories?: readonly string[];
  /** Files that did not fit the size limit: the verifier does not see them (absent when there are none). */
  readonly dropped?: readonly string[];
}

export interface CheckResult {
  readonly name: string;
  readonly passed: boolean;
}
export type Outcome = 'passed' | 'failed' | 'no-verdict';
export interface Verdict {
  readonly outcome: Outcome;
  /** CTRF tests, else the keys of reward.json, else one check `reward`. Empty for `no-verdict`. */
  readonly checks: readonly CheckResult[];
  /** Strict reward as the task's verifier wrote it; undefined for `no-verdict`. */
  readonly reward?: number;
  /** Why there is no verdict. */
  readonly error?: { readonly type: string; readonly message: string };
}
export interface EpisodeVerdict extends Verdict {
  readonly episodeId: string;
  readonly suite: string;
  readonly taskId: string;
  readonly family: string;
  readonly tier: Tier;
}
