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

cd /srv/project || exit 1
as() { # as USER COMMAND…
  setpriv --reuid "$1" --regid "$1" --init-groups env HOME=/tmp "${@:2}" 2> /dev/null
}
not() {
  ! "$@"
}
omar_changes() {
  as omar bash -c 'umask 007; echo more >> docs/plans/2025.txt && mkdir docs/new && echo a > docs/new/a && mv docs/new/a docs/b && rm docs/b && rmdir docs/new && mv bin/README bin/READ && mv bin/READ bin/README' &&
    [ "$(tail -1 docs/plans/2025.txt)" = more ]
}
inherits() {
  as omar mkdir -p docs/plans/deep && as omar touch docs/plans/deep/x && as maya touch top && [ "$(stat -c %G docs/plans/deep docs/plans/deep/x top | sort -u)" = crew ]
}
gwen_is_out() {
  for path in . docs docs/plans/2025.txt bin/when drop drop/maya.txt private/key; do
    as gwen cat "/srv/project/$path" && return 1
    as gwen ls "/srv/project/$path" > /dev/null && return 1
  done
  return 0
}
drop() {
  as omar bash -c 'echo mine > drop/omar.txt && ! rm -f drop/maya.txt && ! mv drop/maya.txt drop/x && rm drop/omar.txt && echo again > drop/omar.txt' &&
    as maya rm -f drop/omar.txt && [ ! -e drop/omar.txt ] && [ -e drop/maya.txt ]
}
executables() {
  [ "$(find bin docs drop -type f -perm /111 | sort)" = "$(printf 'bin/report\nbin/when')" ]
}
private() {
  not as omar ls private && not as omar cat private/key && [ "$(as maya cat private/key)" = 'key 4f1c' ] && [ "$(stat -c %a private | tail -c 3)" = 00 ] && [ "$(stat -c %a private/key | tail -c 3)" = 00 ]
}
contents() {
  [ "$(stat -c %U bin/report bin/when bin/README docs/plans/2025.txt private/key drop/maya.txt . | sort -u)" = maya ] && [ "$(cat drop/maya.txt)" = 'from maya' ]
}
check executables executables
check omar-runs test "$(as omar bin/report june)" = 'report for june'
check omar-changes omar_changes
check inherits-the-group inherits
check others-are-out gwen_is_out
check private-is-private private
check drop-box drop
check contents-and-owners contents
finish
