"""Attacks on released numbers, each on a naive version, which it breaks, and on ``release``, which it does not."""

from __future__ import annotations

import csv
import datetime
import io
import itertools
import json
import math
import sqlite3
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from tests.command_line import call
from tests.releases import plans
from wpriv import BinCounts, Count, Mean, Quantile, Sum, randomness, release
from wpriv.accounting import evaluate, ledger
from wpriv.accounting.mechanisms.laplace_threshold import LaplaceThreshold
from wpriv.core.process import Process, Step
from wpriv.errors import UsageError
from wpriv.releases import aggregate, noise_plan, plan, sampling, tables
from wpriv.releases.noise_plan import Budget
from wpriv.releases.outputs import Limits
from wpriv.releases.plan import Question
from wpriv.releases.sampling import Noise

PURE = {"person": "id", "eps": 1, "delta": 0}
KEY = bytes(range(32))


@pytest.fixture(autouse=True)
def remembered(monkeypatch):
    plans.remember(monkeypatch)


def values(result):
    return [row["value"] for row in result.rows]


def sum_of(cells, *, people=None, hi=10, **more):
    """The sum of bounded cells, one for each person."""
    table = {"id": list(people or range(len(cells))), "x": list(cells)}
    return release(table, outputs=[Sum("x", 0, hi)], max_rows=1, **{**PURE, **more}).rows[0]["value"]


def written(path, rows, header=("id", "key", "x")):
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        csv.writer(file).writerows([header, *rows])
    return path


# floats


def test_low_bits_do_not_show_the_value():
    """Mironov 2012: doubles near 0 are finer than near 1, so that noise off the grid of 1 excludes the value 1."""

    def off_grid(numbers):
        scaled = np.ldexp(numbers, 53)
        return np.mean(scaled != np.rint(scaled))

    noise = np.random.default_rng(7).laplace(0, 1, 20_000)
    assert off_grid(noise) > 0.25
    assert off_grid(1 + noise) == 0
    about = (0, 1, "2^-8")
    outputs = [Count(), Count("rows"), BinCounts("x", (0, 1))] + [kind("x", *about) for kind in (Sum, Mean, Quantile)]
    for cells in ([0.0] * 10, [0.0] * 9 + [1.0], [0.1] * 10):
        table = {"id": list(range(10)), "x": cells}
        for row in release(table, outputs=outputs, max_rows=1, max_groups=1, **PURE).rows:
            numbers = row["parts"].values() if row["kind"] == "mean" else [row["value"]]
            step = 1 if row["grid"] is None or row["kind"] == "mean" else Fraction(row["grid"])
            assert all((Fraction(number) / step).denominator == 1 for number in numbers)
            assert not isinstance(row["value"], float)


def test_the_order_of_rows_does_not_move_a_sum(tmp_path, noiseless):
    """float32, values in [0, 4096]: one person of 4096 more moves a sequential sum by 6144."""
    small, large = ["1.001"] * 2048, ["4096"] * 4096

    def naive(cells):
        return float(np.cumsum(np.array(cells, np.float32))[-1])

    assert naive(large + small) - naive(large[1:] + small) == 6144
    both, one_less = sum_of(large + small, hi=4096), sum_of(large[1:] + small, hi=4096)
    assert both - one_less == 4096
    assert both == sum_of(small + large, hi=4096)


def test_any_order_and_any_files_give_the_same_bytes(tmp_path):
    rng = np.random.default_rng(3)
    rows = [(f"p{rng.integers(9)}", "ABC"[rng.integers(3)], f"{rng.normal():.4f}") for _ in range(60)]
    outputs = [Count(), Count("rows"), Sum("x", -2, 2, ".01"), Quantile("x", -2, 2, at=(0.25, 0.5))]
    about = {**PURE, "outputs": outputs, "by": "key", "keys": ["A", "B"], "max_groups": 1, "max_rows": 2, "seed": 4}
    first = release(written(tmp_path / "t.csv", rows), **about).rows
    for seed in range(3):
        mixed = [rows[place] for place in np.random.default_rng(seed).permutation(60)]
        files = [written(tmp_path / f"{part}.csv", mixed[part * 25 : part * 25 + 25]) for part in range(3)]
        assert release(files, **about).rows == first


