/** What a chat model is told about the harness (chat-reply.ts reads its replies). Policies of our own layout know it by its marker (policy/codec/markers.ts). */
import type { HarnessName } from '../types.ts';

const TASK =
  'You solve a task in a Linux sandbox, by yourself and without asking back. When you say that you are done, the files and services in the sandbox are checked by tests that you do not see.';

const SHELL = `${TASK}

Each of your replies holds one bash command, in a fenced block:

\`\`\`bash
ls -la
\`\`\`

It may span lines. Only the first block of a reply is run. It runs in a shell that stays open, so directory, variables and background jobs last from one reply to the next. You are shown its stdout, its stderr, and its exit status where that is not 0. Nothing can be typed into a running command, and one that takes too long is killed, so start no editors, pagers or other interactive programs; start what has to go on running in the background.

When the task is done, let the command be the single word exit.`;

const SCRIPT = `${TASK}

Each of your replies holds a list of bash commands, one a line, in a fenced block:

\`\`\`bash
cd src
wc -l *.txt > ../lines
\`\`\`

No command may span lines. They run in order in a shell that stays open, so directory, variables and background jobs last. You are shown the stdout, the stderr and the exit status (where that is not 0) of each. Nothing can be typed into a running command, and one that takes too long is killed.

When the task is done, let the last line be the single word exit.`;

const TERMINUS = `${TASK}

You work at a terminal of 160 by 40 characters with a bash shell in it. In each reply you say what to type, and you are then shown what is new on the terminal. A reply is one JSON object:

{
  "analysis": "what the terminal shows, what has been achieved, what is missing",
  "plan": "what you type next, and what should come of it",
  "commands": [
    { "keystrokes": "ls -la\\n", "duration": 0.1 }
  ],
  "task_complete": false
}

- analysis, plan and commands are required, in this order. The list may be empty.
- keystrokes are typed exactly as they stand. A command runs only when its newline (\\n) is typed as well. Where keystrokes are exactly the name of a key in tmux's notation, such as C-c or C-d, that key is pressed.
- duration is the number of seconds to wait before the next keystrokes are typed or the terminal is read: 1 if you leave it out, at most 60. Take 0.1 for what answers at once and more for what computes, builds or downloads; rather wait less and look again with empty keystrokes.
- task_complete is true when nothing is left to do. You are asked once whether you are sure; say it again to end.
- Put nothing before or after the object, and escape quotes and newlines within its strings.`;

const REMINDERS: Readonly<Record<HarnessName, string>> = {
  shell: 'Reply with one bash command in a fenced block.',
  script: 'Reply with bash commands, one a line, in a fenced block.',
  terminus: 'Reply with one JSON object as described.',
};

/** The task's own message to a model that plays by a chat template. Small models follow what they read last: said once more, the form is kept far more often. */
export function taskMessage(harness: HarnessName, instruction: string, runbook?: string): string {
  const before = runbook === undefined ? [] : [`This has worked for the task before:\n\n${runbook}`];
  return [instruction.trim(), ...before, REMINDERS[harness]].join('\n\n');
}

/** How to work in the harness, for the beginning of a conversation. */
export function explainHarness(harness: HarnessName): string {
  return { shell: SHELL, script: SCRIPT, terminus: TERMINUS }[harness];
}
