# Commits with fixed authors and times, so that the repository is the same wherever it is made.
set -e
git config --global --add safe.directory '*'
git config --global init.defaultBranch main
git config --global user.name Builder
git config --global user.email builder@example.org
cd /app/pricing
git init -q
clock=1710000000
commit() {
  clock=$((clock + 3600))
  git add -A
  GIT_AUTHOR_DATE="$clock +0000" GIT_COMMITTER_DATE="$clock +0000" git commit -q -m "$1"
}
cat > pricing.py <<'PY'
TAX = 0.19


def price(net):
    return round(net * (1 + TAX), 2)
PY
printf '[shop]\nname = Corner\nlanguage = en\ntimeout = 30\n' > settings.ini
commit 'Prices with tax'
git checkout -q -b currency
cat > pricing.py <<'PY'
TAX = 0.19
RATES = {'EUR': 1.0, 'USD': 1.08, 'JPY': 162.5}


def price(net, currency='EUR'):
    if currency not in RATES:
        raise ValueError(f'unknown currency {currency}')
    return round(net * (1 + TAX) * RATES[currency], 2)
PY
printf '[shop]\nname = Corner\nlanguage = en\ntimeout = 10\ncurrencies = EUR USD JPY\n' > settings.ini
commit 'Prices in other currencies'
git checkout -q main
cat > pricing.py <<'PY'
TAX = 0.19


def price(net, discount=0):
    if not 0 <= discount <= 100:
        raise ValueError(f'discount {discount} is not between 0 and 100')
    return round(net * (1 - discount / 100) * (1 + TAX), 2)
PY
printf '[shop]\nname = Corner\nlanguage = en\ntimeout = 60\ndiscounts = yes\n' > settings.ini
commit 'Discounts'
git merge currency > /dev/null || true
test -f .git/MERGE_HEAD