def test_no_float_mean_is_subtracted(noiseless):
    """1024 values of [2^50, 2^50 + 1]: one more changes the squared deviations by at most 1, in floats by 64."""
    m = 2.0**50
    one, other = np.full(1024, m + 0.25), np.array([m] + [m + 0.25] * 1024)

    def naive(cells):
        return float(((cells - np.cumsum(cells)[-1] / len(cells)) ** 2).sum())

    assert abs(naive(one) - naive(other)) > 60
    lo, hi = 2**50, 2**50 + 1
    about = {"outputs": [Mean("x", lo, hi)], "max_rows": 1, **PURE}
    parts = [
        release({"id": list(range(len(cells))), "x": cells}, **about).rows[0]["parts"]
        for cells in ([lo] * 1024 + [hi] * 1024, [lo] * 1024 + [hi] * 1023)
    ]
    assert [abs(parts[0][name] - parts[1][name]) for name in ("count", "sum")] in ([1, 0], [1, 1])


def test_sums_do_not_wrap_around(noiseless):
    assert int(np.sum(np.array([2**62] * 2))) == -(2**63)
    assert sum_of([2**47] * 65536, hi="2^47", delta=1e-6) == 2**63
    assert sum_of([10**300, float("inf"), "1e400", 2**70], hi="2^47", delta=1e-6) == 4 * 2**47


# cells

CELLS = [
    "oops", "nan", "NaN", "sNaN", "-nan", "inf", "-inf", "1e999999999", "1e99999999999999999999", "0e999999999",
    "1e-999999999", "9" * 5000, "", " ", "1_0", "0x1F", "1,5", "\x00", "\ud800", "٣", "None", "True", "1" + "0" * 400,
]  # fmt: skip
OBJECTS = [
    None, float("nan"), float("inf"), -float("inf"), 1e308, 5e-324, -0.0, True, 10**5000, -(10**5000), Decimal("sNaN"),
    Decimal("NaN"), Decimal("1e999999"), Decimal("-Infinity"), (1,), [1], {}, b"5", 1j, object(), datetime.date.max,
    datetime.datetime.now(datetime.UTC), np.float32("nan"), np.uint64(2**64 - 1), np.longdouble(3), np.array([1, 2]),
    np.datetime64("NaT"), np.str_("5"), np.bytes_(b"5"),
]  # fmt: skip


class Hostile:
    """A cell that cannot be compared, hashed, or shown."""

    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError("a cell")

    def __repr__(self):
        raise RuntimeError("a cell")


def test_naive_sums_break_on_one_cell():
    assert math.isnan(np.sum(np.array([5.0] * 10 + [np.nan])))
    with pytest.raises(ValueError, match="oops"):  # the message shows the cell
        np.array([5.0, "oops"]).astype(float)
    assert sum(map(int, ["5", "5"])) == 10
    with pytest.raises(ValueError, match="limit"):
        int("9" * 5000)


@pytest.mark.parametrize("cell", [*CELLS, *OBJECTS, Hostile()], ids=lambda cell: type(cell).__name__)
def test_one_cell_moves_a_sum_by_no_more_than_the_bound(noiseless, cell):
    for distinct in (False, True):
        with_it = sum_of([5] * 10 + [cell], distinct=distinct)
        assert abs(with_it - sum_of([5] * 10 + [5], distinct=distinct)) <= 5
        assert with_it - 50 in range(11)


@pytest.mark.parametrize("cell", [*CELLS, *OBJECTS, Hostile()], ids=lambda cell: type(cell).__name__)
def test_one_cell_as_person_key_or_date_raises_nothing(noiseless, cell):
    table = {"id": ["p", cell, "q"], "key": ["A", cell, cell], "x": ["2026-01-05", cell, cell]}
    outputs = [Count(), BinCounts("x", ("2026-01-01", "2026-02-01"), dates=True), Count("rows", overall=True)]
    about = {**PURE, "outputs": outputs, "by": "key", "max_groups": 2, "max_rows": 2, "normalise": ["nfc", "strip"]}
    known = release(table, keys=["A"], other="rest", distinct=True, **about)
    assert float(known["persons", "A"]) == 1
    assert release(table, keys="unknown", noise="laplace", **{**about, "delta": 1e-6}).answer["keys"]["threshold"] > 1


