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

cd /app/roman || exit 1
git config --global --add safe.directory /app/roman

all_right() {
  python3 - <<'PY'
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, '/app/roman')
from roman import roman
values = dict(I=1, V=5, X=10, L=50, C=100, D=500, M=1000)
seen = set()
for number in range(1, 4000):
    text = roman(number)
    total = sum(-values[a] if values[a] < values[b] else values[a] for a, b in zip(text, text[1:] + 'I'))
    assert total == number and not any(letter * 4 in text for letter in values), (number, text)
    seen.add(text)
assert len(seen) == 3999
PY
}
check first-bad test "$(tr -d '[:space:]' < /app/first-bad.txt)" = 994f42ad66824e030494b7745ec624da7b930ec1
check one-commit-on-top test "$(git rev-parse main~1)" = af84623baad0477f1ed61bf1bd48db731e0f29d0
check it-reverts-that-commit grep -q 'This reverts commit 994f42ad66824e030494b7745ec624da7b930ec1' <(git show -s --format=%B main)
check others-stay test "$(grep -c '^- change' CHANGES.md)" -ge 59
check numerals all_right
finish
