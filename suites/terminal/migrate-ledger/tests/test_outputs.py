import sqlite3
import subprocess

import pytest

ROWS = [
    ("a-1", "01.12.2023", "Bank  Account", "1,000.00"),
    ("B-2", "9/1/24", "Sales", "(0.05)"),
    ("A-1 ", "2023-12-02", "bank account", "EUR 2,000"),
    ("c-3", "31.02.2024", "Sales", "x"),
    ("D-4", "2024-02-29", "Sales", "0.05"),
    ("E-5", "2024-03-01", "Travel Costs", "-7.1"),
    ("B-2", "2024-01-10", "Sales", "n/a"),
]


def migrate(path):
    return subprocess.run(["python3", "/app/migrate.py", str(path)], capture_output=True, text=True)


def rows(path, query):
    with sqlite3.connect(path) as database:
        return database.execute(query).fetchall()


@pytest.fixture()
def hidden(tmp_path):
    path = tmp_path / "hidden.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE entries(ref TEXT, day TEXT, account TEXT, amount TEXT)")
        database.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", ROWS)
    assert migrate(path).returncode == 0
    return path


def test_given_database_is_migrated():
    assert rows("/app/ledger.db", "SELECT id, ref, day, account, cents FROM ledger ORDER BY id") == [
        (1, "R-1", "2024-02-05", "rent", -95550),
        (2, "R-2", "2024-02-04", "petty-cash", 1200),
        (3, "R-3", "2024-02-07", "sales", 123450),
        (4, "R-5", "2024-02-09", "petty-cash", -1200),
    ]
    assert rows("/app/ledger.db", "SELECT * FROM balances ORDER BY account") == [("rent", -95550), ("sales", 123450)]
    assert rows("/app/ledger.db", "SELECT * FROM rejected") == [("R-4", "day"), ("R-6", "amount"), ("R-3", "day")]


def test_ledger(hidden):
    assert rows(hidden, "SELECT ref, day, account, cents FROM ledger ORDER BY id") == [
        ("A-1", "2023-12-02", "bank-account", 200000),
        ("B-2", "2024-01-09", "sales", -5),
        ("D-4", "2024-02-29", "sales", 5),
        ("E-5", "2024-03-01", "travel-costs", -710),
    ]


def test_rejected(hidden):
    assert rows(hidden, "SELECT * FROM rejected") == [("c-3", "day"), ("B-2", "amount")]


def test_balances_is_a_view(hidden):
    assert rows(hidden, "SELECT * FROM balances ORDER BY account") == [("bank-account", 200000), ("travel-costs", -710)]
    assert rows(hidden, "SELECT type FROM sqlite_master WHERE name = 'balances'") == [("view",)]


def test_constraints_and_index(hidden):
    columns = rows(hidden, "SELECT name, type, [notnull] OR pk FROM pragma_table_info('ledger')")
    assert columns == [("id", "INTEGER", 1), ("ref", "TEXT", 1), ("day", "TEXT", 1), ("account", "TEXT", 1), ("cents", "INTEGER", 1)]
    indexes = [name for (name,) in rows(hidden, "SELECT name FROM pragma_index_list('ledger')")]
    assert [("account",), ("day",)] in [rows(hidden, f"SELECT name FROM pragma_index_info('{name}') ORDER BY seqno") for name in indexes]
    with pytest.raises(sqlite3.IntegrityError):
        rows(hidden, "INSERT INTO ledger(ref, day, account, cents) VALUES ('A-1', '2024-01-01', 'x', 1)")


def test_again_after_more_entries(hidden):
    rows(hidden, "INSERT INTO entries VALUES ('c-3', '5/3/24', 'Sales', '(3)')")
    assert migrate(hidden).returncode == 0 and migrate(hidden).returncode == 0
    assert rows(hidden, "SELECT ref FROM ledger ORDER BY id") == [("A-1",), ("B-2",), ("D-4",), ("E-5",), ("C-3",)]
    assert len(rows(hidden, "SELECT * FROM rejected")) == 2 and len(rows(hidden, "SELECT * FROM entries")) == len(ROWS) + 1


def test_one_transaction(hidden):
    # A reader that came before sees all or nothing: the file is locked while one reads within a transaction that writes.
    rows(hidden, "INSERT INTO entries VALUES ('F-6', '2024-03-02', 'Sales', '1')")
    blocker = sqlite3.connect(hidden, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    assert migrate(hidden).returncode != 0
    blocker.execute("ROLLBACK")
    assert len(rows(hidden, "SELECT * FROM ledger")) == 4
