#!/bin/bash
set -e
cd /app/greeter
git checkout -q -b hotfix/1.4.1 v1.4.0
cat > greet.sh <<'SH'
#!/bin/bash
# Greets.
[ "$1" = -- ] && shift
if [ $# -gt 0 ] && [ -z "$1" ]; then
  echo 'greet.sh: the name is empty' >&2
  exit 2
fi
name=${1:-world}
case $GREETER_LANG in
  de) printf 'Hallo, %s\n' "$name" ;;
  *) printf 'Hello, %s\n' "$name" ;;
esac
SH
git commit -q -am 'fix: refuse empty names, end options with --'
echo 1.4.1 > VERSION
sed -i 's/^## 1.4.0$/## 1.4.1\n- refuse empty names, end options with --\n\n&/' CHANGELOG.md
git commit -q -am 'chore: release 1.4.1'
git tag -a -m 'Release 1.4.1' v1.4.1
git checkout -q main
git merge -q --no-ff -m 'Merge hotfix 1.4.1' hotfix/1.4.1
