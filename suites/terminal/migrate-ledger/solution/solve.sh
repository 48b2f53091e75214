#!/bin/bash
set -e
cat > /app/migrate.py <<'PY'
import re
import sqlite3
import sys
from datetime import date
from decimal import Decimal


def parse_day(text):
    text = text.strip()
    for pattern, order in ((r"(\d{4})-(\d\d)-(\d\d)", (0, 1, 2)), (r"(\d\d)\.(\d\d)\.(\d{4})", (2, 1, 0)), (r"(\d\d?)/(\d\d?)/(\d\d)", (2, 1, 0))):
        match = re.fullmatch(pattern, text)
        if match:
            year, month, day = (int(match.groups()[place]) for place in order)
            try:
                return date(year + 2000 if year < 100 else year, month, day).isoformat()
            except ValueError:
                return None
    return None


def parse_cents(text):
    match = re.fullmatch(r"(?:EUR\s*)?(-?[\d,]*\d(?:\.\d{1,2})?|\([\d,]*\d(?:\.\d{1,2})?\))", text.strip())
    if not match:
        return None
    digits = match[1].replace(",", "")
    return int(Decimal(digits.strip("()")) * 100) * (-1 if digits.startswith("(") else 1)


database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN IMMEDIATE")
latest, rejected = {}, []
for ref, day, account, amount in database.execute("SELECT ref, day, account, amount FROM entries ORDER BY rowid"):
    when, cents = parse_day(day), parse_cents(amount)
    if when is None or cents is None:
        rejected.append((ref, "day" if when is None else "amount"))
        continue
    latest[ref.strip().upper()] = (when, re.sub(r"\s+", "-", account.strip()).lower(), cents)
for statement in (
    "DROP VIEW IF EXISTS balances",
    "DROP TABLE IF EXISTS ledger",
    "DROP TABLE IF EXISTS rejected",
    "CREATE TABLE ledger(id INTEGER PRIMARY KEY, ref TEXT NOT NULL UNIQUE, day TEXT NOT NULL, account TEXT NOT NULL, cents INTEGER NOT NULL)",
    "CREATE TABLE rejected(ref TEXT, reason TEXT)",
    "CREATE INDEX ledger_account_day ON ledger(account, day)",
    "CREATE VIEW balances(account, cents) AS SELECT account, sum(cents) FROM ledger GROUP BY account HAVING sum(cents) <> 0",
):
    database.execute(statement)
database.executemany("INSERT INTO ledger(ref, day, account, cents) VALUES (?, ?, ?, ?)", [(ref, *row) for ref, row in latest.items()])
database.executemany("INSERT INTO rejected VALUES (?, ?)", rejected)
database.execute("COMMIT")
PY
python3 /app/migrate.py /app/ledger.db
