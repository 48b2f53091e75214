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

work=$(mktemp -d)
cp -r /app/stats "$work/stats"
cd "$work/stats" || exit 1

builds() {
  make clean && make > "$work/log" 2>&1 && ! grep -qi 'warning' "$work/log" && [ -x bin/stats ]
}
flags_stay() {
  make clean && make -n | grep -- '-c ' > "$work/commands" && [ "$(grep -c -- '-std=c11 -O2 -Wall -Wextra -Werror' "$work/commands")" -ge 3 ] &&
    ! grep -qE -- '-w( |$)|-Wno-' "$work/commands"
}
says() { # says INPUT OUTPUT
  [ "$(printf "$1" | bin/stats)" = "$2" ]
}
check built test -x /app/stats/bin/stats
check flags-stay flags_stay
check builds-from-clean builds
check numbers says '1 2 3 4 x' 'n=4 mean=2.500 sd=1.118 skipped=1'
check large-offset says '1000000001 1000000002 1000000003\n' 'n=3 mean=1000000002.000 sd=0.816 skipped=0'
check forms says ' -1e1\n0x10\t.5 5. 1,5 --2\n' 'n=4 mean=2.875 sd=9.330 skipped=2'
check nothing says 'a b' 'n=0 mean=0.000 sd=0.000 skipped=2'
finish
