/** task.toml against Harbor's own model: the same files are accepted and refused, with the same values and defaults. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { harborPython } from '../../tests/harbor-python.ts';
import { TaskError } from '../errors.ts';
import { readTaskToml } from './task-toml.ts';
import type { EnvironmentTable, TaskTomlTables } from './toml-schema.ts';

const harbor = await harborPython();
const skip = 'skip' in harbor ? harbor.skip : false;

const validate = `
import json, sys, warnings
warnings.simplefilter("ignore")
from harbor.models.task.config import TaskConfig
results = []
for text in json.loads(sys.argv[1]):
    try:
        results.append(TaskConfig.model_validate_toml(text).model_dump(mode="json"))
    except Exception as error:
        results.append(str(error))
print(json.dumps(json.loads(json.dumps(results), parse_constant=str)))
`;
async function harborReads(texts: readonly string[]): Promise<unknown[]> {
  if ('skip' in harbor) throw new Error(harbor.skip);
  return JSON.parse(await harbor.run(validate, JSON.stringify(texts))) as unknown[];
}
const read = (text: string): TaskTomlTables => readTaskToml(text, 'task.toml');

/** Accepted by both, with the same meaning. */
const accepted = [
  '',
  'version = "1.0"\nschema_version = "1.3"',
  'version = "1.0"',
  'schema_version = "99"\nsource = "x"\nunknown = 1\n[verifier]\nrestart_environment = true\n[environment]\nimage = "x"',
  '[task]\nname = "org/some.task-1_x"\nversion = "2"\ndescription = "d"\nkeywords = ["a"]\n[[task.authors]]\nname = "A"\nemail = "a@b"',
  '[metadata]\ndifficulty = "hard"\ntags = ["a", 1]\ndeep = { b = 1.5 }',
  '[agent]\ntimeout_sec = 900\nuser = 1000\n[verifier]\ntimeout_sec = 30.5\nuser = "nobody"',
  '[agent]\ntimeout_sec = "900.0"\n[environment]\nmemory_mb = "512"\ncpus = 2.0\nbuild_timeout_sec = "12"',
  '[verifier.env]\nA = "${A}"\nB = "x${B:-1}"\n[environment.env]\nC = ""\n[solution.env]\nD = "d"',
  ...['"2G"', '"512M"', '"1.5G"', '" 100000k "', '"1536.9m"', '2048'].map((size) => `[environment]\nmemory = ${size}\nstorage = ${size}`),
  '[environment]\nmemory = "1G"\nmemory_mb = 1024\nstorage_mb = 10240\ngpus = 0\ngpu_types = ["H100"]',
  '[environment]\ncpus = 0.5\ndocker_image = "a/b:c"\nos = "LINUX"\nworkdir = "/w"\nskills_dir = ""\nmcp_servers = []',
  ...['public', 'no-network', 'allowlist'].map(
    (mode) => `[environment]\nnetwork_mode = "${mode}"\nallow_internet = false\nallowed_hosts = []`,
  ),
  '[environment]\nallow_internet = true',
  '[environment]\nallow_internet = false\n[verifier.environment]\nallow_internet = true',
  '[environment]\nallow_internet = false\nallowed_hosts = []',
  '[agent]\nnetwork_mode = "no-network"\nallowed_hosts = []\n[verifier]\nnetwork_mode = "allowlist"\nallowed_hosts = ["pypi.org"]',
  `[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["A.Example.ORG.", " *.suffix.net", "192.0.2.1", "2001:DB8:0:0::1", "::ffff:1.2.3.4", "10.0.0.0/8", "2001:db8:0::/32", "::/0", "0.0.0.0/0", "localhost", "1.2.3", "01.2.3.4"]`,
  '[environment.healthcheck]\ncommand = "true"',
  '[environment.healthcheck]\ncommand = "true"\ninterval_sec = 0.5\ntimeout_sec = 1\nstart_period_sec = 2\nstart_interval_sec = 0.1\nretries = 9',
  '[verifier]\nenvironment_mode = "separate"',
  '[verifier]\nenvironment_mode = "separate"\n[verifier.environment]\ncpus = 1',
  '[verifier.environment]\ndocker_image = "x"\nmemory = "1G"',
  '[[verifier.collect]]\ncommand = "dump"\n[[verifier.collect]]\ncommand = "x"\nservice = " main "\ntimeout_sec = 5\nuser = 0',
  'artifacts = ["/a/b", "relative", { source = "/c", destination = "d/e", exclude = ["*.o"] }, { source = "/f", destination = "", service = "main" }]',
  'artifacts = [{ source = "a..b/...", destination = "manifest.json.bak" }]',
  'multi_step_reward_strategy = "final"\n[[steps]]\nname = "one"\n[[steps]]\nname = "Two words.x"\nmin_reward = 0.5\n[steps.agent]\ntimeout_sec = 5\n[steps.verifier]\nenvironment_mode = "separate"\n[steps.healthcheck]\ncommand = "h"\n[[steps]]\nname = "ünder_3"\nmin_reward = { reward = 1, speed = 0.25 }\nartifacts = ["x"]',
  'steps = []',
];

