/**
 * `npm run config-docs`: writes docs/configuration.md from the schema (workflows/config.ts) and the profiles
 * (workflows/profiles.ts). With `-- --print` it prints the page instead. A test compares the committed page with this one.
 */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { repoRoot } from '../records/paths.ts';
import { runConfigSchema } from '../workflows/config.ts';
import { accepted, profiles } from '../workflows/profiles.ts';

export const CONFIGURATION_PAGE = path.join(repoRoot, 'docs', 'configuration.md');

/** A node of the schema in JSON Schema form, with the metadata that workflows/config.ts gives each field. */
interface Node {
  readonly [key: string]: unknown;
  readonly description?: string;
  readonly unit?: string;
  readonly published?: string;
  readonly properties?: Readonly<Record<string, Node>>;
}

/** The page as Markdown. Throws Error for a field without a description. */
export function configurationPage(): string {
  const root = z.toJSONSchema(runConfigSchema) as Node;
  return `${[INTRODUCTION, ...sections(root, [])].join('\n\n')}\n`;
}

const INTRODUCTION = `# Configuration

<!-- Written by \`npm run config-docs\` from workflows/config.ts and workflows/profiles.ts. Do not edit. -->

A run takes one JSON object. Every field may be left out: what is missing comes from the profile, \`quick\` unless the input names
another. Objects are merged over the profile field by field, lists replace the profile's list, and \`null\` means "as in the profile".

    {"profile": "smoke", "seed": 7, "rsr": {"epochs": 2}}

From a terminal the same is \`npm run start-run -- --profile smoke --seed 7 --set rsr.epochs=2\`. An unknown field or a value out of
range fails the run at once with the field, the value and what was expected.

The profiles: \`smoke\` goes through every activity in the least time and proves nothing; \`quick\` is the default of \`npm start\`;
\`full\` is for a machine with more cores or a GPU.

A *list per round* holds one value for each round, round 1 first; a shorter list repeats its last entry. *Origin* says what the
paper publishes of a field; \`ours\`, and every number that is not named there, is this project's choice.`;

/** One section for the plain fields of an object, then one for each object below it. */
function sections(node: Node, above: readonly string[]): string[] {
  const fields = Object.entries(node.properties ?? {});
  const plain = fields.filter(([, field]) => field.properties === undefined);
  const nested = fields.filter(([, field]) => field.properties !== undefined);
  const title = above.length === 0 ? '## The run' : `## \`${above.join('.')}\``;
  const text = above.length === 0 ? 'Fields of the object itself.' : documentationOf(node, above);
  return [title, text, table(plain, above), ...nested.flatMap(([name, field]) => sections(field, [...above, name]))];
}

function table(fields: readonly (readonly [string, Node])[], above: readonly string[]): string {
  const names = Object.keys(profiles);
  const header = ['field', 'meaning', 'unit', 'accepts', ...names, 'origin'];
  const rows = fields.map(([name, field]) => {
    const at = [...above, name];
    const values = Object.values(profiles).map((profile) => `\`${JSON.stringify(valueAt(profile, at))}\``);
    const origin = field.published === undefined ? 'ours' : `published: ${field.published}`;
    return [`\`${at.join('.')}\``, documentationOf(field, at), field.unit ?? '', acceptedBy(field), ...values, origin];
  });
  return [header, header.map(() => '---'), ...rows].map(line).join('\n');
}

function documentationOf(field: Node, at: readonly string[]): string {
  if (!field.description) throw new Error(`workflows/config.ts: ${at.join('.')} has no description; give it one with .meta()`);
  return field.description;
}

/** A list per round accepts what its entries accept. */
function acceptedBy(field: Node): string {
  return accepted({ ...field }).replace(/^a non-empty list, each entry /, 'list per round: ');
}

function valueAt(value: unknown, at: readonly string[]): unknown {
  return at.reduce<unknown>((here, key) => (here as Record<string, unknown>)[key], value);
}

function line(cells: readonly string[]): string {
  return `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
}

if (process.argv[1] === import.meta.filename) {
  if (process.argv.includes('--print')) process.stdout.write(configurationPage());
  else writeFileSync(CONFIGURATION_PAGE, configurationPage());
}
