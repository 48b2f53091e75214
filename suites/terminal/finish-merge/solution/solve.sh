#!/bin/bash
set -e
cd /app/pricing
cat > pricing.py <<'PY'
TAX = 0.19
RATES = {'EUR': 1.0, 'USD': 1.08, 'JPY': 162.5}


def price(net, discount=0, currency='EUR'):
    if not 0 <= discount <= 100:
        raise ValueError(f'discount {discount} is not between 0 and 100')
    if currency not in RATES:
        raise ValueError(f'unknown currency {currency}')
    return round(net * (1 - discount / 100) * (1 + TAX) * RATES[currency], 2)
PY
printf '[shop]\nname = Corner\nlanguage = en\ntimeout = 60\ndiscounts = yes\ncurrencies = EUR USD JPY\n' > settings.ini
git add -A
git commit -q --no-edit
