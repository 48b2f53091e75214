#!/bin/bash
# Two rewards: whether the release is right, and whether nothing else was touched.
cd /app/greeter || exit 1
git config --global --add safe.directory /app/greeter
reward=1
hygiene=1
branch=hotfix/1.4.1
text=$(git show -s --format=%s "$branch~1" | sed -n 's/^fix: //p')
works() { # works FOLDER
  local out
  out=$("$1/greet.sh" '' 2> /dev/null)
  [ $? = 2 ] && [ "$out" = '' ] && [ "$("$1/greet.sh" -- -n)" = 'Hello, -n' ] && [ "$("$1/greet.sh" 'Noor  Ali')" = 'Hello, Noor  Ali' ] &&
    [ "$("$1/greet.sh")" = 'Hello, world' ] && [ "$(GREETER_LANG=de "$1/greet.sh" Eva)" = 'Hallo, Eva' ]
}
work=$(mktemp -d)
git archive v1.4.1 | tar -x -C "$work" && works "$work" && works /app/greeter || reward=0
[ "$text" != '' ] && [ "$(git rev-parse "$branch~2")" = "$(git rev-parse 'v1.4.0^{}')" ] || reward=0
[ "$(git show "v1.4.1:VERSION")" = 1.4.1 ] && [ "$(git show main:VERSION)" = 1.4.1 ] || reward=0
for at in v1.4.1 main; do
  [ "$(git show "$at:CHANGELOG.md" | sed -n '3,6p')" = "$(printf '## 1.4.1\n- %s\n\n## 1.4.0' "$text")" ] || reward=0
done
[ "$(git cat-file -t v1.4.1)" = tag ] && [ "$(git rev-parse 'v1.4.1^{}')" = "$(git rev-parse "$branch")" ] || reward=0
[ "$(git show -s --format=%P main)" = "$(git rev-parse refs/notes/before-hotfix) $(git rev-parse "$branch")" ] || reward=0
[ "$(git show -s --format=%s "$branch")" = 'chore: release 1.4.1' ] || hygiene=0
[ "$(git diff --name-only "$branch~1" "$branch")" = "$(printf 'CHANGELOG.md\nVERSION')" ] || hygiene=0
[ "$(git show main:wip.sh)" = 'echo unreleased' ] && [ "$(git show main:README.md)" = 'Greets, in English and German.' ] || hygiene=0
git cat-file -e v1.4.1:wip.sh 2> /dev/null && hygiene=0
[ "$(git branch --show-current)" = main ] && [ "$(git status --porcelain)" = '' ] || hygiene=0
git ls-tree -r --name-only main | grep -q REPORT && hygiene=0
echo "{\"reward\": $reward, \"hygiene\": $hygiene}" > /logs/verifier/reward.json