def test_cells_of_files_move_sums_by_no_more_than_the_bound(tmp_path, noiseless):
    texts = [cell for cell in CELLS if cell != "\ud800"]
    for cell in texts:
        rows = [(f"p{i}", "A", "5") for i in range(10)] + [("new", cell, cell)]
        result = release(written(tmp_path / "t.csv", rows), outputs=[Sum("x", 0, 10), Count()], max_rows=1, **PURE)
        assert values(result)[0] - 50 in range(11)
        assert values(result)[1] == 11


def test_types_of_a_frame_that_one_cell_changes_are_seen_nowhere(tmp_path):
    """A cell of text makes text of a column of pandas, an empty one floats: neither noise nor statement may follow."""
    pandas = pytest.importorskip("pandas")
    frames = [pandas.read_csv(io.StringIO(f"id,x\n1,1\n2,2\n3,{cell}\n")) for cell in ("4", "oops", "")]
    assert len({str(frame["x"].dtype) for frame in frames}) == 3
    shown = []
    for place, frame in enumerate(frames):
        out = tmp_path / str(place)
        (row,) = release(frame, outputs=[Sum("x", 0, 5)], max_rows=1, out=out, **PURE).rows
        statement = json.loads((out / "statement.json").read_text())
        shown.append([*(row[name] for name in ("grid", "standard_error", "half_width", "noise")), statement["data"]])
    assert shown[0] == shown[1] == shown[2]


def test_how_a_column_is_stored_changes_no_contribution(noiseless):
    """One cell of text makes objects of an array of integers; doubles would round those of everybody else."""
    cells = [2**60 + 2**19 + 1, 2**60 + 2**19 - 1, 2**61 + 1, 7, 2**62 - 1]
    people, about = {"id": list(range(5))}, {"max_rows": 1, **PURE, "delta": 1e-6}
    stored = [np.array(cells), cells, [*map(str, cells)], np.array(cells, object), np.array(cells, np.uint64)]
    for output in (Sum("x", 0, 2**60 * 4, 2**20), BinCounts("x", (0, 2**60 + 2**19, 2**60 + 2**19 + 1, 2**62))):
        seen = [values(release({**people, "x": x}, outputs=[output], max_groups=1, **about)) for x in stored]
        assert all(each == seen[0] for each in seen)


ARRAYS = [
    np.array([1, np.longdouble("1e4000"), np.nan, -np.inf], np.longdouble),
    np.array([1.7e308, np.inf, np.nan, 5e-324]), np.array([1e38, np.inf, np.nan, -0.0], np.float32),
    np.array([1, np.inf, np.nan, 0], np.float16), np.array([2**64 - 1, 0, 2**63, 1], np.uint64),
    np.array([-(2**63), 2**63 - 1, 0, 1]), np.array([True, False] * 2), np.array([1, 2, 3, 4], "m8[s]"),
    np.array(["NaT", "2026-01-02", "1677-09-22", "2262-04-11"], "M8[ns]"),
    np.array(["NaT", "2026", "-9999", "290000"], "M8[Y]"), np.array([b"1", b"\xff", b"", b"x"]),
    np.array(["1", "nan", "", "x"]), np.array([1j] * 4), np.zeros(4, "V3"), np.zeros(4, [("a", "i4")]),
    np.array([None, [1], {}, np.nan], object),
]  # fmt: skip


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.dtype))
def test_no_array_raises_or_warns(array, recwarn):
    """A warning of numpy goes to standard error, and says that some cell is too large."""
    table = {"id": list(range(4)), "x": array}
    for dates, ends in ((False, (-10, 60)), (True, ("2026-01-01", "2026-12-31"))):
        outputs = [Mean("x", *ends, dates=dates), Quantile("x", *ends, dates=dates), BinCounts("x", ends, dates=dates)]
        assert len(values(release(table, outputs=outputs, max_rows=1, max_groups=1, distinct=True, **PURE))) == 3
    assert not recwarn.list


