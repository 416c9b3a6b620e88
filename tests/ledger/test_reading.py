"""Reading a ledger: its history, its entries in a file, upgrades, and damage that ``check`` shows."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tests.ledger.conftest import created
from wpriv import Gauss, Laplace, Process, Step, budget
from wpriv.errors import CheckFailed, MissingResource, UsageError
from wpriv.ledger import store
from wpriv.ledger.filters import Limit
from wpriv.ledger.reading import import_entries, migrate
from wpriv.ledger.service import Ledger


def test_the_history_is_what_the_calculator_reads(tmp_path):
    with created(f"sqlite:///{tmp_path}/b.db") as ledger:
        ledger.spend("gauss sigma=100 n=10 + laplace scale=20")
        ledger.cancel(ledger.reserve("gauss sigma=10").release)
        ledger.export(tmp_path / "h.json")
        steps = (Step(Gauss(sigma=100), 10), Step(Laplace(scale=20)))
        whole = budget(Process(steps), delta=1e-6)
        assert budget(history=tmp_path / "h.json", delta=1e-6).epsilon == whole.epsilon
        condition, _, figure = str(ledger.status().fixed).partition(": eps = ")
    assert condition == "if all of it had been fixed before the first release"
    assert whole.epsilon.lower <= float(figure.split()[0]) == pytest.approx(whole.epsilon.safe, rel=2e-3)


def test_sealed_entries_of_another_form_make_no_ledger(tmp_path):
    with created(f"sqlite:///{tmp_path}/b.db") as ledger:
        ledger.export(tmp_path / "e.jsonl")
        head, name = ledger.head(), ledger.store.id
    about = dict.fromkeys(("key", "actor", "reason"))
    entry = store.Entry(2, "2026-01-01", "spend", "2", **about, code_version="0", body='{"place": 5}', prev=head.digest)
    with (tmp_path / "e.jsonl").open("a") as lines:
        lines.write(json.dumps({"ledger": name, **vars(entry.sealed(name))}) + "\n")
    with pytest.raises(UsageError, match="not the entries of a ledger"):
        import_entries(f"sqlite:///{tmp_path}/c.db", tmp_path / "e.jsonl")
    assert not (tmp_path / "c.db").exists()


def test_entries_travel_and_are_verified(tmp_path):
    with created(f"sqlite:///{tmp_path}/b.db") as ledger:
        ledger.spend("gauss sigma=100 n=10", key="one")
        ledger.reserve("laplace scale=20", key="two")
        head = ledger.head()
        ledger.export(tmp_path / "e.jsonl")
    assert import_entries(f"sqlite:///{tmp_path}/c.db", tmp_path / "e.jsonl") == head
    with Ledger(f"sqlite:///{tmp_path}/c.db") as copy:
        assert copy.check(str(head)) == ["release 2 began and has not ended; it is charged"]
        assert copy.spend("gauss sigma=100 n=10", key="one").repeated
        copy.begin("two")
    lines = (tmp_path / "e.jsonl").read_text().splitlines()
    (tmp_path / "f.jsonl").write_text("\n".join([lines[0], lines[1].replace('"one"', '"eno"'), lines[2]]))
    with pytest.raises(CheckFailed, match="entry 2 does not match its digest"):
        import_entries(f"sqlite:///{tmp_path}/d.db", tmp_path / "f.jsonl")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("UPDATE account SET booked = 1", "what is booked does not follow"),
        ("UPDATE release SET state = 'cancelled'", "states of releases"),
        ("UPDATE release SET nonce_digest = 'x'", "states of releases"),
        ("UPDATE release SET scope = 'other'", "states of releases"),
        ("UPDATE charge SET tier = 3 WHERE release = '4'", "what is reserved"),
        ("DROP TRIGGER entry_no_update; UPDATE entry SET actor = 'x' WHERE seq = 2", "does not match its digest"),
        ("DROP TRIGGER entry_no_delete; DELETE FROM entry WHERE seq = 2", "does not continue"),
        ("DROP TRIGGER entry_no_delete; DELETE FROM entry WHERE seq = 4", "entries were removed"),
        ('INSERT INTO limit_now VALUES (0, \'{"limit":{"eps":1,"delta":1e-6},"caps":[[9,9]]}\')', "limits in force"),
        ("UPDATE ledger SET charter = replace(charter, '\"eps\":1.0', '\"eps\":9.0')", "limits"),
    ],
)
def test_damage_shows(tmp_path, damage, words):
    with created(f"sqlite:///{tmp_path}/b.db") as ledger:
        ledger.spend("gauss sigma=100 n=10")
        ledger.spend("gauss sigma=100 n=20")
        ledger.reserve("gauss sigma=100 n=5")
        with sqlite3.connect(tmp_path / "b.db") as connection:
            connection.executescript(damage)
        with pytest.raises(CheckFailed, match=words):
            ledger.check()


def test_entries_are_append_only(tmp_path):
    created(f"sqlite:///{tmp_path}/b.db").close()
    with sqlite3.connect(tmp_path / "b.db") as connection, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute("UPDATE entry SET actor = 'x'")


def test_a_head_that_was_kept_shows_a_cut_or_restored_ledger(tmp_path):
    with created(f"sqlite:///{tmp_path}/b.db") as ledger:
        ledger.spend("gauss sigma=100")
        seq, digest = ledger.head().seq, ledger.head().digest
        ledger.check(f"{seq} {digest}")
        with pytest.raises(CheckFailed, match="restored from a backup"):
            ledger.check(f"{seq + 1} {digest}")
        with pytest.raises(CheckFailed, match="written anew"):
            ledger.check(f"{seq} {digest[::-1]}")


def test_a_ledger_of_the_first_schema_is_refused_until_it_is_migrated(tmp_path):
    """The file was written by the version of the first schema."""
    path, url = tmp_path / "b.db", f"sqlite:///{tmp_path}/b.db"
    with sqlite3.connect(path) as connection:
        connection.executescript((Path(__file__).parent / "schema1.sql").read_text())
        before = connection.execute("SELECT * FROM entry ORDER BY seq").fetchall()
    with pytest.raises(UsageError, match=r"schema 1; this one has 2.*ledger migrate"):
        Ledger(url)
    assert migrate(url, tmp_path / "backup.jsonl") == (1, 2)
    with Ledger(url) as ledger:
        assert ledger.check(f"3 {before[-1][-1]}") == ["release 2 began and has not ended; it is charged"]
        assert ledger.spend("gauss sigma=100 n=10", key="july").repeated
        ledger.begin("august")
        ledger.limit(Limit(0.5, 1e-6))
        ledger.spend("gauss sigma=100")
        assert len(ledger.check()) == 3
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT * FROM entry WHERE seq <= 3 ORDER BY seq").fetchall() == before
    assert str(import_entries(f"sqlite:///{tmp_path}/c.db", tmp_path / "backup.jsonl")).startswith("3 ")
    for again, words in ((tmp_path / "backup.jsonl", "exists"), (tmp_path / "other.jsonl", "up to date")):
        with pytest.raises(UsageError, match=words):
            migrate(url, again)


def test_a_migration_that_fails_changes_nothing(tmp_path):
    with sqlite3.connect(tmp_path / "b.db") as connection:
        connection.executescript((Path(__file__).parent / "schema1.sql").read_text())
    with pytest.raises(MissingResource):
        migrate(f"sqlite:///{tmp_path}/b.db", tmp_path / "no folder" / "backup.jsonl")
    with pytest.raises(UsageError, match="schema 1"):
        Ledger(f"sqlite:///{tmp_path}/b.db")


def test_a_ledger_of_a_later_version_is_refused(tmp_path):
    created(f"sqlite:///{tmp_path}/b.db").close()
    with sqlite3.connect(tmp_path / "b.db") as connection:
        connection.execute("UPDATE ledger SET schema = 99")
    with pytest.raises(UsageError, match="later version"):
        Ledger(f"sqlite:///{tmp_path}/b.db")
