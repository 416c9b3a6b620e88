"""Pairs of neighbouring tables through the whole command: all but the noisy numbers is the same.

Both commands have one seed, and so one key and one noise. What may differ is what the noise protects: values, and what
follows from them (intervals, notes of means, which unknown keys show). Codes, standard error, the rest of standard
output, the files and all else in them may not.
"""

from __future__ import annotations

import csv
import datetime
import io
import json
import re
import shutil
import tempfile
import uuid
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import nightly
from tests.command_line import call_alone
from tests.releases import plans
from wpriv import BinCounts, Count, Quantile, Sum, release
from wpriv.cli.parsing import LazyGroup

PAIRS = 10_000 if nightly.WHOLE else 480  # of which the default run draws an eighth

PEOPLE = ["p1", "p2", "p3", "", "7", "007", "7.0", "nan", "NULL", "é", "e\u0301", "\udcff", "a,b", 'a"b', "x" * 300]
KEYS = ["A", "a", "A ", "B", "C", "", "NULL", "0", "é", "e\u0301", "\udcff", "a\nb", "\x1b[1m", "unknown", "Ａ"]
VALUES = [
    "3", "5", "70", "-4", "0.5", "2.5", "-0.0", "", "NULL", "nan", "sNaN", "inf", "-inf", "1e400", "-1e999999999",
    "oops", "0e999999999", "1e-999999999", "9" * 5000, " 7 ", "1_0", "٣", "\x00", "2026-01-02", "2026-13-01",
    "0001-01-01", "\udcff",
]  # fmt: skip

BY = "--by ward --max-groups 2"
DECLARED = f"{BY} --keys A,B,é"
PURE, APPROXIMATE = "--eps 1 --delta 0", "--eps 1 --delta 1e-6"
QUESTIONS = [
    f"--count persons {PURE}",
    f"--count persons {APPROXIMATE} --csv",
    f"--count persons {APPROXIMATE} --quiet --distinct",
    f"--count rows --max-rows 2 {APPROXIMATE} --nonnegative --json --null NULL",
    f"--sum days --bounds days=-10:60 --max-rows 2 {PURE} --json",
    f"--sum days --bounds days=-10:60 --max-rows 1 --grid .01 --distinct {APPROXIMATE}",
    f"--mean days --bounds days=0:60 --max-rows 3 {PURE} --json",
    f"--mean days --bounds days=0:60 --types days=number --max-rows 1 --noise laplace {APPROXIMATE}",
    f"--quantile days=.5,.9 --bounds days=0:60 --max-rows 1 {PURE}",
    f"--histogram days=0,7,30 --outside bins --max-groups 2 --max-rows 2 {PURE}",
    f"--histogram days=2026-01-01,2026-02-01 --types days=date --max-groups 1 --histogram-of persons {PURE} --csv",
    f"--count persons --sum days --bounds days=0:60 --weight sum=2 --max-rows 3 {PURE}",
    f"--count persons {DECLARED} {APPROXIMATE}",
    f"--count persons {DECLARED} --other rest --normalise nfc,strip,casefold --overall {PURE} --json",
    f"--count rows --mean days --bounds days=0:60 {DECLARED} --max-rows 2 {PURE} --csv",
    f"--histogram days=0,7,30 --quantile days=.5 --bounds days=0:60 {DECLARED} --max-rows 2 {PURE}",
    f"--count persons {BY} --keys unknown {APPROXIMATE} --json",
    f"--sum days --bounds days=0:60 {BY} --keys unknown --max-rows 2 --noise laplace {APPROXIMATE}",
    "--count persons --count rows --se persons=5 --se rows=9 --max-rows 2 --delta 1e-6 --records 1000 --json",
    f"--count rows --quantile days=.25 --bounds days=0:60 --person row {PURE}",
]  # fmt: skip


@pytest.fixture(autouse=True)
def remembered(monkeypatch):
    """Solve each plan once, and build the parser of the command once, which takes half of its time."""
    plans.remember(monkeypatch)
    build, built = LazyGroup.get_command, {}
    monkeypatch.setattr(
        LazyGroup,
        "get_command",
        lambda self, ctx, name: built.get(name) or built.setdefault(name, build(self, ctx, name)),
    )


@st.composite
def neighbours(draw):
    """A table, and the same with the rows of one more person among them; each in one file or in two."""
    person = draw(st.sampled_from(PEOPLE))
    row = st.tuples(
        st.sampled_from([who for who in PEOPLE if who != person]), st.sampled_from(KEYS), st.sampled_from(VALUES)
    )
    others = draw(st.lists(row, max_size=6))
    added = draw(st.lists(st.tuples(st.just(person), st.sampled_from(KEYS), st.sampled_from(VALUES)), max_size=5))
    both = list(others)
    for each in added:
        both.insert(draw(st.integers(0, len(both))), each)
    return others, both, draw(st.booleans())


