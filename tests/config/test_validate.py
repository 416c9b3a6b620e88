"""Validation: every fault of a recipe at its line and column, all at once. Oracles: the text itself, and hypothesis."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wpriv.config import document, recipe, resolve, yaml_document
from wpriv.config.document import known_keys
from wpriv.config.schema import Compare
from wpriv.config.train_schema import Train
from wpriv.errors import MissingResource, UsageError

SOUND = """\
kind: compare
source: "a test"
process: [{mech: gauss, sigma: 4, sampling: poisson, rate: 0.01, n: 2^16}]
sweep: {over: eps, values: {linspace: [0, 4, 5]}}
accountants: [pld, gdp]
figure: delta-over-eps
expect:
  - {where: {eps: 1, accountant: pld}, delta: 0.0277, within: 1e-2, source: "a test"}
quick: {sweep: {over: eps, values: [1]}}
"""


def diagnostics(text: str) -> list[document.Diagnostic]:
    return recipe.validate(resolve.resolve(yaml_document.parse(text, "r.yaml")))


def places(text: str) -> list[str]:
    with pytest.raises(UsageError) as caught:
        recipe.check(yaml_document.parse(text, "r.yaml"))
    return re.findall(r"^r\.yaml:(\d+:\d+): ", str(caught.value), re.M)


def test_refusal_shows_the_source_line_below_the_fault():
    with pytest.raises(UsageError) as caught:
        recipe.check(yaml_document.parse(SOUND.replace("sampling", "samplng"), "r.yaml"))
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("r.yaml:3:35: ")
    assert "'samplng'" in lines[0]
    assert "'sampling'" in lines[0]
    assert lines[1] == "    3 | process: [{mech: gauss, sigma: 4, samplng: poisson, rate: 0.01, n: 2^16}]"


def test_validate_returns_every_diagnostic_at_once_sorted_by_place():
    text = SOUND.replace("rate: 0.01", "rate: 2").replace("sigma: 4", "sgma: 4")
    text = text.replace("gdp]", "gdpp]").replace("figure: delta", "figure: dlta")
    assert [each.place for each in diagnostics(text)] == [(3, 25), (3, 59), (5, 20), (6, 9)]
    assert diagnostics(SOUND) == []


def test_validate_tells_names_and_combinations_together():
    text = SOUND.replace("gdp]", "gdpp]").replace("delta: 0.0277", "dleta: 0.0277").replace("over: eps", "over: sigma")
    assert [each.place for each in diagnostics(text)] == [(4, 1), (5, 20), (8, 40)]


CASES = [
    ("kind: compare", "kind: compar", ["1:7"]),
    ("kind: compare\n", "", ["1:1"]),
    ('source: "a test"\nprocess', "process", ["1:1"]),
    ("mech: gauss", "mech: gaus", ["3:18"]),
    ("mech: gauss", "mech: {}", ["3:18"]),
    ("sigma: 4", "sigma: four", ["3:32"]),
    ("sigma: 4", 'sigma: "4"', ["3:32"]),
    ("sigma: 4", "sigma: -4", ["3:11"]),
    ("sigma: 4, ", "", ["3:11"]),
    ("n: 2^16", "n: 2.5", ["3:69"]),
    ("n: 2^16", "n: 2^50", ["3:69"]),
    ("n: 2^16", "n: true", ["3:69"]),
    ("n: 2^16", "n: 1, epochs: 1", ["3:11"]),
    ("rate: 0.01", "rate: 0", ["3:60"]),
    ("rate: 0.01, ", "", ["3:11"]),
    ("rate: 0.01", "batch: 5", ["3:11"]),
    ("rate: 0.01", "batch: 5, records: 2", ["3:11"]),
    ("sampling: poisson, ", "", ["3:11"]),
    ("sampling: poisson", "sampling: poison", ["3:45"]),
    ("{linspace: [0, 4, 5]}", "{linspace: [0, 4]}", ["4:28"]),
    ("{linspace: [0, 4, 5]}", "{linspace: [0, 4, 1e9]}", ["4:28"]),
    ("{linspace: [0, 4, 5]}", "{linspace: [-1e308, 1e308, 5]}", ["4:28"]),
    ("{linspace: [0, 4, 5]}", "{geomspace: [0, 4, 5]}", ["4:28"]),
    ("{linspace: [0, 4, 5]}", "{powers: [1e6, 0, 60]}", ["4:28"]),
    ("{linspace: [0, 4, 5]}", "[]", ["4:28"]),
    ("{linspace: [0, 4, 5]}", "[-1, 1]", ["4:1"]),
    ("over: eps, values: {linspace: [0, 4, 5]}", "over: delta, values: [0.5, 1]", ["4:1"]),
    ("over: eps", "over: epz", ["4:1", "4:1"]),
    ("figure: delta-over-eps", "figure: delta-over-eps\ndelta: 1e-5", ["4:1"]),
    ("figure: delta-over-eps", "figure: delta-over-eps\nadjacency: replace-within-group", ["7:12"]),
    ("delta: 0.0277", "dleta: 0.0277", ["8:40"]),
    ("delta: 0.0277", "delta: x", ["8:47"]),
    ("delta: 0.0277, ", "", ["8:5"]),
    ("accountant: pld}", "acountant: pld}", ["8:22"]),
    ("within: 1e-2", "within: 0", ["8:63"]),
    ("within: 1e-2", "within: 1e-2, at_least: true, at_most: true", ["8:85"]),
    ("process:", "cases: {a: [{mech: gauss, sigma: 1}]}\nprocess:", ["3:1"]),
    ("figure:", "table: class\nfigure:", ["5:1", "9:40"]),
    ("quick: {sweep", "quick: {swep", ["9:9"]),
    ("quick:", "panels: [{name: a}, {name: a}]\nquick:", ["7:1", "9:9"]),
    ("quick:", "panels: [a, [b]]\nquick:", ["9:10", "9:13"]),
]


@pytest.mark.parametrize(("old", "new", "expected"), CASES)
def test_a_faulty_recipe_is_refused_at_the_place_of_the_fault(old, new, expected):
    assert old in SOUND
    assert places(SOUND.replace(old, new, 1)) == expected
    outcome(SOUND.replace(old, new, 1))


@pytest.mark.parametrize("values", ["[0, 1]", "{linspace: [-1, 1, 3]}"])
def test_a_swept_parameter_out_of_range_is_refused_at_the_sweep(values):
    text = SOUND.replace("over: eps, values: {linspace: [0, 4, 5]}", f"over: sigma, values: {values}")
    text = text.replace("figure: delta-over-eps", "eps: 1")
    assert places(text) == ["4:1"]


def test_a_missing_file_of_observations_is_no_fault_of_the_recipe():
    text = SOUND.replace("rate: 0.01", "rate: 0.01, observed: none.npz")
    with pytest.raises(MissingResource, match=r"r\.yaml:3:76: .*none\.npz"):
        recipe.check(yaml_document.parse(text, "r.yaml"))
    assert places(text.replace("none.npz", "weibull:shpe=1")) == ["3:11"]


@pytest.mark.parametrize(
    ("model", "location", "key"),
    [
        (Compare, ("panels", 0, "quick", "sweep", 0), "values"),
        (Compare, ("cases", "a", 0), "mech"),
        (Compare, ("time",), "seconds"),
        (Train, ("privacy",), "sigma"),
        (Train, ("data", "privatize"), "radius"),
        (Train, ("sweep", 1), "settings"),
        (Train, (), "optimizer"),
    ],
)
def test_known_keys_are_those_of_the_innermost_model(model, location, key):
    assert key in known_keys(model, location)
    assert ("kind" in known_keys(model, location)) == (location == ())


def outcome(text: str) -> None:
    """Check a text: a result or a refusal is an answer; any other exception is a bug."""
    for quick in (False, True):
        try:
            recipe.check(yaml_document.parse(text, "r.yaml"), quick=quick)
        except (UsageError, MissingResource) as error:
            if not str(error).startswith("r.yaml:"):
                raise


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_text_is_either_a_recipe_or_refused(text):
    outcome(text)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
WORDS = st.sampled_from(["gauss", "pld", "eps", "n", "compare"])
KEYS = st.sampled_from(["over", "values", "mech", "name", "eps", "x"])
VALUES = st.recursive(
    SCALARS | WORDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_recipe_with_any_value_anywhere_is_either_a_recipe_or_refused(data):
    parsed = yaml_document.parse(SOUND, "r.yaml")
    path = data.draw(st.sampled_from(sorted((p for p in parsed.values if p), key=repr)))
    parsed.at(path[:-1])[path[-1]] = data.draw(VALUES)
    outcome(json.dumps(parsed.data))


@pytest.mark.slow
@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_recipe_with_characters_changed_is_either_a_recipe_or_refused(data):
    text = SOUND
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.text(max_size=3)) + text[at + data.draw(st.integers(0, 5)) :]
    outcome(text)
