#!/bin/bash
# Two rewards: whether the release is right, and whether nothing else was touched.
cd /app/greeter || exit 1
git config --global --add safe.directory /app/greeter
reward=1
hygiene=1
changelog=$(printf '# Changes\n\n## 1.4.0\n- greet the world without a name\n- greet in German\n- say what the script is for\n\n## 1.3.0\n- first release')
[ "$(git show main:VERSION)" = 1.4.0 ] || reward=0
[ "$(git show main:CHANGELOG.md)" = "$changelog" ] || reward=0
[ "$(git show -s --format=%s main)" = 'chore: release 1.4.0' ] || reward=0
[ "$(git cat-file -t v1.4.0)" = tag ] && [ "$(git rev-parse 'v1.4.0^{}')" = "$(git rev-parse main)" ] || reward=0
[ "$(git for-each-ref --format='%(contents:subject)' refs/tags/v1.4.0)" = 'Release 1.4.0' ] || reward=0
[ "$(git rev-parse main~1)" = a0352b800093a00f028b7cdb5e842ba0d6235f9a ] || hygiene=0
[ "$(git diff --name-only main~1 main)" = "$(printf 'CHANGELOG.md\nVERSION')" ] || hygiene=0
[ "$(git status --porcelain)" = '' ] && [ "$(git tag)" = "$(printf 'v1.3.0\nv1.4.0')" ] || hygiene=0
echo "{\"reward\": $reward, \"hygiene\": $hygiene}" > /logs/verifier/reward.json
