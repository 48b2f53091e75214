/**
 * The vocabulary of the environment: tasks, sandboxes, episodes and verdicts. Types only. Implementations: tasks/ (Harbor format),
 * docker/ and embedded/ (sandboxes), harness/ (harnesses and agents), verifier/ (verdicts).
 */

export type Tier = 'easy' | 'medium' | 'hard' | 'extreme';
export type SandboxKind = 'embedded' | 'docker';
/**
 * `shell`: one command a turn. `script`: a reply of several command lines, run in order (complementary harness). `terminus`: the
 * JSON protocol of Terminus-2 over a terminal.
 */
export type HarnessName = 'shell' | 'script' | 'terminus';

/** A file tree held in memory. Keys are POSIX paths relative to the tree's root, without a leading slash. */
export type FileTree = Map<string, FileEntry>;
export interface FileEntry {
  readonly data: Uint8Array;
  /** POSIX permission bits, e.g. 0o644. */
  readonly mode: number;
}

/** What a sandbox can reach. A task that names no mode gets `none`, although Harbor's default is a public network. */
export type NetworkPolicy =
  | { readonly mode: 'none' }
  | { readonly mode: 'public' }
  /** Host names, `*.suffix`, IP addresses, CIDR blocks. */
  | { readonly mode: 'allowlist'; readonly hosts: readonly string[] };

/**
 * What is done to a sandbox for one instruction: how the agent works on it and how it is judged. A task of a single step is its own
 * phase; of a task of several, `stepTask` (tasks/task.ts) gives each step's as a task.
 */
export interface TaskPhase {
  /** What the agent reads (canary lines stripped). */
  readonly instruction: string;
  /** Infinity where the task sets none, as in Harbor. */
  readonly agentTimeoutSec: number;
  readonly verifierTimeoutSec: number;
  /** `[verifier].env` and `[solution].env`: variables of test.sh and of solve.sh. `${VAR}` templates are unresolved (tasks/env-templates.ts). */
  readonly verifierEnv: Readonly<Record<string, string>>;
  readonly solutionEnv: Readonly<Record<string, string>>;
  /** User names or ids; undefined = the image's user. */
  readonly agentUser?: string;
  readonly verifierUser?: string;
  /** Overrides of `environment.network`. */
  readonly agentNetwork?: NetworkPolicy;
  readonly verifierNetwork?: NetworkPolicy;
  /** Uploaded to /tests, for verification only. Empty where the verifier's own image brings them. */
  readonly tests: FileTree;
  /** `solution/`, uploaded to /solution for the oracle only; undefined where there is none. */
  readonly solution?: FileTree;
  /** What the task declares; absent = Harbor's default, `shared`. How it is really verified is the caller's choice. */
  readonly verifierMode?: 'shared' | 'separate';
  /** `[verifier.environment]`, or an image of its own from tests/Dockerfile: where a separate verifier runs instead of `environment`. */
  readonly verifierEnvironment?: EnvironmentSpec;
  /** The workdir in `verifierEnvironment`; present with it. */
  readonly verifierWorkdir?: string;
  /** Run after the agent and before the artifacts are collected. */
  readonly collect?: readonly CollectHook[];
  /** What is carried to a separate verifier beside the workdir, and kept as artifacts of the episode. */
  readonly artifacts?: readonly ArtifactSpec[];
  /** Run before the agent begins. */
  readonly healthcheck?: Healthcheck;
}