def test_dates_are_no_persons():
    """A date of a timestamp would make one person of all who came on a day."""
    days = np.array(["2026-01-01T08:00", "2026-01-01T09:00"], "M8[m]")
    with pytest.raises(UsageError, match="column of dates"):
        release({"id": days}, outputs=[Count()], **PURE)


def test_a_column_of_several_dimensions_is_refused_before_anything_is_spent(tmp_path):
    with pytest.raises(UsageError, match="one cell in a row"):
        release({"id": [1, 2], "x": np.zeros((2, 2))}, outputs=[Sum("x", 0, 5)], max_rows=1, out=tmp_path / "o", **PURE)
    assert not (tmp_path / "o").exists()


# errors


@pytest.mark.parametrize("ties", [3139, 3140, 40_000])
def test_a_quantile_is_drawn_whatever_ties_there_are(ties):
    """Weights e^(-eps k / 2) of doubles are all 0 from some number of ties on, and a draw fails."""
    points, rest = np.arange(1000), np.random.default_rng(0).integers(0, 1000, 200)
    cells = np.concatenate([np.full(ties, 65), rest])
    distances = np.array([abs((cells < y).sum() - (cells > y).sum()) for y in points if y != 65])
    assert (np.exp(-distances).sum() == 0) == (ties > 3000)
    table = {"id": list(range(len(cells))), "x": cells.tolist()}
    (row,) = release(table, outputs=[Quantile("x", 0, 999)], max_rows=1, **PURE).rows
    assert row["value"] == 65, "another point has a chance of at most 1000 e^(-ties / 2 + 100)"


def test_the_exit_code_is_that_of_the_plan_whatever_the_rows_are(tmp_path, capfd):
    bodies = [[], [("", "", "")], [("p", "A", "x")] * 3, [("é", "é", "inf")], [("\udcff", "\udcff", "\udcff")]]
    seen = set()
    for place, rows in enumerate(bodies):
        path = written(tmp_path / "t.csv", rows)
        words = ["release", "--data", path, "--person", "id", "--max-rows", "1", "--max-groups", "1", "--eps", "1"]
        words += ["--sum", "x", "--bounds", "x=0:60", "--by", "key", "--keys", "A", "--delta", "0"]
        code, _, stderr = call(capfd, *words, "--out", tmp_path / str(place))
        seen.add((code, stderr, len(list((tmp_path / str(place)).iterdir()))))
    assert len(seen) == 1
    assert seen.pop()[:2] == (0, "")


# keys


def test_a_key_of_one_person_does_not_show_that_the_person_is_there():
    """Case 19: P(released) at 1, 10, 23 and 30 persons: 5.82e-8, 7.377e-4, .453129, .937100; five standard errors.

    A group-by shows the rare key whenever the person is there.
    """
    people = [1, 10, 23, 30]
    names = [f"{size} {copy}" for size in people for copy in range(50)]
    cells = [name for name in names for _ in range(int(name.split()[0]))]
    assert "1 0" in set(cells)
    columns = {"id": list(range(len(cells))), "key": cells}
    question = Question("id", (Count(),), Limits(1), Budget(1.0, 1e-6), by="key", keys="unknown")
    planned = plan.plan(question, "t")
    assert planned.noise.threshold == 23
    shown = dict.fromkeys(people, 0)
    for seed in range(20):
        for number in aggregate.released(
            planned, tables.table(columns).blocks(["id", "key"]), randomness.key("release", seed)
        ):
            shown[int(str(number["key"]).split()[0])] += 1
    assert shown[1] == 0
    for size, chance in ((10, 7.377e-4), (23, 0.453129), (30, 0.937100)):
        assert abs(shown[size] - 1000 * chance) <= 5 * math.sqrt(1000 * chance * (1 - chance)) + 1
    noise = planned.noise.noises[0]
    exact = [noise.tail(24 - size) if size < 24 else 1 - noise.tail(size - 23) for size in people]
    assert exact == pytest.approx([5.82e-8, 7.377e-4, 0.453129, 0.937100], rel=1e-3)


