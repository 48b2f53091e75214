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

line() { # line SENSOR COUNT MIN MAX MEAN
  grep -qx "$(IFS=,; echo "$*")" <(tr -d '\r' < /app/readings.csv)
}
check header test "$(head -1 /app/readings.csv | tr -d '\r')" = sensor,count,min,max,mean
check lines test "$(grep -c . /app/readings.csv)" = 5
check sorted test "$(tail -n +2 /app/readings.csv | cut -d, -f1 | xargs)" = 'attic cellar garden roof'
check attic line attic 59 -24.10 59.77 19.58
check cellar line cellar 65 -28.62 59.96 16.35
check garden line garden 45 -26.17 58.28 13.84
check roof line roof 61 -28.47 57.12 15.53
finish