/** One task of a dataset, loaded from a directory in Harbor's task format. */
export interface Task extends TaskPhase {
  /** Directory name; unique within its suite. */
  readonly id: string;
  /** `[task].name`, e.g. `org/name`. */
  readonly name?: string;
  readonly dir: string;
  /** `[metadata].family` and `[metadata].tier`; a foreign task without them is family = its id, tier = 'medium'. */
  readonly family: string;
  readonly tier: Tier;
  /** Absolute path in the sandbox in which commands run (`[environment].workdir`, else the Dockerfile's WORKDIR, else `/app`, see `imageWorkdir`). */
  readonly workdir: string;
  readonly environment: EnvironmentSpec;
  /** Present for a task of several steps, in order; the task's own instruction, tests and solution are then the first step's. */
  readonly steps?: readonly TaskStep[];
  /** `[metadata].keep_processes`: in shared verification the tests look at what the agent left running, so it is not killed. Its reward can then be forged. */
  readonly keepProcesses?: true;
  /** How the rewards of several steps become one. */
  readonly rewardStrategy?: 'mean' | 'final';
  /** Hex SHA-256 over all files of the task directory (sorted path, NUL, bytes). */
  readonly checksum: string;
}

export interface TaskStep extends TaskPhase {
  readonly name: string;
  /** Uploaded into the workdir before the step; its `setup.sh`, if any, is then run with bash there. */
  readonly workdirFiles: FileTree;
  /** Where a reward is below its minimum the steps after this one are not run. Without names it is that of the key `reward`. */
  readonly minReward?: number | Readonly<Record<string, number>>;
}

export interface CollectHook {
  readonly command: string;
  readonly timeoutSec: number;
  readonly user?: string;
}
export interface ArtifactSpec {
  /** Absolute, or relative to the workdir. */
  readonly source: string;
  /** Relative path in the episode's artifacts. */
  readonly destination?: string;
  /** Glob patterns relative to the source. */
  readonly exclude: readonly string[];
}
/** As Docker's HEALTHCHECK: failures within the start period do not count. All in seconds. */
export interface Healthcheck {
  readonly command: string;
  readonly intervalSec: number;
  readonly timeoutSec: number;
  readonly startPeriodSec: number;
  readonly startIntervalSec: number;
  readonly retries: number;
}

/** The starting state of a sandbox, read from `environment/Dockerfile` and task.toml. */
export interface EnvironmentSpec {
  /** FROM of the last stage, or `docker_image`. */
  readonly image: string;
  /**
   * The Docker build that makes the environment; absent for a `docker_image`. Where `simple` below holds, files, env and run give the same
   * without a build.
   */
  readonly build?: ImageBuild;
  /** Whether the Dockerfile is of FROM, COPY, ENV, WORKDIR and RUN alone, in one stage, so that `files` and `run` are all of it. */
  readonly simple: boolean;
  /** Why it is not, with file, line and instruction; for messages. */
  readonly notSimple?: string;
  /** Unresolved templates, as in TaskPhase. */
  readonly env: Readonly<Record<string, string>>;
  /** Absolute destination path → file, from COPY instructions (paths in the tree are absolute without the leading slash). */
  readonly files: FileTree;
  /** RUN lines, in order. */
  readonly run: readonly string[];
  /** Neither task.toml nor the Dockerfile names a workdir, so that it is the image's (`SandboxProvider.locate`). */
  readonly imageWorkdir?: true;
  /** Limit on build and on start, each. */
  readonly buildTimeoutSec: number;
  readonly memoryMb: number;
  readonly pidsLimit: number;
  readonly cpus?: number;
  /** Limit on what is written to the sandbox's own disk, where the engine's storage can enforce one (xfs with project quotas). */
  readonly storageMb?: number;
  readonly network: NetworkPolicy;
  /** What the task asks for by name beyond a shell and a network (`gpu`); providers refuse what they lack. */
  readonly needs: readonly string[];
}
export interface ImageBuild {
  /** The build context, Dockerfile included. */
  readonly context: FileTree;
  /** Hex SHA-256 over the context (sorted path, NUL, mode, bytes): the image's cache key. */
  readonly hash: string;
}

export interface ExecOptions {
  readonly timeoutSec: number;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Name or id; default: the image's user. `root` always works. */
  readonly user?: string;
  readonly signal?: AbortSignal;
}
export interface ExecResult {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number;
  readonly timedOut: boolean;
  /** What the command took by the sandbox's own clock: real time in Docker, in the embedded sandbox what it slept. */
  readonly seconds: number;
  /** Processes in the sandbox that the kernel killed for memory during the command (absent: none, or not known). */
  readonly oomKills?: number;
}

