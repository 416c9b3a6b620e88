"""Every output in ``tests/golden/outputs`` is still what the program prints (see ``tests/golden_outputs.py``)."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tests import golden_outputs
from tests.golden_outputs import CASES


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_an_output_is_as_kept(name):
    case = CASES[name]
    for module in case.needs:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    changed = golden_outputs.difference(
        golden_outputs.path_of(case).read_text(encoding="utf-8"), golden_outputs.produce(case)
    )
    if changed:
        pytest.fail(
            f"{name} has another output. If that is meant: python -m tests.golden_outputs --write {name}\n{changed}",
            pytrace=False,
        )


def test_every_kept_output_has_a_case():
    assert len(CASES) >= 100
    assert {path.stem for path in golden_outputs.KEPT.iterdir()} == set(CASES)


def test_sentences_and_tables_have_one_notation_of_exponents():
    """1e-5, as people write it; JSON, YAML, CSV and files have the notation of their formats."""
    lines = [
        line
        for path in golden_outputs.KEPT.iterdir()
        for shown in re.findall(r"(?ms)^\[(?:stdout|stderr)\]\n(.*?)(?=^\$ |^\[|\Z)", path.read_text(encoding="utf-8"))
        for line in shown.splitlines()
    ]
    words = [line for line in lines if not re.match(r"\s*(?:[{\[\]}\"'-]|[\w.-]+: )|[\w.-]*,\S", line)]
    assert len(words) > 1000
    assert not [line for line in words if re.search(r"(?<![\w.\"\'])\d+(\.\d+)?e[-+]0\d", line)]


@pytest.mark.parametrize(
    ("kept", "printed", "differs"),
    [
        ("eps = 1.0646 at n = 10", "eps = 1.0646 at n = 10", False),
        ('"epsilon": 1.0646123456789', '"epsilon": 1.0646123456788', False),
        ('"epsilon": 1.0646123', '"epsilon": 1.0646124', True),
        ("n = 10", "n = 11", True),
        ("eps = 1", "delta = 1", True),
        ("loss 2.3568", "loss 2.3571", False),
        ("loss 2.3568", "loss 2.3668", True),
        (
            "$ wpriv train a\n[file run/metrics.csv]\n1,2.3568",
            "$ wpriv train a\n[file run/metrics.csv]\n1,2.3571",
            False,
        ),
        ("[file run/statement.json]\n1,2.3568", "[file run/statement.json]\n1,2.3571", True),
        ("one\ntwo", "one", True),
    ],
)
def test_numbers_may_differ_by_rounding_and_words_not_at_all(kept, printed, differs):
    assert bool(golden_outputs.difference(kept, printed)) == differs
