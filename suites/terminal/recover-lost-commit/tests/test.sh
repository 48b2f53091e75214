#!/bin/bash
# One check a line: CTRF in /logs/verifier/ctrf.json; the reward is 1 when all pass.
tests=''
reward=1
check() {
  local status=passed
  "${@:2}" || status=failed
  [ "$status" = passed ] || reward=0
  tests+="${tests:+,}{\"name\":\"$1\",\"status\":\"$status\",\"duration\":0}"
  echo "$status $1"
}
finish() {
  local count
  count=$(grep -o '"name"' <<< "$tests" | wc -l)
  echo "{\"results\":{\"tool\":{\"name\":\"bash\"},\"summary\":{\"tests\":$count},\"tests\":[$tests]}}" > /logs/verifier/ctrf.json
  echo "$reward" > /logs/verifier/reward.txt
}

cd /app/gateway || exit 1
git config --global --add safe.directory /app/gateway

on_top() {
  [ "$(git rev-parse main~1^{tree})" = 2ef2db2937c12b01837da81ff4ac3fcd600fdfbf ] && [ "$(git rev-parse main~1)" = 0483bfcfb040cc08e67c6199da452169e1d799de ]
}
finished_version() {
  python3 -c 'import sys; sys.path.insert(0, "."); from limiter import RateLimiter; limit = RateLimiter(1, 2)
assert [limit.allow(t) for t in (0, 0, 0, 1, 1)] == [True, True, False, True, False]'
}
check branch-is-main test "$(git branch --show-current)" = main
check on-top-of-main on_top
check author-and-message test "$(git show -s --format='%an|%ae|%s' main)" = 'Jonas|jonas@example.org|Add rate limiter'
check only-the-limiter test "$(git diff --name-status main~1 main)" = "$(printf 'A\tlimiter.py')"
check finished-version finished_version
check clean test "$(git status --porcelain | grep -v __pycache__)" = ''
finish
