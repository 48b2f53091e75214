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

cd /app/pricing || exit 1
git config --global --add safe.directory /app/pricing
export PYTHONDONTWRITEBYTECODE=1

both_parents() {
  [ "$(git show -s --format=%P main)" = '279b035a49d0369d5c2d1ebcffe08f39117d8bc5 e6b9263dbd992d0c71571c65e7446fe8a3999e81' ]
}
pricing() {
  python3 -c "import sys; sys.path.insert(0, '.'); from pricing import price
$1"
}
refuses() {
  pricing "
for arguments in ((10, -1), (10, 101), (10, 0, 'XXX')):
    try: price(*arguments)
    except ValueError: continue
    raise SystemExit(1)"
}
settings() {
  python3 -c "import configparser; shop = configparser.ConfigParser(); shop.read('settings.ini')
assert dict(shop['shop']) == dict(name='Corner', language='en', timeout='60', discounts='yes', currencies='EUR USD JPY')"
}
check branch-is-main test "$(git branch --show-current)" = main
check merge-of-both-branches both_parents
check branch-not-moved test "$(git rev-parse currency)" = e6b9263dbd992d0c71571c65e7446fe8a3999e81
check merge-is-over test ! -e .git/MERGE_HEAD
check clean test "$(git status --porcelain)" = ''
check discount pricing 'assert price(80, 25) == 71.4 and price(100) == 119.0'
check currency pricing "assert price(100, currency='USD') == 128.52"
check both pricing "assert price(9.99, 33, 'JPY') == 1294.32"
check refuses refuses
check settings settings
finish