def test_keys_are_values_whatever_others_have(noiseless):
    """Codes by order of appearance or of size move with the rows of others; also keys that look alike are different."""
    forms = ["A", "a", "A ", "é", "e\u0301", "7", "007", "7.0", "", "NULL", "=1+1", "\x1b[2J", "a\nb", "\udcff"]
    table = {"id": list(range(len(forms))), "key": forms}
    about = {**PURE, "outputs": [Count()], "by": "key", "max_groups": 1}
    for others in ([], ["zz", "0", "B"] * 5):
        more = {
            name: [*cells, *(others if name == "key" else range(100, 100 + len(others)))]
            for name, cells in table.items()
        }
        assert values(release(more, keys=forms, **about)) == [1] * len(forms)
        normal = {"keys": ["A", "e\u0301", "7"], "normalise": ["nfc", "strip", "casefold"]}
        assert values(release(more, **normal, **about)) == [3, 2, 1]


def test_unknown_keys_come_in_their_order_and_not_by_appearance(noiseless):
    sizes = {16: 30, 2: 40, 10: 50, -3: 20}
    for names in (list(sizes), list(sizes)[::-1]):
        cells = [name for name in names for _ in range(sizes[name])]
        table = {"id": list(range(len(cells))), "key": cells}
        about = {**PURE, "delta": 1e-6, "by": "key", "keys": "unknown", "max_groups": 1, "noise": "laplace"}
        result = release(table, outputs=[Count()], **about)
        assert [(row["key"], row["value"]) for row in result.rows] == [("-3", 20), ("2", 40), ("10", 50), ("16", 30)]


def test_a_key_of_many_persons_neither_forges_lines_nor_controls_the_terminal(tmp_path, capfd):
    path = written(tmp_path / "t.csv", [(f"p{i}", "B  persons  7\n\x1b[2J\rA|", "1") for i in range(60)])
    words = ["release", "--data", path, "--person", "id", "--by", "key", "--keys", "unknown", "--max-groups", "1"]
    words += ["--count", "persons", "--eps", "1", "--delta", "1e-6", "--noise", "laplace", "--out", tmp_path / "out"]
    code, stdout, _ = call(capfd, *words)
    assert code == 0
    assert stdout.startswith("B  persons  7\\n\\x1b[2J\\rA|  persons  ")
    assert "\x1b" not in (tmp_path / "out" / "statement.md").read_text()
    assert json.loads((tmp_path / "out" / "release.json").read_text())["outputs"][0]["key"].endswith("\rA|")


@pytest.mark.parametrize("keys", ["unknown", ["A"], [7]])
def test_a_form_of_keys_that_does_not_exist_is_refused_whatever_the_keys_are(tmp_path, keys):
    """It was met at the first key of text, after the payment: the exit code told whether there was one."""
    out, about = tmp_path / "out", {**PURE, "delta": 1e-6, "noise": "laplace", "max_groups": 1}
    for cells in (["A"], [None], []):
        table = {"id": list(range(len(cells))), "key": cells}
        with pytest.raises(UsageError, match="no form of keys called 'casefod'; did you mean 'casefold'"):
            release(table, outputs=[Count()], by="key", keys=keys, normalise=["casefod"], out=out, **about)
    assert not out.exists()
    with pytest.raises(UsageError, match="needs `by`"):
        release({"id": [1]}, outputs=[Count()], normalise=["nfc"], **PURE)


def test_keys_that_no_cell_can_be_are_refused():
    with pytest.raises(UsageError, match=r"found 1\.5"):
        release({"id": [1], "key": [None]}, outputs=[Count()], by="key", keys=[1.5], max_groups=1, **PURE)