/** Refused by both. */
const refused = [
  'not toml =',
  'version = 1.0',
  'schema_version = 1',
  'steps = "one"',
  'multi_step_reward_strategy = "max"',
  ...['plain', 'a/b/c', '.a/b', 'a/..b', 'a/b..c', '-a/b', 'ä/b', 'a/'].map((name) => `[task]\nname = "${name}"`),
  '[task]\ndescription = "no name"',
  '[task]\nname = "a/b"\nversion = ""',
  '[task]\nname = "a/b"\nauthors = ["x"]',
  'metadata = 1',
  '[agent]\ntimeout_sec = "soon"',
  '[agent]\nuser = 1.5',
  '[agent]\nuser = ["root"]',
  '[verifier.env]\nA = 1',
  '[solution.env]\nA = true',
  '[environment]\ncpus = nan',
  '[environment]\ncpus = inf',
  '[environment]\nmemory_mb = 1.5',
  '[environment]\nmemory = "2T"',
  '[environment]\nmemory = "big"',
  '[environment]\nmemory = "1G"\nmemory_mb = 1000',
  '[environment]\nstorage = "1G"\nstorage_mb = 1000',
  '[environment]\nos = "plan9"',
  '[environment]\nnetwork_mode = "none"',
  '[environment]\nallowed_hosts = ["a.b"]',
  '[environment]\nnetwork_mode = "public"\nallowed_hosts = ["a.b"]',
  '[agent]\nallowed_hosts = []',
  '[verifier]\nnetwork_mode = "no-network"\nallowed_hosts = ["a.b"]',
  ...[
    'https://a.b',
    'a.b:443',
    'a.b/path',
    '',
    '.',
    '*.',
    '*',
    'a.*.b',
    '*.1.2.3.4',
    '[::1]',
    'fe80::1%eth0',
    '10.0.0.1/8',
    '2001:db8::1/32',
    '10.0.0.0/33',
    'under_score.org',
    '-a.b',
    'a..b',
    'ü.org',
    '::1::2',
    `${'a'.repeat(64)}.org`,
  ].map((host) => `[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["${host}"]`),
  '[environment.healthcheck]\nretries = 1',
  '[environment.healthcheck]\ncommand = "x"\nretries = 1.5',
  '[environment]\nmcp_servers = [{ name = "x" }]',
  '[environment.tpu]\ntype = "v6e"\ntopology = "big"',
  '[verifier]\nenvironment_mode = "own"',
  '[verifier]\nenvironment_mode = "shared"\n[verifier.environment]\ncpus = 1',
  '[[verifier.collect]]\nservice = "main"',
  '[[verifier.collect]]\ncommand = "x"\nservice = ""',
  ...['../a', '/a/../b', '..'].map((source) => `artifacts = ["${source}"]`),
  ...['/abs', 'a/../b', 'manifest.json', 'manifest.json/', '.', 'a\\\\b'].map(
    (path) => `artifacts = [{ source = "a", destination = "${path}" }]`,
  ),
  'artifacts = [{ destination = "a" }]',
  'artifacts = [1]',
  '[[steps]]\nmin_reward = 1',
  ...['', ' ', '.', '..', 'a/b', 'a\\\\b', 'a.', 'a ', 'a:b', 'nul', 'NUL.txt', 'com1', 'x\\u0001', 'y'.repeat(256)].map(
    (name) => `[[steps]]\nname = "${name}"`,
  ),
  ...[
    ['a', 'A'],
    ['é', 'e\\u0301'],
    ['straße', 'STRASSE'],
  ].map((names) => names.map((name) => `[[steps]]\nname = "${name}"\n`).join('')),
  '[[steps]]\nname = "a"\nmin_reward = "high"',
  '[[steps]]\nname = "a"\nmin_reward = { reward = "x" }',
];

