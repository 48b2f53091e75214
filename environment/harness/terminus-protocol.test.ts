/** Replies in Terminus-2's protocol: what is understood, repaired, warned of and refused, beside Harbor's own parser. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { harborPython } from '../../tests/harbor-python.ts';
import { completeReply, parseTerminusReply } from './terminus-protocol.ts';

const harbor = await harborPython();
const skip = 'skip' in harbor ? harbor.skip : false;

const command = (more: object = {}): object => ({ keystrokes: 'ls\n', duration: 0.1, ...more });
const reply = (more: object = {}): string => JSON.stringify({ analysis: 'a', plan: 'p', commands: [command()], ...more });
const REPLIES: Readonly<Record<string, string>> = {
  'a plain reply': reply(),
  'no commands': reply({ commands: [] }),
  'several commands': reply({ commands: [command(), command({ keystrokes: 'cd x\n' }), command({ keystrokes: 'C-c' })] }),
  'pretty printed': JSON.stringify({ analysis: 'a', plan: 'p', commands: [command()] }, null, 2),
  'completion said': reply({ task_complete: true }),
  'completion denied': reply({ task_complete: false }),
  'completion as a string': reply({ task_complete: 'Yes' }),
  'completion as another string': reply({ task_complete: 'done' }),
  'completion as a number': reply({ task_complete: 1 }),
  'completion as null': reply({ task_complete: null }),
  'completion as an empty list': reply({ task_complete: [] }),
  'completion as an object': reply({ task_complete: { really: true } }),
  'our own completion': completeReply,
  'text before': `Let me see.\n${reply()}`,
  'text after': `${reply()}\nThat is all.`,
  'text around, in a fence': `Here:\n\`\`\`json\n${reply()}\n\`\`\`\n`,
  'white space around': `\n\n  ${reply()}  \n`,
  'braces in a thought before': `<think>{x}</think>${reply()}`,
  'a quote before the object': `I "think ${reply()}`,
  'an odd backslash before the object': `\\{ ${reply()}`,
  'two objects': `${reply()}${reply({ plan: 'q' })}`,
  'a closing brace first': `} ${reply()}`,
  'braces and quotes in strings': reply({ analysis: 'if { "x" } \\ {', commands: [command({ keystrokes: 'echo "{"\n' })] }),
  'a missing brace': reply().slice(0, -1),
  'two missing braces': reply().slice(0, -3),
  'a string cut off': reply().slice(0, 20),
  'a trailing comma': reply().replace(/}$/, ',}'),
  'single quotes': reply().replaceAll('"', "'"),
  'a real newline in a string': reply({ analysis: 'a\nb' }).replace('\\n', '\n'),
  'no JSON': 'ls -la',
  'an empty reply': '',
  'a list': '[1, 2]',
  'no analysis': JSON.stringify({ plan: 'p', commands: [] }),
  'no plan and no commands': JSON.stringify({ analysis: 'a' }),
  'thoughts that are no strings': reply({ analysis: 1, plan: ['p'] }),
  'commands that are no list': reply({ commands: 'ls\n' }),
  'commands that are null': reply({ commands: null }),
  'a command that is a string': reply({ commands: ['ls\n'] }),
  'a command that is null': reply({ commands: [null] }),
  'a command that is a list': reply({ commands: [[]] }),
  'a command without keystrokes': reply({ commands: [{ duration: 1 }] }),
  'keystrokes that are a number': reply({ commands: [{ keystrokes: 1 }] }),
  'bad commands and completion': reply({ commands: ['ls\n'], task_complete: true }),
  'a bad second command': reply({ commands: [command(), {}] }),
  'no duration': reply({ commands: [{ keystrokes: 'ls\n' }] }),
  'a duration that is a string': reply({ commands: [command({ duration: '5' })] }),
  'a duration that is null': reply({ commands: [command({ duration: null })] }),
  'a duration that is true': reply({ commands: [command({ duration: true })] }),
  'a long duration': reply({ commands: [command({ duration: 300 })] }),
  'a negative duration': reply({ commands: [command({ duration: -1 })] }),
  'unknown fields of a command': reply({ commands: [command({ is_blocking: true, timeout: 3 })] }),
  'unknown fields of the reply': reply({ thoughts: 'x' }),
  'no newline before another command': reply({ commands: [command({ keystrokes: 'ls' }), command()] }),
  'a wait before another command': reply({ commands: [command({ keystrokes: '' }), command()] }),
  'fields in another order': JSON.stringify({ commands: [command()], plan: 'p', analysis: 'a' }),
  'an escaped character': reply({ commands: [command({ keystrokes: 'echo é\u0003\n' })] }),
};

describe('replies of terminus', () => {
  it('are read as Harbor’s own parser reads them', { skip }, async () => {
    assert.ok(!('skip' in harbor));
    const script = `
import importlib.util, json, sys
# From its file: the package around it loads every client of every model for seconds.
[harbor] = importlib.util.find_spec("harbor").submodule_search_locations
spec = importlib.util.spec_from_file_location("parser", harbor + "/agents/terminus_2/terminus_json_plain_parser.py")
sys.modules["parser"] = parser = importlib.util.module_from_spec(spec)
spec.loader.exec_module(parser)
def read(text):
    result = parser.TerminusJSONPlainParser().parse_response(text)
    return {
        "commands": [[command.keystrokes, command.duration] for command in result.commands],
        "complete": bool(result.is_task_complete),
        "refused": result.error != "",
        "warnings": 0 if result.warning == "" else result.warning.count("\\n") + 1,
    }
print(json.dumps({name: read(text) for name, text in json.loads(sys.argv[1]).items()}))`;
    const expected = JSON.parse(await harbor.run(script, JSON.stringify(REPLIES))) as Record<string, unknown>;
    const found = Object.entries(REPLIES).map(([name, text]) => {
      const { commands, complete, error, warnings } = parseTerminusReply(text);
      const listed = commands.map(({ keystrokes, duration }) => [keystrokes, duration]);
      // Harbor says as a warning, too, that there is no object; ours says it once.
      const count = warnings.length + (error?.includes('no complete JSON object') ? 1 : 0);
      return [name, { commands: listed, complete, refused: error !== undefined, warnings: count }];
    });
    assert.deepEqual(Object.fromEntries(found), expected);
  });

  it('name what is wrong with them', () => {
    const error = (text: string): string | undefined => parseTerminusReply(text).error;
    assert.match(error('ls') ?? '', /no complete JSON object/);
    assert.match(error(REPLIES['a trailing comma'] ?? '') ?? '', /not valid/);
    assert.equal(error(REPLIES['no plan and no commands'] ?? ''), 'Required fields are missing: plan, commands');
    assert.equal(error(REPLIES['a bad second command'] ?? ''), 'Command 2 lacks the required field "keystrokes"');
    assert.equal(error(REPLIES['a string cut off'] ?? '') === undefined, false, 'what was cut off is not guessed');
  });

  it('keep what was thought, and say how they were repaired', () => {
    const { analysis, plan, commands, warnings } = parseTerminusReply(reply().slice(0, -1));
    assert.deepEqual([analysis, plan, commands.length], ['a', 'p', 1]);
    assert.deepEqual(warnings, ['Missing closing braces were added; please send proper JSON']);
  });
});