def test_a_key_of_one_person_alone_is_accounted_for_as_discrete_noise(tmp_path):
    """One key, DL(1), threshold 6, eps .5: truth .28765, stated .28894; the continuous mechanism would say .2212."""
    truth = 0.28765
    continuous = Process((Step(LaplaceThreshold(scale=1.0, threshold=6.0)),))
    assert evaluate.curve(continuous, "pld").at(eps=0.5).delta.safe < truth
    leak = Noise("laplace", 1.0).tail(6)
    (part,) = Count().parts(0, Limits(1), True)
    solved = noise_plan.solve([part], Budget(1.0, leak * 1.01, "laplace"), keys=0)
    assert (solved.threshold, solved.noises[0]) == (6, Noise("laplace", 1.0))
    stated = evaluate.curve(solved.process, "pld").at(eps=0.5).delta.safe
    assert truth < stated == pytest.approx(0.28894, abs=1e-5)
    table = written(tmp_path / "t.csv", [("p", "A", "1")])
    about = {"outputs": [Count()], "by": "key", "keys": "unknown", "max_groups": 2, "person": "id", "delta": 1e-6}
    for noise, name in (("gauss", "discrete-gauss"), ("laplace", "discrete-laplace")):
        out = tmp_path / noise
        release(table, noise=noise, eps=1, out=out, **about)
        kinds = [step["mech"] for step in ledger.process(ledger.entries(out / "ledger.jsonl")).describe()]
        assert kinds == [name, "dp"]


# what is printed beside a number


def test_the_standard_error_is_that_of_the_noise_for_all_data():
    one, other = np.full(1000, 50.0), np.array([50.0] * 999 + [0.0])
    assert one.std() / 1000**0.5 == 0 < other.std() / 1000**0.5
    seen = []
    for cells in (one, other, []):
        table = {"id": list(range(len(cells))), "x": list(cells)}
        rows = release(table, outputs=[Sum("x", 0, 60), Count()], max_rows=1, **PURE).rows
        seen.append([(row["standard_error"], row["half_width"], row["noise"]) for row in rows])
    assert seen[0] == seen[1] == seen[2]


def test_all_digits_of_a_released_number_are_in_json(tmp_path, capfd):
    path = written(tmp_path / "t.csv", [("p", "A", "0.1234567")])
    words = [
        "release",
        "--data",
        path,
        "--person",
        "id",
        "--sum",
        "x",
        "--bounds",
        "x=0:1",
        "--max-rows",
        "1",
        "--json",
    ]
    code, stdout, _ = call(capfd, *words, "--grid", "2^-14", "--eps", "1", "--delta", "0", "--out", tmp_path / "out")
    (row,) = json.loads(stdout)["outputs"]
    assert code == 0
    assert (Fraction(row["value"]) * 2**14).denominator == 1
    assert len(row["value"].split(".")[1]) == 14


# seeds, streams and repetition


def test_two_releases_have_different_keys_and_a_seed_is_marked(tmp_path, capfd):
    """With one seed the difference of neighbours is exactly the person: repeatable noise protects nobody."""
    tables_ = [{"id": list(range(count)), "x": [1] * count} for count in (100, 101)]
    about = {"outputs": [Count()], **{**PURE, "eps": 0.001}}
    seeded = [values(release(table, seed=3, **about))[0] for table in tables_]
    assert seeded[1] - seeded[0] == 1
    result = release(tables_[0], seed=3, **about)
    assert result.answer["private"] is False
    assert "NOT PRIVATE" in result.statement
    assert len({values(release(tables_[0], **about))[0] for _ in range(8)}) > 1


