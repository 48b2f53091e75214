#!/bin/bash
. /tests/checks.sh
adds() {
  [ "$(tracker add 'buy milk')" = 1 ] && [ "$(tracker add 'call "Ö"')" = 2 ] && [ "$(tracker add '3 eggs')" = 3 ]
}
never_twice() {
  tracker remove 3 && [ "$(tracker add later)" = 4 ] && tracker remove 4 && tracker remove 1 && [ "$(tracker add last)" = 5 ]
}
eleven() {
  for number in 6 7 8 9 10 11; do
    [ "$(tracker add "n$number")" = "$number" ] || return 1
  done
  [ "$(tracker list | tail -2)" = "$(printf '10 n10\n11 n11')" ]
}
foreign_file() {
  echo 'not ours {' > "$work/foreign"
  TRACKER_FILE="$work/foreign" refused add x && [ "$(cat "$work/foreign")" = 'not ours {' ]
}
check empty-list test "$(tracker list)" = ''
check adds adds
check lists test "$(tracker list)" = "$(printf '1 buy milk\n2 call "Ö"\n3 eggs' | sed 's/^3 /3 3 /')"
check numbers-never-twice never_twice
check order-of-numbers eleven
check unknown-number refused remove 99
check no-number refused remove one
check unknown-command refused frobnicate
check wrong-arguments refused add
check too-many-arguments refused list all
check foreign-file foreign_file
finish
