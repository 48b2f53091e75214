import subprocess
import sys
from decimal import Decimal

import pytest

sys.path.insert(0, "/app")
import inventory  # noqa: E402

HEADER = "sku,name,quantity,price\n"


def write(tmp_path, body):
    path = tmp_path / "list.csv"
    path.write_text(HEADER + body, encoding="utf-8")
    return path


def command(path):
    return subprocess.run(["python3", "-m", "inventory", str(path)], cwd="/app", capture_output=True, text=True)


def test_quoted_fields_and_unicode(tmp_path):
    items = inventory.load(write(tmp_path, 'X,"Nut, ""big""",3,0.10\nY,Größe,7,2\n'))
    assert [item.name for item in items] == ['Nut, "big"', "Größe"]
    assert items[0].price == Decimal("0.10") and isinstance(items[0].price, Decimal)
    assert items[1].quantity == 7 and isinstance(items[1].quantity, int)


def test_comments_and_empty_lines(tmp_path):
    items = inventory.load(write(tmp_path, "\n#a,b,1,1\nC#1,No. #4,1,1\n"))
    assert [(item.sku, item.name) for item in items] == [("C#1", "No. #4")]


@pytest.mark.parametrize("body, line", [("A,a,1,1\nB,b,x,1\n", 3), ("A,a,1\n", 2), ("\nA,a,1,zwei\n", 3)])
def test_errors_name_the_line(tmp_path, body, line):
    with pytest.raises(ValueError, match=rf"^line {line}: "):
        inventory.load(write(tmp_path, body))


def test_value_is_rounded_once_and_half_up(tmp_path):
    summary = inventory.summarise(inventory.load(write(tmp_path, "A,a,1,0.004\nB,b,1,0.001\nC,c,2,10\n")))
    assert summary["value"] == Decimal("20.01") and str(summary["value"]) == "20.01"


def test_low_counts_all_lines_of_a_sku(tmp_path):
    summary = inventory.summarise(inventory.load(write(tmp_path, "Z,z,4,1\nB,b,3,1\nB,b,3,1\nA,a,1,1\n")))
    assert summary["low"] == ["A", "Z"] and summary["skus"] == 3 and summary["units"] == 11


def test_calls_are_independent(tmp_path):
    items = inventory.load(write(tmp_path, "A,a,4,1\n"))
    assert inventory.summarise(items) == inventory.summarise(items)


def test_command(tmp_path):
    result = command(write(tmp_path, 'Q,"a,b",2,1.5\nR,r,9,1\nP,p,1,1\n'))
    assert (result.returncode, result.stdout) == (0, "skus: 3\nunits: 12\nvalue: 13.00\nlow: P Q\n")


def test_command_fails_on_stderr(tmp_path):
    for path in (tmp_path / "missing.csv", write(tmp_path, "A,a,b,c\n")):
        result = command(path)
        assert result.returncode == 2 and result.stdout == ""
        assert result.stderr.startswith("inventory: ") and result.stderr.count("\n") == 1
