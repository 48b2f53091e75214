/** An instance as the files of a task directory in Harbor's format. */
import { createHash } from 'node:crypto';
import type { SplitTask } from './splits.ts';

/** The image that environment/docker/shell-image.ts builds: static bash and busybox. */
const IMAGE = 'terminal-rsi/shell:1';

/** Path relative to the task directory → text, in sorted order. */
export function renderTask({ suite, id, instance }: SplitTask): Map<string, string> {
  const workspace = Object.entries(instance.files).map(([path, text]): [string, string] => [`environment/workspace/${path}`, text]);
  return new Map<string, string>(
    [
      ...workspace,
      ['environment/Dockerfile', dockerfile(workspace.length > 0)] as const,
      // No line end: the policy must see exactly the tokens that it saw in the demonstrations.
      ['instruction.md', instance.instruction] as const,
      ['solution/solve.sh', `#!/bin/bash\ncd /app || exit 1\n${instance.solution.join('\n')}\n`] as const,
      ['task.toml', taskToml(suite, id, instance.family, instance.tier)] as const,
      ['tests/test.sh', testScript(instance.checks)] as const,
    ].sort(([a], [b]) => (a < b ? -1 : 1)),
  );
}

/** Hex SHA-256 over path, NUL, bytes of every file in sorted order: the checksum that environment/tasks/task.ts computes. */
export function checksum(files: ReadonlyMap<string, string>): string {
  const hash = createHash('sha256');
  for (const [path, text] of files) hash.update(path).update('\0').update(text);
  return hash.digest('hex');
}

/** COPY of a folder that does not exist would fail, so a task without initial files has no COPY. */
function dockerfile(hasFiles: boolean): string {
  return `FROM ${IMAGE}\nWORKDIR /app\n${hasFiles ? 'COPY workspace/ /app/\n' : ''}`;
}

function taskToml(suite: string, id: string, family: string, tier: string): string {
  return `schema_version = "1.4"

[task]
name = "terminal-rsi/${suite}-${id}"

[metadata]
family = "${family}"
tier = "${tier}"
category = "shell"

[agent]
timeout_sec = 120

[verifier]
timeout_sec = 30

[environment]
build_timeout_sec = 120
workdir = "/app"
cpus = 1
memory_mb = 256
network_mode = "no-network"
`;
}

/** Durations are 0 because a verdict must be the same, byte for byte, whenever it is computed. */
function testScript(checks: readonly { readonly name: string; readonly shell: string }[]): string {
  const calls = checks.map(({ name, shell }) => `( ${shell} ) 2> /dev/null\nrecord ${name} $?`).join('\n');
  return `#!/bin/bash
# Hidden checks of the final state of /app: CTRF in /logs/verifier/ctrf.json, 1 or 0 in /logs/verifier/reward.txt.
mkdir -p /logs/verifier
passed=0
failed=0
results=''
record() {
  if [ "$2" -eq 0 ]; then
    passed=$((passed + 1))
    status=passed
  else
    failed=$((failed + 1))
    status=failed
  fi
  if [ "$results" != '' ]; then results="$results,"; fi
  results="$results{\\"name\\":\\"$1\\",\\"status\\":\\"$status\\",\\"duration\\":0}"
  echo "$status $1"
}
cd /app || exit 1
${calls}
summary="{\\"tests\\":$((passed + failed)),\\"passed\\":$passed,\\"failed\\":$failed,\\"pending\\":0,\\"skipped\\":0,\\"other\\":0,\\"start\\":0,\\"stop\\":0}"
echo "{\\"results\\":{\\"tool\\":{\\"name\\":\\"terminal-rsi\\"},\\"summary\\":$summary,\\"tests\\":[$results]}}" > /logs/verifier/ctrf.json
if [ "$failed" -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
`;
}
