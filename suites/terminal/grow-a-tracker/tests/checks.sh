# Sourced by the test.sh of both steps: `check` is one test of the CTRF in /logs/verifier/ctrf.json; `finish` writes the reward, 1 when all passed.
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

work=$(mktemp -d)
export TRACKER_FILE="$work/tasks" PYTHONDONTWRITEBYTECODE=1
tracker() {
  python3 /app/tracker.py "$@" 2> "$work/err"
}
refused() {
  local before output
  before=$(cat "$TRACKER_FILE" 2> /dev/null)
  output=$(tracker "$@")
  [ $? = 1 ] && [ "$output" = '' ] && [ -s "$work/err" ] && ! grep -q Traceback "$work/err" && [ "$(cat "$TRACKER_FILE" 2> /dev/null)" = "$before" ]
}
