#!/bin/bash
. /tests/checks.sh
imports() {
  tracker add first > /dev/null && [ "$(tracker import /app/legacy.tsv)" = 2 ] &&
    [ "$(tracker list)" = "$(printf '1 first\n2 Path is C:\\temp keep it\n3 Water the plants')" ]
}
other_columns() {
  printf 'title\tnote\tcreated\nb\\tc\tx\t2024-01-02T00:00\na\\\\nb\ty\t2024-01-02T00:00\n' > "$work/in"
  [ "$(tracker import "$work/in")" = 2 ] && [ "$(tracker list | tail -2)" = "$(printf '4 b c\n5 a\\nb')" ]
}
all_or_nothing() {
  printf 'title\tcreated\ngood\t2024-01-02T00:00\nbad\tyesterday\n' > "$work/in" && refused import "$work/in" &&
    printf 'title\tcreated\ngood\t2024-01-02T00:00\nshort\n' > "$work/in" && refused import "$work/in" &&
    printf 'title\tstate\nx\topen\n' > "$work/in" && refused import "$work/in" && refused import "$work/none"
}
hook() {
  printf '#!/bin/bash\nprintf "%%s|" "$@" > %s/called\n' "$work" > "$work/hook" && chmod +x "$work/hook"
  TRACKER_HOOK="$work/hook" tracker "done" 3 && [ "$(cat "$work/called")" = '3|Water the plants|' ] && ! tracker list | grep -q '^3 '
}
failing_hook() {
  TRACKER_HOOK=/bin/false tracker "done" 2
  [ $? = 1 ] && ! tracker list | grep -q '^2 '
}
still() {
  [ "$(tracker add later)" = 6 ] && tracker remove 6 && refused remove 6 && refused "done" 6
}
check imports imports
check other-columns other_columns
check all-or-nothing all_or_nothing
check hook hook
check failing-hook failing_hook
check done-without-hook tracker "done" 1
check everything-else still
finish
