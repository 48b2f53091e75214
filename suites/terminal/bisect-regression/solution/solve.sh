#!/bin/bash
set -e
cd /app/roman
git bisect start HEAD "$(git rev-list --max-parents=0 HEAD)" > /dev/null
git bisect run sh -c 'test "$(python3 roman.py 944)" = CMXLIV' > /dev/null
bad=$(git rev-parse refs/bisect/bad)
git bisect reset 2> /dev/null
echo "$bad" > /app/first-bad.txt
# Neighbouring lines have changed since: what it did to the table is taken back, the rest stays.
git revert --no-edit "$bad" > /dev/null 2>&1 || {
  git checkout -q HEAD -- roman.py CHANGES.md
  sed -i "s/(40, 'XXXX')/(40, 'XL')/" roman.py
  git add -A
  git -c core.editor=true revert --continue > /dev/null
}