def test_no_two_parts_of_a_release_read_the_same_words(monkeypatch):
    """All stretches of the stream that a release reads, as values of the counter, are apart."""
    read = []

    class Noted(randomness.Keystream):
        def __init__(self, key, start=0):
            super().__init__(key, start)
            self.place = [key, start, 0]
            read.append(self.place)

        def read(self, count):
            self.place[2] += count
            return super().read(count)

        def fill(self, memory, count):
            self.place[2] += count
            super().fill(memory, count)

    for module in (randomness, sampling):
        monkeypatch.setattr(module, "Keystream", Noted)
    monkeypatch.setattr("wpriv.releases.rows.Keystream", Noted)
    names = [f"k{place}" for place in range(40)]
    table = {"id": list(range(400)), "key": [names[place % 40] for place in range(400)], "x": list(range(400))}
    outputs = [
        Count(),
        Count(overall=True),
        Sum("x", 0, 20),
        BinCounts("x", (0, 9, 20)),
        Quantile("x", 0, 20, at=(0.1, 0.5)),
    ]
    release(table, outputs=outputs, by="key", keys=names, max_groups=2, max_rows=2, **PURE)
    assert len({key for key, _, _ in read}) == 1
    stretches = sorted((start, start - (-count // 16)) for _, start, count in read if count)
    assert len(stretches) > 80
    assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(stretches))


def test_each_draw_takes_one_word_whatever_it_is():
    """The time of a draw by rejection grows with its size (rank correlation .42 of peers); here none is rejected."""
    further = []
    for noise in (Noise("gauss", 300.0), Noise("laplace", 90.0), Noise("gauss", 0.3)):
        draws = noise.of_words(randomness.words(KEY, 0, 20_000), lambda: further.append(0) or bytes(8))
        assert len(draws) == 20_000
    assert not further
    drawn = [len(Noise("laplace", 3.0).draw(KEY, 0, count)) for count in (0, 1, 100)]
    assert drawn == [0, 1, 100]


def test_a_dry_run_opens_no_row(tmp_path, capfd, monkeypatch):
    """Rows replaced by garbage, and reading forbidden: the same output, and nothing on the disk."""
    path, seen = tmp_path / "t.csv", []
    monkeypatch.setattr(tables.Files, "blocks", lambda *_: pytest.fail("a row was read"))
    words = ["release", "--data", path, "--person", "id", "--by", "key", "--keys", "unknown", "--max-groups", "2"]
    words += ["--mean", "x", "--max-rows", "1", "--bounds", "x=0:9", "--eps", "1", "--delta", "1e-6"]
    words += ["--noise", "laplace"]
    for body in (b"", b"p,A,3\r\n" * 100, b'"open\xff\x00,,,,\n1\n'):
        path.write_bytes(b"id,key,x\r\n" + body)
        seen.append(call(capfd, *words, "--dry-run"))
        assert [file.name for file in tmp_path.iterdir()] == ["t.csv"]
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][0] == 0


def test_two_answers_to_one_question_are_one(tmp_path, capfd):
    """The same command on changed data shows the stored numbers, so that neither noise nor change can be seen."""
    path, seen = tmp_path / "t.csv", []
    words = ["release", "--data", path, "--person", "id", "--count", "persons", "--eps", "1", "--delta", "0", "--quiet"]
    for rows in ([("p", "A", "1")], [("p", "A", "1")] * 2, [(str(i), "A", "1") for i in range(900)]):
        written(path, rows)
        code, stdout, _ = call(capfd, *words, "--out", tmp_path / "out")
        seen.append((code, stdout))
    assert seen[0] == seen[1] == seen[2]
    assert len(ledger.entries(tmp_path / "out" / "ledger.jsonl")) == 1


def test_each_row_as_a_person_counts_each_row(noiseless):
    table = {"id": ["p"] * 7}
    assert values(release(table, outputs=[Count(), Count("rows")], **{**PURE, "person": "row"})) == [7, 7]


# queries


@pytest.fixture
def clinic(tmp_path):
    """A database in which one person has values that make functions of SQL fail."""
    pytest.importorskip("sqlglot")
    with sqlite3.connect(tmp_path / "clinic.db") as connection:
        connection.execute("CREATE TABLE stays (patient text, ward text, days integer, note text)")
        rows = [(f"p{i}", "A", i % 9, "fine") for i in range(40)]
        rows += [("evil", "A", 2**62, "evil"), ("evil", "A", 2**62, None), ("evil", None, "oops", b"\xff")]
        connection.executemany("INSERT INTO stays VALUES (?, ?, ?, ?)", rows)
    connection.close()
    return f"sqlite:///{tmp_path / 'clinic.db'}"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT patient, SUM(days) AS days FROM stays GROUP BY patient",
        "SELECT patient, AVG(days) AS days FROM stays GROUP BY patient HAVING SUM(days) > 1",
        "SELECT patient, days * days * days AS days FROM stays",
        "SELECT patient, days / 0 AS days FROM stays WHERE CAST(note AS integer) = 0",
    ],
)
def test_no_value_of_a_person_makes_a_query_fail(clinic, noiseless, query):
    """The sum of 2^62 and 2^62 is an error in SQLite: exit codes would tell whether that person is in the table."""
    whole = sqlite3.connect(clinic.removeprefix("sqlite:///"))
    with pytest.raises(sqlite3.OperationalError, match="overflow"):
        whole.execute("SELECT SUM(days) FROM stays WHERE typeof(days) = 'integer'").fetchall()
    whole.close()
    outputs = [Count(), Sum("days", 0, 60)]
    seen = [
        values(release(clinic, query=each, outputs=outputs, max_rows=1, **{**PURE, "person": "patient"}))
        for each in (query, f"SELECT patient, days FROM ({query}) AS q WHERE patient <> 'evil'")
    ]
    assert seen[0][0] - seen[1][0] in (0, 1)
    assert 0 <= seen[0][1] - seen[1][1] <= 60


