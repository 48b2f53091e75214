import json
from decimal import Decimal

import pytest


@pytest.fixture()
def summary():
    with open("/app/out/summary.json") as stream:
        return json.load(stream)


def test_orders(summary):
    assert summary["orders"] == 35


def test_total(summary):
    assert summary["total"] == "3300.75"


def test_by_country(summary):
    assert summary["by_country"] == {"SE": "1254.35", "DE": "1456.99", "PL": "110.29", "CH": "479.12"}
    assert sum(map(Decimal, summary["by_country"].values())) == Decimal(summary["total"])


def test_top(summary):
    assert summary["top"] == [["Fay Moss", "932.46"], ["Ada Quist", "526.79"], ["Bo Lind", "522.13"]]


def test_nothing_else(summary):
    assert sorted(summary) == ["by_country", "orders", "top", "total"]
