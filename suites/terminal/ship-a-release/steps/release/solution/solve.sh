#!/bin/bash
set -e
cd /app/greeter
echo 1.4.0 > VERSION
{
  printf '# Changes\n\n## 1.4.0\n'
  git log --reverse --format=%s v1.3.0..main | sed -nE 's/^(feat|fix): /- /p'
  echo
  tail -n +3 CHANGELOG.md
} > new && mv new CHANGELOG.md
git commit -q -am 'chore: release 1.4.0'
git tag -a -m 'Release 1.4.0' v1.4.0
