# Commits with fixed authors and times, so that the repository is the same wherever it is made.
set -e
git config --global --add safe.directory '*'
git config --global init.defaultBranch main
git config --global user.name Builder
git config --global user.email builder@example.org
cd /app/greeter
git init -q
clock=1730000000
commit() {
  clock=$((clock + 3600))
  git add -A
  GIT_AUTHOR_DATE="$clock +0000" GIT_COMMITTER_DATE="$clock +0000" git commit -q -m "$1"
}
printf '#!/bin/bash\necho "Hello, $1"\n' > greet.sh
chmod +x greet.sh
echo 1.3.0 > VERSION
printf '# Changes\n\n## 1.3.0\n- first release\n' > CHANGELOG.md
commit 'chore: release 1.3.0'
git tag -a -m 'Release 1.3.0' v1.3.0
printf '#!/bin/bash\nname=$1\necho "Hello, ${name:-world}"\n' > greet.sh
commit 'feat: greet the world without a name'
echo 'Greets.' > README.md
commit 'docs: say what it does'
printf '#!/bin/bash\nname=${1:-world}\ncase $GREETER_LANG in\n  de) echo "Hallo, $name" ;;\n  *) echo "Hello, $name" ;;\nesac\n' > greet.sh
commit 'feat: greet in German'
printf '#!/bin/bash\n# Greets.\nname=${1:-world}\ncase $GREETER_LANG in\n  de) echo "Hallo, $name" ;;\n  *) echo "Hello, $name" ;;\nesac\n' > greet.sh
commit 'fix: say what the script is for'
