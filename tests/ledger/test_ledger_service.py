"""The ledger as services use it, on both databases: it refuses, repeats nothing, and loses nothing."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import signal
import sqlite3
import time

import pytest

from tests.ledger.conftest import created
from wpriv import Gauss, Step
from wpriv.errors import CheckFailed, MissingResource, UsageError
from wpriv.ledger import store
from wpriv.ledger.charter import charter
from wpriv.ledger.filters import UNITS, Limit
from wpriv.ledger.reading import import_entries
from wpriv.ledger.service import Ledger, Refused
from wpriv.ledger.store import Store

# a process that is forked has what it needs loaded; no connection is open then
FORK = multiprocessing.get_context("fork")


def amount(ledger: Ledger, name: str = "T") -> float:
    """What is booked in an account of the first limit."""
    return next(account.amount for account in ledger.status(fixed=False).accounts if account.name == name)


def test_it_admits_560_gaussian_releases_and_refuses_one_more(url):
    with created(url, rule="gauss") as ledger:
        assert ledger.spend("gauss sigma=100 n=559").state == "begun"
        with pytest.raises(Refused, match="scope all") as refusal:
            ledger.spend("gauss sigma=100 n=2")
        assert (refusal.value.scope, refusal.value.fits) == ("all", 1)
        ledger.spend(Step(Gauss(sigma=100)))
        with pytest.raises(Refused):
            ledger.spend(Gauss(sigma=100))
        assert ledger.fits("gauss sigma=100") == 0
        assert ledger.check() != []


@pytest.mark.parametrize(
    ("what", "fits"),
    [
        ("laplace scale=20", 22),
        ("gauss sigma=100", 559),
        pytest.param("gauss sigma=1 poisson 0.01", 19, marks=pytest.mark.nightly),
    ],
)
def test_what_still_fits_does_in_one_release_and_one_more_does_not(tmp_path, what, fits):
    with created(f"sqlite:///{tmp_path}/b.db") as ledger:
        assert ledger.fits(what) == fits
        with pytest.raises(Refused, match=f"room for {fits} of its {fits + 1} releases"):
            ledger.spend(f"{what} n={fits + 1}")
        ledger.spend(f"{what} n={fits}")
        assert ledger.fits(what) == 0
        ledger.check()


def test_twenty_one_releases_fit_one_by_one_by_their_floors(tmp_path):
    with created(f"sqlite:///{tmp_path}/b.db") as ledger:
        for _ in range(21):
            ledger.spend("laplace scale=20")
        assert ledger.fits("laplace scale=20") == 0


def test_the_fifty_first_leak_is_refused_by_a(tmp_path):
    with created(f"sqlite:///{tmp_path}/b.db", leaks=5e-8) as ledger:
        ledger.spend("dp eps0=0 delta0=1e-9 n=50")
        assert [account.left for account in ledger.status(fixed=False).accounts] == [1.0, 0.0]
        with pytest.raises(Refused, match="0% of A left"):
            ledger.spend("dp eps0=0 delta0=1e-9")


def test_a_cancelled_reservation_makes_room(url):
    with created(url, rule="gauss") as ledger:
        first = ledger.reserve("gauss sigma=100")
        ledger.reserve("gauss sigma=100 n=559")
        with pytest.raises(Refused):
            ledger.spend("gauss sigma=100")
        assert ledger.cancel(first.release).state == "cancelled"
        begun = ledger.spend("gauss sigma=100")
        with pytest.raises(CheckFailed, match="nothing that began is refunded"):
            ledger.cancel(begun.release)
        ledger.check()


def test_a_pending_reservation_is_booked_again_at_a_lower_floor(url):
    with created(url, leaks=2e-8) as ledger:
        held = ledger.reserve("laplace scale=20")
        assert amount(ledger) == pytest.approx(2.497e-3, rel=2e-3)
        ledger.spend("gauss sigma=100 n=300")
        assert amount(ledger) - 0.03 == pytest.approx(2.531e-3, rel=2e-3)  # the floor T/4
        ledger.begin(held.release)
        ledger.spend("gauss sigma=100 n=150")
        assert amount(ledger) - 0.045 == pytest.approx(2.531e-3, rel=2e-3)  # what began keeps its charge
        ledger.check()


def test_a_key_is_spent_once_and_names_one_release(url):
    with created(url, rule="gauss") as ledger:
        first = ledger.spend("gauss sigma=100 n=10", key="july")
        again = ledger.spend("gauss sigma=100 n=10", key="july")
        assert (again.release, again.repeated, first.repeated) == (first.release, True, False)
        assert amount(ledger) == pytest.approx(1e-3)
        for other in ("gauss sigma=101 n=10", "gauss sigma=100 n=11"):
            with pytest.raises(UsageError, match="another release"):
                ledger.spend(other, key="july")
        with pytest.raises(UsageError, match="another release"):
            ledger.reserve("gauss sigma=100 n=10", key="july")


def test_a_reservation_begins_once_and_for_its_holder_again(url):
    with created(url) as ledger:
        ledger.reserve("laplace scale=20", key="august")
        assert ledger.begin("august", "secret").state == "begun"
        assert ledger.begin("august", "secret").repeated
        for nonce in ("guessed", None):
            with pytest.raises(CheckFailed, match="must not be read"):
                ledger.begin("august", nonce)
        assert ledger.done("august").state == "done"
        ledger.check()


def test_a_reservation_that_has_expired_gives_its_charge_back(url):
    with created(url, rule="gauss") as ledger:
        ledger.reserve("gauss sigma=100 n=560", key="slow", expires=0.05)
        time.sleep(0.1)
        assert ledger.spend("gauss sigma=100 n=560").state == "begun"
        with pytest.raises(CheckFailed, match="is expired"):
            ledger.begin("slow")
        ledger.check()


def test_a_clock_that_goes_back_ends_no_reservation_and_no_entry_is_earlier_than_the_one_before(tmp_path, monkeypatch):
    with created(f"sqlite:///{tmp_path}/b.db") as ledger:
        ledger.reserve("laplace scale=20", key="a", expires=3600)
        monkeypatch.setitem(store._NOW, "sqlite", "SELECT '2001-01-01T00:00:00.000Z'")
        ledger.spend("gauss sigma=100")
        ledger.begin("a")
        monkeypatch.undo()
        with ledger.store.transaction(write=False) as connection:
            times = [entry.time for entry in ledger.store.entries(connection)]
        assert times == sorted(times)
        assert times[0] > "2020"
        ledger.check()


def test_a_block_and_a_function_spend_before_they_run(url):
    with created(url, rule="gauss") as ledger:
        with ledger.release("gauss sigma=100", key="block") as receipt:
            assert receipt.state == "begun"
        with pytest.raises(CheckFailed, match="take a new key"), ledger.release("gauss sigma=100", key="block"):
            pass

        @ledger.spends("gauss sigma=100 n=300", actor="service")
        def answer(value: int) -> int:
            """What a service computes."""
            if value < 0:
                raise ValueError(value)
            return value

        with pytest.raises(ValueError, match="-1"):
            answer(-1)
        with pytest.raises(Refused):
            answer(1)
        assert answer.__doc__ == "What a service computes."
        assert ledger.status(fixed=False).states == {"done": 1, "lost": 1}


def test_scopes_and_partitions_book_the_largest_part(tmp_path):
    cases = [
        ({"partitions": ["all:region=a,b,c"]}, ["all:region=a", "all:region=b", "all:region=c", "all"], 0.02),
        (
            {"partitions": ["all:region=a,b,c"], "adjacency": "replace-one"},
            ["all:region=a", "all:region=b", "all:region=c", "all"],
            0.03,
        ),
        ({"partitions": ["all:region=a,b,c;k=2"]}, ["all:region=a", "all:region=b", "all:region=c", "all"], 0.03),
        (
            {"partitions": ["all:region=a,b;fixed"], "adjacency": "replace-one"},
            ["all:region=a", "all:region=b"],
            0.01,
        ),
        ({"partitions": ["all:region=a,b", "all:age=old,young"]}, ["all:region=a", "all:age=old"], 0.02),
        ({"scopes": ["sales", "sales/orders", "people"]}, ["sales/orders", "people"], 0.02),
    ]
    for number, (terms, places, booked) in enumerate(cases):
        with created(f"sqlite:///{tmp_path}/{number}.db", rule="gauss", **terms) as ledger:
            for place in places:
                ledger.spend("gauss sigma=100 n=100", scope=place)
            assert amount(ledger) == pytest.approx(booked, rel=1e-9)
            ledger.check()


def test_the_scope_that_refuses_is_named(tmp_path):
    scopes = ["sales:eps=0.5,delta=1e-7", "people"]
    with created(f"sqlite:///{tmp_path}/b.db", rule="gauss", scopes=scopes) as ledger:
        with pytest.raises(Refused, match="scope sales") as refusal:
            ledger.spend("gauss sigma=100 n=200", scope="sales")
        ledger.spend(f"gauss sigma=100 n={refusal.value.fits}", scope="sales")
        ledger.spend("gauss sigma=100 n=200", scope="people")
        with pytest.raises(Refused, match="scope all"):
            ledger.spend("gauss sigma=100 n=300", scope="people")
        with pytest.raises(UsageError, match="did you mean 'sales'"):
            ledger.spend("gauss sigma=100", scope="sale")


def test_a_declared_plan_is_paid_for_once(tmp_path):
    plan = "gauss sigma=10 n=2"
    with created(f"sqlite:///{tmp_path}/b.db", leaks=0, plan=plan) as ledger:
        account = ledger.status(fixed=False).accounts[0]
        assert account.size == pytest.approx(0.05602896 - 0.02, rel=1e-3)
        ledger.spend("gauss sigma=10 n=1", planned=True)
        with pytest.raises(Refused, match="1 of these steps left"):
            ledger.spend("gauss sigma=10 n=2", planned=True)
        ledger.spend("gauss sigma=10 n=1", planned=True)
        assert amount(ledger) == 0
        ledger.check()


def test_several_limits_hold_at_once(tmp_path):
    limits = ["eps=3,delta=1e-10", "mu=0.2"]
    with created(f"sqlite:///{tmp_path}/b.db", limits=limits) as ledger:
        assert ledger.fits("gauss sigma=100") == 400
        ledger.spend("gauss sigma=100 n=400")
        with pytest.raises(Refused, match="-GDP"):
            ledger.spend("gauss sigma=1000")


def test_a_limit_falls_and_rises_to_the_ceiling_that_was_promised_from_the_start(url):
    with created(url, rule="gauss", ceiling="eps=3,delta=1e-6") as ledger:
        assert "is (3, 1e-6)-DP" in ledger.status(fixed=False).promises[0]
        assert ledger.fits("gauss sigma=100") == 560  # that of (1, 1e-6), in the accounts of (3, 1e-6)
        ledger.spend("gauss sigma=100 n=300")
        assert ledger.limit(Limit(0.5, 1e-6), actor="me", reason="audit") == Limit(1.0, 1e-6)
        with pytest.raises(Refused, match=r"its limit \(0.5, 1e-6\)-DP has 0% of T left"):
            ledger.spend("gauss sigma=100")
        with pytest.raises(Refused, match="promised from the start"):
            ledger.limit(Limit(3.0, 1.1e-6))
        ledger.limit(Limit(3.0, 1e-6))
        assert ledger.fits("gauss sigma=100") == 4195 - 300  # T of (3, 1e-6) is .41954966
        ledger.limit(Limit(0.5, 1e-7))
        ledger.check()
        assert ledger.status(fixed=False).limits == (("all", Limit(0.5, 1e-7), Limit(3.0, 1e-6)),)


@pytest.mark.parametrize(
    "rule", ["rdp", "basic", *(pytest.param(rule, marks=pytest.mark.nightly) for rule in ("residue", "union"))]
)
def test_a_lower_limit_admits_what_a_ledger_of_that_limit_does_or_a_little_less(tmp_path, rule):
    what = "laplace scale=100"
    with (
        created(f"sqlite:///{tmp_path}/a.db", rule=rule) as plain,
        created(f"sqlite:///{tmp_path}/b.db", rule=rule, ceiling="eps=2,delta=1e-5") as lower,
    ):
        right, fits = plain.fits(what), lower.fits(what)
        assert right is not None
        assert fits is not None
        assert 0.9 * right <= fits <= 1.02 * right
        lower.spend(f"{what} n={fits}")
        lower.limit(Limit(2.0, 1e-5))
        assert lower.fits(what)
        lower.check()


def test_a_limit_that_falls_closes_no_filter_of_a_union_for_good(tmp_path):
    with created(f"sqlite:///{tmp_path}/b.db", rule="union") as ledger:
        ledger.limit(Limit(0.01, 1e-6))
        with pytest.raises(Refused):
            ledger.spend("gauss sigma=10")
        ledger.limit(Limit(1.0, 1e-6))
        ledger.spend("gauss sigma=10")
        assert not any(account.closed for account in ledger.status(fixed=False).accounts)


def test_limits_of_scopes_rise_by_name_and_travel_with_the_entries(tmp_path):
    terms = {"scopes": ["sales:eps=0.5,delta=1e-7 up to eps=1,delta=1e-6;mu=0.1"], "limits": ["eps=2,delta=1e-9"]}
    with created(f"sqlite:///{tmp_path}/b.db", rule="gauss", **terms) as ledger:
        ledger.limit(Limit(0.7, 1e-7), scope="sales")
        ledger.limit(Limit(mu=0.05), scope="sales")
        with pytest.raises(UsageError, match="say by `of` which one"):
            ledger.limit(Limit(0.5, 1e-9))
        ledger.limit(Limit(0.5, 1e-9), of=Limit(2.0, 1e-9))
        status = ledger.status(fixed=False)
        ledger.export(tmp_path / "e.jsonl")
    import_entries(f"sqlite:///{tmp_path}/c.db", tmp_path / "e.jsonl")
    with Ledger(f"sqlite:///{tmp_path}/c.db") as copy:
        assert copy.status(fixed=False) == status
        assert [limit for _, limit, _ in status.limits] == [Limit(0.5, 1e-9), Limit(0.7, 1e-7), Limit(mu=0.05)]
        copy.check()


@pytest.mark.parametrize(
    ("ceiling", "words"),
    [
        ("eps=0.5,delta=1e-6", "at most that"),
        ("rho=1", "at most that"),
        ("eps=2", "`eps` with `delta`"),
        ("2", "written"),
    ],
)
def test_a_ceiling_is_a_limit_above_the_first_one(tmp_path, ceiling, words):
    with pytest.raises(UsageError, match=words):
        created(f"sqlite:///{tmp_path}/b.db", ceiling=ceiling)


def test_a_union_goes_on_while_one_filter_holds(tmp_path):
    with created(f"sqlite:///{tmp_path}/b.db", rule="union") as ledger:
        while ledger.fits("gauss sigma=20"):
            ledger.spend("gauss sigma=20")
        closed = [account.closed for account in ledger.status(fixed=False).accounts]
        assert closed == [True, True, False, False]
        ledger.check()


def spend_often(url: str, count: int, queue: object) -> None:
    """What one of several writers does."""
    fits = 0
    with Ledger(url) as ledger:
        for _ in range(count):
            try:
                ledger.spend("dp eps0=0.05 delta0=0")
                fits += 1
            except Refused:
                pass
    queue.put(fits)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_four_writers_spend_exactly_the_limit(url):
    created(url, rule="basic").close()
    queue = FORK.Queue()
    writers = [FORK.Process(target=spend_often, args=(url, 6, queue)) for _ in range(4)]
    for writer in writers:
        writer.start()
    counts = [queue.get(timeout=600) for _ in writers]
    for writer in writers:
        writer.join()
    assert sum(counts) == 20
    with Ledger(url) as ledger:
        assert len(ledger.check()) == 20
        assert ledger.status(fixed=False).accounts[0].booked == UNITS
        with ledger.store.transaction(write=False) as connection:
            assert len({entry.prev for entry in ledger.store.entries(connection)}) == 21


def test_without_the_lock_two_writers_both_get_the_last_place(tmp_path):
    """The control: what the lock is for."""
    with created(f"sqlite:///{tmp_path}/b.db", rule="basic") as ledger, Ledger(ledger.store.url) as other:
        ledger.spend("dp eps0=0.9 delta0=0")
        decisions = []
        for each in (ledger, other):
            with each.store.transaction(write=False) as connection:
                books = each.store.books(connection, each.charter.tree)
            decisions.append(books.admit("new", next(iter(books.amounts[0, 0, 0])), lambda *_: (UNITS // 10, 0)))
        assert all(isinstance(decision, list) for decision in decisions)
        ledger.spend("dp eps0=0.1 delta0=0")
        with pytest.raises(Refused):
            other.spend("dp eps0=0.1 delta0=0")


def die_at(url: str, point: str) -> None:
    """Reserve and begin one release in a process that dies at a point."""
    die = functools.partial(os.kill, os.getpid(), signal.SIGKILL)
    if point in ("append", "write_books", "write_charges"):
        setattr(Store, point, lambda *_, **__: die())
    ledger = Ledger(url)
    held = ledger.reserve("gauss sigma=100 n=10", key="k")
    if point == "after reserve":
        die()
    ledger.begin(held.release, "n")
    if point in ("while computing", "before done"):
        die()


def after_a_kill(url: str, point: str, state: str | None) -> None:
    """Kill a service at a point, and compare what the ledger holds then."""
    created(url, rule="gauss").close()
    service = FORK.Process(target=die_at, args=(url, point))
    service.start()
    service.join()
    assert service.exitcode == -signal.SIGKILL
    with Ledger(url) as ledger:
        remarks = ledger.check()
        states = ledger.status(fixed=False).states
        assert states == ({} if state is None else {state: 1})
        assert bool(remarks) == (state == "begun")
        assert amount(ledger) == pytest.approx(0.0 if state is None else 1e-3)
        again = ledger.reserve("gauss sigma=100 n=10", key="k")
        assert again.repeated == (state is not None)


@pytest.mark.slow
@pytest.mark.parametrize(("point", "state"), [("write_charges", None), ("while computing", "begun")])
def test_a_kill_loses_nothing_that_was_reported(url, point, state):
    after_a_kill(url, point, state)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "state"),
    [("append", None), ("write_books", None), ("after reserve", "reserved"), ("before done", "begun")],
)
def test_a_kill_anywhere_on_sqlite_loses_nothing_that_was_reported(tmp_path, point, state):
    after_a_kill(f"sqlite:///{tmp_path}/b.db", point, state)


@pytest.mark.parametrize("text", ["a\0b", "\udcff", "k" * 501])
@pytest.mark.parametrize("name", ["key", "actor", "reason"])
def test_texts_that_no_database_keeps_are_refused(tmp_path, name, text):
    with created(f"sqlite:///{tmp_path}/b.db") as ledger, pytest.raises(UsageError, match=f"`{name}` is a text"):
        ledger.spend("gauss sigma=100", **{name: text})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda ledger: ledger.spend("gauss sigma=100", key=5), "`key` is a text"),
        (lambda ledger: ledger.spend("gauss sigma=100", scope=None), "a scope is a text"),
        (lambda ledger: ledger.reserve("gauss sigma=100", expires="soon"), "expires must be a number"),
        (lambda ledger: ledger.begin(2), "`release` is a text"),
        (lambda ledger: ledger.begin("2", nonce=5), "`nonce` is a text"),
        (lambda ledger: ledger.limit((1, 1e-6)), "`limit` is a Limit"),
        (lambda ledger: ledger.check(5), "`head` is a text"),
        (lambda ledger: charter(eps=1, delta=1e-6, scopes="sales"), "`scopes` is a list of texts"),
        (lambda ledger: charter(eps=1, delta=1e-6, limits=[5]), "`limits` is a list of texts"),
        (lambda ledger: charter(eps=1, delta=1e-6, ceiling=3), "a limit is written"),
        (lambda ledger: charter(eps=1, delta=1e-6, kappa="much"), "kappa must be a number"),
    ],
)
def test_arguments_of_other_types_are_refused_by_name(tmp_path, call, words):
    with created(f"sqlite:///{tmp_path}/b.db", rule="gauss") as ledger:
        head = ledger.head()
        with pytest.raises(UsageError, match=words):
            call(ledger)
        assert ledger.head() == head


def test_names_of_any_letters_are_kept_as_they_are(tmp_path):
    terms = {"scopes": ["продажи", "продажи/日本"], "partitions": ["all:region=a b,<b>s</b>,c:d"]}
    with created(f"sqlite:///{tmp_path}/b.db", **terms) as ledger:
        for place in ("all:region=a b", "all:region=<b>s</b>", "all:region=c:d", "продажи/日本"):
            ledger.spend("gauss sigma=100", scope=place, key=f"ключ {place}", actor="<script>")
            assert ledger.spend("gauss sigma=100", scope=place, key=f"ключ {place}").repeated
        ledger.check()


def test_a_release_of_which_nearly_all_losses_are_infinite_is_charged_to_a(tmp_path):
    with created(f"sqlite:///{tmp_path}/b.db") as ledger:
        ledger.spend("gauss sigma=0.001 poisson 1e-12 n=100")
        left = {account.name: account.left for account in ledger.status(fixed=False).accounts}
        assert left["T"] > 1 - 1e-6
        assert left["A"] == pytest.approx(1 - 1e-10 / 2e-8, rel=1e-3)


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("b.db", UsageError, "named by a URL"),
        ("postgresql://me:secret@host:port/x", UsageError, r"me:\*\*\*@host"),
        ("postgres//me:secret@host/x", UsageError, r"me:\*\*\*@host"),
        ("sqlite:///b.db?mode=ro", UsageError, "its file alone"),
        ("sqlite://", UsageError, "outlive"),
        ("mysql://x/y", UsageError, "SQLite or PostgreSQL"),
        ("sqlite:////no/such/b.db", MissingResource, "ledger init"),
    ],
)
def test_a_url_that_is_no_ledger_is_refused(url, error, words):
    with pytest.raises(error, match=words):
        Ledger(url)


def test_a_database_of_something_else_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "b.db") as connection:
        connection.execute("CREATE TABLE other (x)")
    with pytest.raises(UsageError, match="holds no ledger"):
        Ledger(f"sqlite:///{tmp_path}/b.db")
    (tmp_path / "c.db").write_text("text")
    with pytest.raises(MissingResource, match="not a database"):
        Ledger(f"sqlite:///{tmp_path}/c.db")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("gauss sigma=1 adjacency=replace-one", "add-remove neighbours"),
        ("gauss sigma=1 group=2", "groups of 1"),
        (3, "int"),
    ],
)
def test_a_release_for_other_neighbours_is_refused(tmp_path, what, words):
    with created(f"sqlite:///{tmp_path}/b.db") as ledger, pytest.raises(UsageError, match=words):
        ledger.spend(what)


def test_the_body_of_an_entry_says_what_was_charged(tmp_path):
    with created(f"sqlite:///{tmp_path}/b.db") as ledger:
        ledger.spend("laplace scale=20", actor="me", reason="report")
        ledger.export(tmp_path / "e.jsonl")
    row = json.loads((tmp_path / "e.jsonl").read_text().splitlines()[1])
    assert (row["actor"], row["reason"], row["kind"]) == ("me", "report", "spend")
    (booking,) = json.loads(row["body"])["bookings"]
    assert booking["tier"] == 0
    assert booking["amounts"][0] == pytest.approx(2.497e-3 / 0.0559190 * UNITS, rel=2e-3)
