#!/bin/bash
set -e
mkdir -p /app/out
cd /app
python3 - <<'PY'
import csv, json
from collections import defaultdict
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal

cent = Decimal("0.01")
rates = {key: Decimal(value) for key, value in json.load(open("exports/rates.json")).items()}
records = list(csv.DictReader(open("exports/north.csv")))
for line in open("exports/south.jsonl"):
    entry = json.loads(line)
    records.append({**entry, **entry["customer"], "customer": entry["customer"]["name"], **entry["price"]})
latest = {}
for record in records:
    at = datetime.fromisoformat(record["updated"])
    if record["id"] not in latest or at > latest[record["id"]][0]:
        latest[record["id"]] = (at, record)
countries, customers, orders = defaultdict(Decimal), defaultdict(Decimal), 0
for _, record in latest.values():
    if record["state"].lower() in ("cancelled", "test"):
        continue
    euros = (Decimal(record["amount"]) * rates[record["currency"]]).quantize(cent, ROUND_HALF_UP)
    orders += 1
    countries[record["country"].upper()] += euros
    if record["customer"].strip():
        customers[record["customer"].strip()] += euros
top = sorted(customers.items(), key=lambda pair: (-pair[1], pair[0]))[:3]
json.dump(
    {
        "orders": orders,
        "total": str(sum(countries.values())),
        "by_country": {key: str(value) for key, value in countries.items()},
        "top": [[name, str(value)] for name, value in top],
    },
    open("out/summary.json", "w"),
)
PY
