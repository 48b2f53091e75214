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

says() {
  [ "$(grep "^$1:" /app/report.txt | sed 's/ *$//')" = "$1: $2" ]
}
check five-lines test "$(grep -c . /app/report.txt)" = 5
check attacker says attacker 10.0.3.77
check failures says failures 484
check users says users 7
check first says first 2024-03-01T00:00:20
check compromised says compromised 'carla 2024-03-02T17:00:34'
finish