/** Valid in Harbor; refused here by name. */
const unsupported: readonly (readonly [string, RegExp])[] = [
  ['[environment]\nos = "Windows"', /environment\.os = "Windows": Windows is not supported/],
  ['[environment.tpu]\ntype = "v6e"\ntopology = "2x4"', /environment\.tpu = .*TPUs are not supported/],
  ['[environment]\nskills_dir = "/skills"', /environment\.skills_dir = "\/skills": skills for agents are not supported/],
  ['[[environment.mcp_servers]]\nname = "m"\nurl = "http://x"', /environment\.mcp_servers = .*MCP servers are not supported/],
  [
    '[[verifier.collect]]\ncommand = "x"\nservice = "db"',
    /verifier\.collect\.0\.service = "db": services of compose files are not supported/,
  ],
  ['artifacts = [{ source = "/x", service = "db" }]', /artifacts\.0\.service = "db": services of compose files are not supported/],
  ['[environment]\nworkdir = "app"', /environment\.workdir = "app": expected an absolute path/],
  ['[agent]\ntimeout_sec = 0', /agent\.timeout_sec = 0/],
  ['[verifier]\ntimeout_sec = -1', /verifier\.timeout_sec = -1/],
  ['[verifier]\ntimeout_sec = inf', /verifier\.timeout_sec/],
];

describe('task.toml and Harbor', { skip }, () => {
  it('accepts what Harbor accepts, with its values and defaults', async () => {
    const theirs = await harborReads(accepted);
    for (const [index, text] of accepted.entries()) {
      assert.equal(typeof theirs[index], 'object', `${text}\nHarbor: ${String(theirs[index])}`);
      assert.deepEqual(ours(read(text)), harborsOwn(theirs[index] as Dump), text);
    }
  });

  it('refuses what Harbor refuses', async () => {
    const theirs = await harborReads(refused);
    for (const [index, text] of refused.entries()) {
      assert.equal(typeof theirs[index], 'string', `Harbor accepts ${text}`);
      assert.throws(() => read(text), TaskError, text);
    }
  });

  it('refuses by name what Harbor could do', async () => {
    const theirs = await harborReads(unsupported.map(([text]) => text));
    for (const [index, [text, message]] of unsupported.entries()) {
      assert.equal(typeof theirs[index], 'object', `${text}\nHarbor: ${String(theirs[index])}`);
      assert.throws(() => read(text), message, text);
    }
  });
});

interface Dump extends Record<string, unknown> {
  readonly steps: readonly Record<string, unknown>[] | null;
}

/** In the form of `ours`. */
function harborsOwn(dump: Dump): unknown {
  const artifacts = (list: unknown): unknown =>
    (list as unknown[]).map((item) => (typeof item === 'string' ? { source: item, exclude: [] } : item));
  return bare({
    ...dump,
    artifacts: artifacts(dump.artifacts),
    steps: dump.steps?.map((step) => ({ ...step, artifacts: artifacts(step.artifacts) })),
  });
}

function ours({ version: _alias, ...toml }: TaskTomlTables): unknown {
  const environment = ({ memory, storage, allow_internet: internet, ...table }: EnvironmentTable): unknown => ({
    ...table,
    os: (table.os ?? 'linux').toLowerCase(),
    memory_mb: table.memory_mb ?? memory,
    storage_mb: table.storage_mb ?? storage,
    mcp_servers: [],
    network_mode: table.network_mode ?? (internet === false && table.allowed_hosts === undefined ? 'no-network' : 'public'),
  });
  const verifier = (table: TaskTomlTables['verifier']): unknown => ({
    ...table,
    environment: table.environment && environment(table.environment),
  });
  const artifacts = (list: TaskTomlTables['artifacts']): unknown =>
    list.map((item) => ({ ...item, destination: item.destination || undefined }));
  return bare({
    ...toml,
    artifacts: artifacts(toml.artifacts),
    environment: environment(toml.environment),
    verifier: verifier(toml.verifier),
    steps: toml.steps?.map((step) => ({ ...step, verifier: verifier(step.verifier), artifacts: artifacts(step.artifacts) })),
  });
}

/** Without null, undefined and empty text; user ids as text. */
function bare(value: unknown, key = ''): unknown {
  if (Array.isArray(value)) return value.map((item) => bare(item));
  if (typeof value === 'object' && value !== null)
    return Object.fromEntries(
      Object.entries(value)
        .filter(([, item]) => item !== undefined && item !== null && item !== '')
        .map(([name, item]) => [name, bare(item, name)]),
    );
  return key === 'user' ? String(value) : value;
}
