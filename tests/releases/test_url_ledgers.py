"""Releases that an organisation's ledger pays for: spent before the first row, refused without a trace, shown again."""

from __future__ import annotations

import pytest

from tests.command_line import call
from tests.releases import plans
from wpriv import BinCounts, Count, Quantile, Sum, budget, release
from wpriv.errors import CheckFailed
from wpriv.releases import tables

pytest.importorskip("sqlalchemy")

from wpriv.ledger.service import Ledger

WORDS = ["--person", "patient", "--count", "persons", "--eps", "1", "--delta", "1e-6"]
ABOUT = {"person": "patient", "outputs": [Count()], "eps": 1, "delta": 1e-6}


@pytest.fixture(autouse=True)
def remembered(monkeypatch):
    plans.remember(monkeypatch)


@pytest.fixture
def stays(tmp_path):
    path = tmp_path / "stays.csv"
    path.write_text("patient,ward,days\np1,A,3\np2,B,4\n")
    return path


@pytest.fixture
def ledger(tmp_path):
    """The URL of a ledger that has room for one release at eps 1, and not for two."""
    url = f"sqlite:///{tmp_path / 'b.db'}"
    Ledger.create(url, eps=1.2, delta=1e-6).close()
    return url


def held(url):
    """The number of entries, the states of the releases, and what is booked in each account."""
    with Ledger(url, read_only=True) as book:
        status = book.status(fixed=False)
        return status.head.seq, dict(status.states), [account.booked for account in status.accounts]


def test_a_release_is_spent_before_the_first_row_is_read(stays, ledger, tmp_path, monkeypatch):
    seen, read, before = [], tables.Files.blocks, held(ledger)

    def noted(*about):
        seen.append(held(ledger))
        return read(*about)

    monkeypatch.setattr(tables.Files, "blocks", noted)
    done = release(stays, ledger=ledger, out=tmp_path / "out", **ABOUT)
    assert before[1] == {}
    assert seen[0][1] == {"begun": 1}
    assert seen[0][2][0] > 0
    assert held(ledger)[1] == {"done": 1}
    assert done.answer["ledger"]["file"] == ledger


def test_a_release_that_fails_while_it_reads_stays_spent(stays, ledger, tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tables.Files, "blocks", fail)
        with pytest.raises(KeyboardInterrupt):
            release(stays, ledger=ledger, out=tmp_path / "out", **ABOUT)
    assert held(ledger)[1] == {"lost": 1}
    assert not (tmp_path / "out" / "release.json").exists()
    with pytest.raises(CheckFailed, match="refused by scope all"):
        release(stays, ledger=ledger, out=tmp_path / "out", **ABOUT)


def test_what_is_refused_leaves_nothing(stays, ledger, tmp_path, capfd, monkeypatch):
    release(stays, ledger=ledger, **ABOUT)
    before = held(ledger)
    monkeypatch.setattr(tables.Files, "blocks", lambda *_: pytest.fail("a row was read"))
    words = ["release", "--data", stays, *WORDS, "--ledger", ledger, "--out", tmp_path / "out"]
    code, stdout, stderr = call(capfd, *words)
    assert (code, stdout) == (1, "")
    assert "Nothing was spent" in stderr
    assert not (tmp_path / "out").exists()
    assert held(ledger) == before
    dry = call(capfd, *words, "--dry-run")
    assert dry[0] == 0
    assert held(ledger) == before


def test_a_repeated_release_shows_the_stored_answer_and_spends_nothing(stays, ledger, tmp_path, capfd):
    words = ["release", "--data", stays, *WORDS, "--ledger", ledger, "--out", tmp_path / "out", "--csv"]
    first = call(capfd, *words)
    spent = held(ledger)
    stays.write_text("patient,ward,days\n" + "".join(f"q{i},A,1\n" for i in range(500)))
    again = call(capfd, *words)
    assert again[:2] == first[:2]
    assert "nothing was spent" in again[2]
    assert held(ledger) == spent
    code, _, stderr = call(capfd, *words, "--fresh")
    assert code == 1, "fresh noise is a second release, for which there is no room"
    assert "refused" in stderr


@pytest.mark.parametrize("flags", [["--max-eps", "3"], ["--total"]])
def test_flags_of_ledger_files_are_refused_before_anything_is_spent(stays, ledger, tmp_path, capfd, flags):
    before = held(ledger)
    code, _, stderr = call(
        capfd, "release", "--data", stays, *WORDS, "--ledger", ledger, "--out", tmp_path / "o", *flags
    )
    assert code == 2
    assert "ledger" in stderr
    assert held(ledger) == before


def test_what_a_ledger_holds_is_what_was_drawn(stays, tmp_path, capfd):
    """Discrete noise, leaks and quantiles go in as they are, and come out as a history of the calculator."""
    url = f"sqlite:///{tmp_path / 'large.db'}"
    Ledger.create(url, eps=9, delta=1e-3).close()
    keys = {"by": "ward", "keys": "unknown", "max_groups": 2, "max_rows": 1, "person": "patient", "delta": 1e-6}
    outputs = [Count(), Sum("days", 0, 60), Quantile("days", 0, 60), BinCounts("days", (0, 7, 60))]
    rows = [
        release(stays, outputs=asked, eps=1, noise=noise, ledger=url, **keys)
        for asked, noise in ((outputs, "laplace"), ([Count()], "gauss"))
    ]
    call(capfd, "ledger", "export", url, "--out", tmp_path / "h.json")
    history = budget(history=tmp_path / "h.json", delta=1e-5).process
    drawn = rows[0].guarantee.process + rows[1].guarantee.process
    assert numbers_of(history) == numbers_of(drawn)
    assert {step["mech"] for step in history.describe()} == {
        "discrete-laplace",
        "discrete-gauss",
        "exponential",
        "dp",
    }


def numbers_of(process):
    """How often each mechanism ran."""
    numbers = {}
    for step in process.describe():
        about = tuple(sorted((name, value) for name, value in step.items() if name != "n"))
        numbers[about] = numbers.get(about, 0) + step["n"]
    return numbers