/** A shell that lives on between commands, as in a terminal: directory, variables, functions and background jobs stay. */
export interface ShellSession {
  /**
   * One command at a time. A command that ends the shell (`exit`, `exec`) or is killed at its time-out ends its state as well: the next
   * one gets a new shell in the workdir.
   */
  run(command: string, options: Pick<ExecOptions, 'timeoutSec' | 'signal'>): Promise<ExecResult>;
  /** Ends the shell and what it started. Never throws. */
  close(): Promise<void>;
}

/** A terminal of 160 × 40 characters with a login shell in it (tmux). Throws SandboxDiedError, InfrastructureError. */
export interface Terminal {
  /** Typed as Terminus-2 does: exactly a tmux key name such as `C-c` is that key, anything else is literal text. */
  send(keystrokes: string, signal?: AbortSignal): Promise<void>;
  /** What is visible now. */
  screen(signal?: AbortSignal): Promise<string>;
  /** Scrollback and screen. */
  history(signal?: AbortSignal): Promise<string>;
  /** False once the shell in it has ended. */
  alive(signal?: AbortSignal): Promise<boolean>;
}
export interface TerminalOptions {
  readonly user?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

/** Keeps a runaway file of the agent out of the worker's memory. */
export interface DownloadLimit {
  readonly maxFileBytes: number;
  /** Called with the relative path of every file that was left out. */
  onSkipped(path: string): void;
}

/**
 * A running, private environment. Always close it; `close` never throws and may be called twice. What runs in it throws SandboxDiedError
 * when the sandbox dies meanwhile; its files can still be downloaded then.
 */
export interface Sandbox {
  readonly kind: SandboxKind;
  /** Runs `command` with a fresh shell in the task's workdir. */
  exec(command: string, options: ExecOptions): Promise<ExecResult>;
  openShell(options?: Pick<ExecOptions, 'user' | 'env'>): Promise<ShellSession>;
  /** Absent where there are no terminals (embedded). Throws TaskError where the image has no tmux. */
  openTerminal?(options?: TerminalOptions): Promise<Terminal>;
  /** Writes files below `destination` (absolute), owned by root. Existing files are replaced; nothing is removed. */
  upload(files: FileTree, destination: string): Promise<void>;
  /** Reads all regular files below `source` (absolute); empty map where it does not exist. Files over the limit are left out and reported. */
  download(source: string, limit?: DownloadLimit): Promise<FileTree>;
  /** undefined where there is no such file. */
  readFile(path: string): Promise<Uint8Array | undefined>;
  /** Kills every process but the sandbox's own keeper and proves that none is left. Throws InfrastructureError where that cannot be proven. */
  killAll(signal?: AbortSignal): Promise<void>;
  /** Changes what a running sandbox can reach, between the agent and the verifier. */
  setNetwork(policy: NetworkPolicy): Promise<void>;
  close(): Promise<void>;
}

export interface SandboxProvider {
  readonly kind: SandboxKind;
  /** Why this provider cannot run the task, or undefined when it can. */
  refusal(task: Task): string | undefined;
  /**
   * The task with the workdir that its image names, where the task leaves it open. Absent where images are not known. Throws as `start`
   * does. (tasks/workdir.ts)
   */
  locate?(task: Task, signal?: AbortSignal): Promise<Task>;
  /**
   * Starts a fresh sandbox holding the task's initial environment. Throws InfrastructureError (retryable) or TaskError (not); their `type`
   * is Harbor's name (SandboxBuildFailedError, EnvironmentStartTimeoutError …) where it has one.
   */
  start(task: Task, labels: SandboxLabels, signal?: AbortSignal): Promise<Sandbox>;
  /** Removes what crashed owners left behind for this run (`docker` only). Returns how many were removed. */
  sweep(runKey: string): Promise<number>;
  close(): Promise<void>;
}
export interface SandboxLabels {
  readonly runKey: string;
  readonly episodeId: string;
  readonly purpose: 'rollout' | 'verify' | 'rewrite' | 'check';
  /** The Temporal workflow that the sandbox works for; a reaper asks whether it is still open. */
  readonly workflow?: { readonly workflowId: string; readonly runId: string };
}

/** Turns text into the policy's tokens and back; the one place that knows the episode's token layout (policy/codec.ts). */
export interface EpisodeCodec {
  /** Tokens that open an episode: harness tag, optional runbook, instruction, and the marker after which the agent speaks. */
  prompt(harness: HarnessName, instruction: string, runbook?: string): number[];
  /** Tokens of an observation (cut to at most `maxTokens`) and the marker after which the agent speaks again. */
  observation(text: string, maxTokens: number): number[];
  /** Tokens of an agent reply including the end-of-turn token; for replayed commands only, never for sampled ones. */
  reply(harness: HarnessName, text: string): number[];
  /** Text of sampled agent tokens, without the end-of-turn token. */
  decode(tokens: readonly number[]): string;
  /** What of a reply's text is to be executed, where that is not all of it: a chat model puts its command into a fence. */
  action?(harness: HarnessName, text: string): string;
  readonly endOfTurn: number;
  /** All tokens that end a turn, where there are more than that one. */
  readonly stopTokens?: readonly number[] | undefined;
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
  /** 0: greedy. */
  readonly temperature: number;
  /** Draw from this many of the most probable tokens only. */
  readonly topK?: number | undefined;
  /** Draw from the fewest tokens, the most probable first, that hold this share of what top-k left (nucleus). */
  readonly topP?: number | undefined;
  /** Tokens that end the turn besides the policy's end-of-turn. */
  readonly stopTokens?: readonly number[] | undefined;
  /** Milliseconds after which the request fails and its session is over. */
  readonly timeoutMs?: number | undefined;
}
export interface SampleResult {
  /** Sampled tokens, the end-of-turn or stop token included when the agent gave it. */
  readonly tokens: number[];
  /** Natural-log probabilities of those tokens under the distribution they were sampled from. Same length as `tokens`. */
  readonly logprobs: number[];
  /** The same under the policy itself: temperature 1, no cuts. */
  readonly policyLogprobs?: number[];
  readonly stopReason: 'end-of-turn' | 'stop-token' | 'max-tokens' | 'context';
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
  | 'agent-timeout'
  | 'sandbox-died' // a command of the agent killed the sandbox, and one without it works
  | 'terminal-ended' // the shell in the terminal ended (`terminus`)
  | 'error'; // the environment or the agent's endpoint failed; in trials only (environment/trial/), where the error stands beside it

/** One command and what came back. `script` turns hold several, `terminus` turns none. */
export interface CommandRecord {
  readonly command: string;
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number;
  readonly timedOut: boolean;
  readonly oomKills?: number;
}
export interface TurnRecord {
  readonly reply: string;
  readonly commands: readonly CommandRecord[];
  /** What was typed into the terminal (`terminus`). */
  readonly keystrokes?: readonly { readonly keystrokes: string; readonly durationSec: number }[];
  /** The agent said that the task is complete (`terminus`). */
  readonly taskComplete?: true;
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
  /** `policy:<sha256>`, `oracle`, `nop`, `replay` or `model:<name>`. */
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
  /** Path in the episode's artifacts → file, for tasks that declare any (absent when there are none). */
  readonly artifacts?: Readonly<Record<string, { readonly data: string; readonly mode: number }>>;
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
  /** Every reward by name, where there are others than `reward`. */
  readonly rewards?: Readonly<Record<string, number>>;
  /** The file that the rewards were read from. */
  readonly source?: { readonly file: 'reward.json' | 'reward.txt'; readonly sha256: string };
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
