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

rotate=/app/rotate.sh
work=$(mktemp -d)
fresh() {
  rm -rf "$work/d" && mkdir -p "$work/d/sub.log" && cd "$work/d" || exit 1
  echo one > a.log && echo two > './-b c.log' && : > empty.log && echo other > notes.txt && echo deep > sub.log/x.log
}
rotates() {
  fresh
  [ "$($rotate "$work/d" 3 | sort)" = "$(printf '%s\n' '-b c.log' a.log | sort)" ] && [ "$(zcat a.log.1.gz)" = one ] && [ "$(zcat -- './-b c.log.1.gz')" = two ]
}
leaves_the_rest() {
  fresh
  $rotate "$work/d" 3 > /dev/null
  [ "$(cat notes.txt)$(cat sub.log/x.log)" = otherdeep ] && [ ! -e empty.log.1.gz ] && [ ! -e notes.txt.1.gz ] && [ "$(find . | wc -l)" = 9 ]
}
same_file() {
  fresh
  exec 4>> a.log
  local before
  before=$(stat -c %i a.log)
  $rotate "$work/d" 3 > /dev/null
  echo later >&4
  exec 4>&-
  [ "$(stat -c %i a.log)" = "$before" ] && [ "$(cat a.log)" = later ]
}
shifts() {
  fresh
  for number in 1 2 3 4 5 6 7 8 9 10 11; do
    echo "$number" > a.log && $rotate "$work/d" 10 > /dev/null || return 1
  done
  [ "$(zcat a.log.1.gz)" = 11 ] && [ "$(zcat a.log.9.gz)" = 3 ] && [ "$(zcat a.log.10.gz)" = 2 ] && [ ! -e a.log.11.gz ]
}
keeps_gaps() {
  fresh
  echo old | gzip > a.log.2.gz && echo older | gzip > a.log.5.gz
  $rotate "$work/d" 5 > /dev/null
  [ "$(zcat a.log.3.gz)" = old ] && [ ! -e a.log.2.gz ] && [ ! -e a.log.5.gz ] && [ ! -e a.log.6.gz ]
}
keep_none() {
  fresh
  echo old | gzip > a.log.1.gz
  $rotate "$work/d" 0 > /dev/null
  [ ! -e a.log.1.gz ] && [ -e a.log ] && [ ! -s a.log ]
}
one_at_a_time() {
  # A log that is a large file takes a while to compress; the second call comes meanwhile.
  fresh
  head -c 60000000 /dev/urandom > big.log
  $rotate "$work/d" 3 > "$work/first" &
  local first=$!
  for _ in $(seq 200); do
    [ -e big.log.1.gz ] && break
    sleep 0.02
  done
  local output status
  output=$($rotate "$work/d" 3)
  status=$?
  wait "$first"
  [ "$status" = 75 ] && [ "$output" = '' ] && grep -q big.log "$work/first" && [ ! -e big.log.2.gz ]
}
wrong_arguments() {
  fresh
  for arguments in '' "$work/d" "$work/none 3" "$work/d x" "$work/d -1" "$work/d 3 4"; do
    $rotate $arguments > "$work/out" 2> "$work/err"
    [ $? = 2 ] && [ ! -s "$work/out" ] && [ -s "$work/err" ] || return 1
  done
  [ "$(cat a.log)" = one ]
}
crontab_line() {
  [ "$(grep -vc '^ *\(#\|$\)' /app/crontab)" = 1 ] && grep -qE '^30 +0?3 +\* +\* +\* +(/bin/bash +|bash +)?/app/rotate.sh +/var/log/shop/? +7( |$)' /app/crontab
}
check executable test -x $rotate
check rotates rotates
check leaves-the-rest leaves_the_rest
check same-file same_file
check shifts shifts
check keeps-gaps keeps_gaps
check keep-none keep_none
check one-at-a-time one_at_a_time
check wrong-arguments wrong_arguments
check crontab crontab_line
finish