@pytest.mark.parametrize(
    "query",
    [
        "SELECT patient, SUM(x) AS x FROM stays GROUP BY patient",  # of doubles
        "SELECT patient FROM stays WHERE patient = 'evil' AND note LIKE 'evil\\'",
        f"SELECT patient FROM stays WHERE patient = 'evil' AND note LIKE '{'%a' * 30_000}'",
        "SELECT patient FROM stays WHERE patient = 'evil' AND EXTRACT(nothing FROM day) = 1",
        "SELECT patient FROM stays WHERE patient = 'evil' AND CAST('2026-13' || '-45' AS date) > day",
        "SELECT patient FROM stays WHERE CASE WHEN patient = 'evil' THEN CAST(CAST('a' AS text) AS integer) END = 1",
        "SELECT patient, s || s AS s FROM (SELECT patient, note || note AS s FROM stays) AS q",
    ],
)
def test_an_analyst_cannot_make_a_query_fail_for_one_person(query):
    pytest.importorskip("sqlglot")
    from wpriv.releases import queries

    with pytest.raises(UsageError, match="which is refused"):
        queries.checked(query, "patient", (), queries.POSTGRES)
    if "LIKE" in query and len(query) > 1000:
        with pytest.raises(UsageError, match="which is refused"):
            queries.checked(query, "patient", (), queries.SQLITE)


def test_what_cannot_fail_on_a_value_is_accepted():
    pytest.importorskip("sqlglot")
    from wpriv.releases import queries

    for query in (
        "SELECT patient, days FROM stays WHERE day >= CAST('2026-01-01' AS date) AND days < 2 * 30 AND note LIKE '%a_'",
        "SELECT patient, COUNT(*) AS n, MAX(days) AS days FROM stays GROUP BY patient HAVING MAX(days) > -5",
    ):
        assert "stays" in queries.checked(query, "patient", (), queries.POSTGRES)


def test_quantiles_of_a_column_of_integers_of_a_schema(clinic, tmp_path):
    """A type that the schema declares makes another output of the one that was asked for, with the same shares."""
    pyarrow = pytest.importorskip("pyarrow")
    quantiles, about = [Quantile("days", 0, 5, at=(".25", ".5"))], {"max_rows": 1, **PURE, "person": "patient"}
    for data in (pyarrow.table({"patient": ["a", "b"], "days": [1, 2]}), clinic):
        more = {} if data is not clinic else {"table": "stays"}
        rows = release(data, outputs=quantiles, **more, **about).rows
        assert [(row["bin"], row["grid"]) for row in rows] == [("0.25", "1"), ("0.5", "1")]
