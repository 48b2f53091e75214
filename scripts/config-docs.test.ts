import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { it } from 'node:test';
import { CONFIGURATION_PAGE, configurationPage } from './config-docs.ts';

it('docs/configuration.md is what the schema and the profiles say (else: npm run config-docs)', () => {
  assert.equal(readFileSync(CONFIGURATION_PAGE, 'utf8'), configurationPage());
});
