#!/bin/bash
# What happened on main since the release.
set -e
cd /app/greeter
rm setup.sh
echo REPORT.txt >> .git/info/exclude
printf 'Greets, in English and German.\n' > README.md
git add README.md
GIT_AUTHOR_DATE='1740000000 +0000' GIT_COMMITTER_DATE='1740000000 +0000' git commit -q -m 'docs: name the languages'
echo "echo unreleased" > wip.sh
git add wip.sh
GIT_AUTHOR_DATE='1740003600 +0000' GIT_COMMITTER_DATE='1740003600 +0000' git commit -q -m 'feat: begin something new'
git update-ref refs/notes/before-hotfix main
