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

url=http://127.0.0.1:8080
cd /app/queue || exit 1

status_is() { # status_is WAITING OLDEST
  curl -s -m 5 "$url/status" | python3 -c "import json, sys; assert json.load(sys.stdin) == {'waiting': $1, 'oldest': $2}"
}
code() {
  curl -s -m 5 -o /tmp/body -w '%{http_code}' --path-as-is "$url$1"
}
running() {
  local pid
  pid=$(cat /app/service.pid) && [ -n "$pid" ] && kill -0 "$pid"
}
not_held_up() {
  exec 3<> /dev/tcp/127.0.0.1/8080 && [ "$(code /status)" = 200 ]
  local result=$?
  exec 3>&-
  return "$result"
}
check running running
check status status_is 2 "'b-17.job'"
check job test "$(curl -s -m 5 $url/jobs/a-02.job)" = 'resize 640x480 cat.png'
check no-such-job test "$(code /jobs/zz.job)" = 404
check not-a-job test "$(code /jobs/notes.txt)" = 404
check nothing-outside test "$(code /jobs/../service.pid)$(code /jobs/..%2f..%2fetc%2fpasswd)$(code /jobs/)" = 404404404
check other-path test "$(code /)" = 404
check not-held-up not_held_up
mkdir dir.job
echo new > c-01.job && touch -d '2022-01-01' c-01.job
check sees-new-jobs status_is 3 "'c-01.job'"
rm -r -- *.job
check sees-an-empty-queue status_is 0 None
finish
