#!/bin/bash
set -e
cd /app/inventory
cat > loader.py <<'PY'
import csv
from collections import namedtuple
from decimal import Decimal, InvalidOperation

Item = namedtuple("Item", "sku name quantity price")


def load(path):
    items = []
    with open(path, encoding="utf-8", newline="") as stream:
        for number, line in enumerate(stream, 1):
            if number == 1 or not line.strip() or line.startswith("#"):
                continue
            fields = next(csv.reader([line]))
            if len(fields) != 4:
                raise ValueError(f"line {number}: {len(fields)} fields, expected 4")
            sku, name, quantity, price = fields
            try:
                items.append(Item(sku, name, int(quantity), Decimal(price)))
            except (ValueError, InvalidOperation):
                raise ValueError(f"line {number}: not a number") from None
    return items
PY
cat > summary.py <<'PY'
from decimal import ROUND_HALF_UP, Decimal


def summarise(items):
    totals = {}
    value = Decimal(0)
    for item in items:
        totals[item.sku] = totals.get(item.sku, 0) + item.quantity
        value += item.quantity * item.price
    return {
        "skus": len(totals),
        "units": sum(totals.values()),
        "value": value.quantize(Decimal("0.01"), ROUND_HALF_UP),
        "low": sorted(sku for sku, units in totals.items() if units < 5),
    }
PY
cat > __main__.py <<'PY'
import sys

from . import load, summarise

try:
    summary = summarise(load(sys.argv[1]))
except (OSError, ValueError, IndexError) as error:
    print(f"inventory: {error}", file=sys.stderr)
    sys.exit(2)
summary["low"] = " ".join(summary["low"])
for key, value in summary.items():
    print(f"{key}: {value}".rstrip())
PY
