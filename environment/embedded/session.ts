/**
 * Shell sessions of the embedded sandbox. just-bash copies a shell's state for every script and gives back the variables only, so what a
 * command leaves is put together here: its script gets a prelude that restores the state and an end that keeps it, as syntax trees, so
 * that its line numbers stay and no command, however it ends, can run into them.
 *
 * What survives: the directory, variables with their attributes, indexed arrays, functions that a command defined itself (not by `eval`
 * or `source`), `set -o` and `shopt` options, `$?`. What does not: aliases, traps, positional parameters. There are no background jobs:
 * just-bash runs `command &` to its end. `exit`, and whatever else ends the shell before the script's end, ends the state.
 */
import { decodeBytesToUtf8, parse } from 'just-bash';
import type { Bash, Command, CommandNode, ScriptNode } from 'just-bash';
import { isStateless } from './stateless.ts';

type FunctionDefNode = Extract<CommandNode, { type: 'FunctionDef' }>;
type StatementNode = ScriptNode['statements'][number];

/** Takes the declarations from stdin; its argument is the last exit code, or says that nothing has run yet. */
const keepCommand = '__keep_session';
const ending = parse(`{ declare -p | ${keepCommand} $?; } 2>/dev/null`).statements;
const beginning = parse(`declare -p | ${keepCommand} fresh`).statements;
/** Set by the shell itself, or read only. */
const ownNames = new Set(['?', 'BASHOPTS', 'SHELLOPTS', 'PIPESTATUS', 'PWD', 'OLDPWD', 'OPTIND', '_']);
const restoredOptions = ['allexport', 'errexit', 'noclobber', 'noglob', 'nounset', 'pipefail', 'xtrace'];

/** The state between two commands. */
interface Kept {
  readonly cwd: string;
  readonly previousDir: string | undefined;
  /** Restores variables and options. */
  readonly prelude: string;
  /** `$?` cannot be restored where options make the shell end of it, or show it. */
  readonly quiet: boolean;
  readonly functions: ReadonlyMap<string, FunctionDefNode>;
}

/** One session's state over its commands; `attach` it to the shell that runs the next one. */
export class SessionState {
  #kept: Kept | undefined;
  /** What a shell declares before anything ran in it. */
  #fresh: ReadonlyMap<string, string> | undefined;
  #script: ScriptNode | undefined;
  #declared: string | undefined;
  #status = 0;

  /** Where the next command runs; undefined: where a new shell starts. */
  get cwd(): string | undefined {
    return this.#kept?.cwd;
  }
  /** For `cd -`. */
  get previousDir(): string | undefined {
    return this.#kept?.previousDir;
  }

  /**
   * Whether the command neither needs nor changes what is kept but the directory and `$?`: it is then run as it is, and `passed` is told
   * its exit code.
   */
  passes(command: string): boolean {
    if (this.#kept && (this.#kept.prelude !== '' || this.#kept.functions.size > 0)) return false;
    try {
      return isStateless(parse(command));
    } catch {
      return false; // a syntax error: the shell says it
    }
  }

  /** `ended`: the shell was killed with the command. */
  passed(exitCode: number, ended: boolean): void {
    if (ended) this.done(undefined, true);
    else this.#status = exitCode;
  }

  /** Makes the next script that `bash` runs, and it alone, restore and keep the state. */
  attach(bash: Bash): void {
    this.#script = this.#declared = undefined;
    bash.registerTransformPlugin({
      name: 'session',
      transform: ({ ast }) => {
        if (this.#script) return { ast }; // a script within the script
        this.#script = ast;
        const functions = [...(this.#kept?.functions.values() ?? [])].map(statementOf);
        const restore = [this.#kept?.prelude ?? '', this.#kept?.quiet || this.#status === 0 ? '' : `(exit ${this.#status})`];
        const begin = [...(this.#fresh ? [] : beginning), ...parse(restore.filter(Boolean).join('\n')).statements];
        return { ast: { ...ast, statements: [...functions, ...begin, ...ast.statements, ...ending] } };
      },
    });
  }

  /** The command that `attach` ends scripts with. */
  get command(): Command {
    return {
      name: keepCommand,
      execute: ([status], { stdin }) => {
        const declared = decodeBytesToUtf8(stdin);
        if (status === 'fresh') this.#fresh = declarations(declared);
        else [this.#declared, this.#status] = [declared, Number(status)];
        return Promise.resolve({ stdout: '', stderr: '', exitCode: Number(status) || 0 });
      },
    };
  }

  /**
   * After the command. `env`: what just-bash gave back, undefined where an error ended the script that a shell would have survived.
   * `ended`: the shell was killed with the command.
   */
  done(env: Readonly<Record<string, string>> | undefined, ended: boolean): void {
    if (ended) [this.#kept, this.#status] = [undefined, 0];
    else if (env === undefined || this.#script === undefined)
      return; // without a script it had a syntax error
    else if (this.#declared === undefined) [this.#kept, this.#status] = [undefined, 0];
    else this.#kept = this.#keep(this.#script, this.#declared, env);
  }

  #keep(script: ScriptNode, declared: string, env: Readonly<Record<string, string>>): Kept {
    const now = declarations(declared);
    const fresh = this.#fresh ?? new Map<string, string>();
    const lines = [...now].filter(([name, line]) => !ownNames.has(name) && fresh.get(name) !== line).map(([, line]) => restoring(line));
    const unset = [...fresh.keys()].filter((name) => !ownNames.has(name) && !now.has(name)).map((name) => `unset ${name}`);
    const options = (env['SHELLOPTS'] ?? '').split(':').filter((option) => restoredOptions.includes(option));
    const shopts = (env['BASHOPTS'] ?? '').split(':').filter((option) => option !== '' && option !== 'globskipdots');
    const set = options.map((option) => `set -o ${option}`);
    // \`set -e\` would end the shell here, and leaves 0 behind anyway; \`set -x\` would show it.
    const quiet = options.includes('errexit') || options.includes('xtrace');
    const functions = new Map(this.#kept?.functions);
    for (const definition of definedIn(script.statements)) functions.set(definition.name, definition);
    return {
      cwd: env['PWD'] ?? '/',
      previousDir: env['OLDPWD'],
      prelude: [...unset, ...lines, ...shopts.map((option) => `shopt -s ${option}`), ...set].join('\n'),
      quiet,
      functions,
    };
  }
}

/** `declare -p` by name. A value's line breaks are quoted, so that each declaration is one line. */
function declarations(text: string): Map<string, string> {
  const lines = text.split('\n').filter((line) => line.startsWith('declare '));
  return new Map(lines.map((line) => [/^declare \S+ ([^=]+)/.exec(line)?.[1] ?? '', line]));
}

/** just-bash takes quoted elements of an array apart where the array is declared, and not where it is assigned. */
function restoring(declaration: string): string {
  return declaration.replace(/^(declare -\w*[aA]\w*) ([^=]+)=\(/, '$1 $2\n$2=(');
}

/** Function definitions that run when the nodes do: those within other functions wait for their call. */
function* definedIn(node: unknown): Generator<FunctionDefNode> {
  if (typeof node !== 'object' || node === null) return;
  if ((node as { type?: unknown }).type === 'FunctionDef') yield node as FunctionDefNode;
  else for (const part of Object.values(node)) yield* definedIn(part);
}

function statementOf(definition: FunctionDefNode): StatementNode {
  return { type: 'Statement', pipelines: [{ type: 'Pipeline', commands: [definition], negated: false }], operators: [], background: false };
}
