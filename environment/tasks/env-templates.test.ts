/** `${VAR}` in task.toml: resolved from the host when a task runs, never before. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { UserError } from '../errors.ts';
import { resolveEnv } from './env-templates.ts';

describe('resolveEnv', () => {
  const host = { TOKEN: 'secret', EMPTY: '' };

  it('replaces values that are a template as a whole', () => {
    const env = { A: '${TOKEN}', B: '${MISSING:-a:-b}', C: '${TOKEN:-other}', D: '${EMPTY:-x}', E: '${MISSING:-}' };
    assert.deepEqual(resolveEnv(env, 'task', host), { A: 'secret', B: 'a:-b', C: 'secret', D: '', E: '' });
  });

  it('leaves every other value as it is', () => {
    const env = { A: 'x${TOKEN}', B: '$TOKEN', C: '${TOKEN} ', D: '${}', E: '', F: '${A:b}' };
    assert.deepEqual(resolveEnv(env, 'task', host), env);
  });

  it('names task, key and variable where the host lacks it', () => {
    assert.throws(
      () => resolveEnv({ KEY: '${NOT_SET}' }, 'sort-names [verifier]', host),
      (error) =>
        error instanceof UserError && /^sort-names \[verifier\]: env\.KEY = "\$\{NOT_SET\}": NOT_SET is not set/.test(error.message),
    );
  });
});