def written(folder: Path, rows, in_two: bool) -> list[str]:
    """Write the table and return its flags."""
    flags = []
    halves = [rows[: len(rows) // 2], rows[len(rows) // 2 :]] if in_two else [rows]
    for place, half in enumerate(halves):
        path = folder / f"t{place}.csv"
        with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            csv.writer(file).writerows([("patient", "ward", "days"), *half])
        flags += ["--data", str(path)]
    return flags


def answer_without_values(answer, *, unknown: bool):
    """A release as plain data without what is noisy."""
    kept = dict(answer) | {"released": None}
    hidden = ("value", "interval", "parts", "note")
    rows = [{name: "-" if name in hidden else value for name, value in row.items()} for row in answer["outputs"]]
    return kept | {"outputs": None if unknown else rows}


def cells_without_values(text: str, *, unknown: bool):
    """A table of CSV without what is noisy."""
    rows = list(csv.DictReader(io.StringIO(text)))
    hidden = ("value", "lower", "upper", "note")
    return None if unknown else [{k: "-" if k in hidden else v for k, v in row.items()} for row in rows]


def lines_without_values(text: str, *, unknown: bool):
    """The lines of a terminal without what is noisy; widths of columns follow values."""
    lines = []
    for line in text.splitlines():
        words = re.sub(r"\s+", " ", line)
        words = re.sub(r"(mean days) .*", r"\1", words)
        words = re.sub(r"\S+ (\+- |(NOT PRIVATE; )?within )", r"- \1", words)
        lines.append(words)
    return [line for line in lines if line.startswith("eps =")] if unknown else lines


def shown(folder: Path, words: list[str], rows, in_two: bool):
    """All that a release leaves, without what is noisy: code, both streams, and the content of its files."""
    unknown = "unknown" in words
    shutil.rmtree(folder / "out", ignore_errors=True)
    code, stdout, stderr = call_alone(["release", *written(folder, rows, in_two), *words, "--out", folder / "out"])
    left: dict[str, object] = {"code": code, "stderr": stderr}
    if "--json" in words:
        left["stdout"] = answer_without_values(json.loads(stdout), unknown=unknown)
    elif "--csv" in words:
        left["stdout"] = cells_without_values(stdout, unknown=unknown)
    elif "--quiet" in words:
        left["stdout"] = re.fullmatch(r"-?\d+\n", stdout) is not None
    else:
        left["stdout"] = lines_without_values(stdout, unknown=unknown)
    for path in sorted((folder / "out").iterdir()):
        text = path.read_text(encoding="utf-8")
        if path.name == "release.json":
            left[path.name] = answer_without_values(json.loads(text), unknown=unknown)
        elif path.name == "release.csv":
            left[path.name] = cells_without_values(text, unknown=unknown)
        elif path.name == "statement.md":
            left[path.name] = text.partition("\n|")[0]
        else:
            left[path.name] = text
    return left


@pytest.mark.parametrize("question", QUESTIONS)
@settings(max_examples=PAIRS // len(QUESTIONS))
@given(neighbours())
def test_a_person_changes_nothing_but_noisy_numbers(question, pair):
    others, both, in_two = pair
    words = question.split()
    person = [] if "--person" in words else ["--person", "patient"]
    with tempfile.TemporaryDirectory() as place:
        one, other = (shown(Path(place), [*words, *person, "--seed", "5"], rows, in_two) for rows in (others, both))
    assert one == other
    assert one["code"] == 0
    assert "NOT PRIVATE" in one["stderr"]


CELLS = st.sampled_from([
    None, "3", "p1", "A", 7, 2**70, 2.5, float("nan"), float("inf"), True, Decimal("2.5"), Decimal("sNaN"), b"3", 1j,
    datetime.date(2026, 1, 2), datetime.datetime.max, uuid.UUID(int=5), np.float32(0.1), np.int8(-3),
    np.datetime64("NaT"),
])  # fmt: skip
OUTPUTS = [
    Count(),
    Count("rows", overall=True),
    Sum("days", -1, 60),
    BinCounts("days", (0, 3, 9)),
    Quantile("days", 0, 60),
]


@settings(max_examples=PAIRS // 2)
@given(st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=5), st.lists(st.tuples(CELLS, CELLS), max_size=4))
def test_a_person_of_a_table_of_objects_changes_nothing_but_noisy_numbers(others, added):
    """Objects of all kinds as persons, keys and values, by the verb of Python."""
    seen = []
    for rows in (others, [*[("new", *row) for row in added], *others]):
        table = {name: [row[place] for row in rows] for place, name in enumerate(("patient", "ward", "days"))}
        answer = release(
            table, person="patient", outputs=OUTPUTS, by="ward", keys=["A", 7], other="rest", max_groups=2, max_rows=2,
            distinct=True, eps=1, delta=0, seed=4,
        ).answer  # fmt: skip
        seen.append(answer_without_values(answer, unknown=False))
    assert seen[0] == seen[1]


def test_the_comparison_sees_what_a_leak_would_show(monkeypatch):
    """A note that says how many rows were left out, on standard error or in the statement, is found."""
    from wpriv.releases import release_folder

    rows = [("p1", "A", "3"), ("p2", "B", "")]
    words = ["--person", "patient", "--seed", "5", *QUESTIONS[4].split()]
    seen = []
    statement = release_folder._statement
    with tempfile.TemporaryDirectory() as place:
        for count in (1, 2):
            leak = f" {count} rows were read."
            monkeypatch.setattr(release_folder, "_statement", lambda *about, leak=leak: statement(*about) + leak)
            seen.append(shown(Path(place), words, rows[:count], in_two=False))
    assert {name for name in seen[0] if seen[0][name] != seen[1][name]} >= {"stdout", "release.json", "statement.md"}
