"""The loader is strict and says where; a sound recipe resolves to what it says. Oracles: the text itself, and hypothesis fuzz."""

from __future__ import annotations

import math
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wpriv.config import field_types, recipe, schema, yaml_document
from wpriv.core.process import SAMPLINGS
from wpriv.errors import UsageError

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


def faults(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        recipe.check(yaml_document.parse(text, "r.yaml"))
    return str(caught.value)


def test_numbers_in_scientific_notation_are_numbers():
    data = yaml_document.parse("a: 1e-5\nb: [1E3, 2.5e+3, .5, 7, '1e-5']", "r.yaml").data
    assert data == {"a": 1e-5, "b": [1000.0, 2500.0, 0.5, 7, "1e-5"]}


def test_words_that_yaml_takes_for_booleans_stay_words():
    words = ["no", "yes", "on", "12:30", "2020-01-01", "0x10"]
    assert yaml_document.parse(f"a: [{', '.join(words)}]", "r.yaml").data["a"] == words


@pytest.mark.parametrize(
    ("text", "start", "word"),
    [
        ("a: 1\na: 2", "r.yaml:2:1:", "duplicate key 'a'; line 1"),
        ("a: &x 1\nb: *x", "r.yaml:1:4:", "anchors"),
        ("b: *x", "r.yaml:1:4:", "anchors"),
        ("a: !!python/object/apply:os.system [ls]", "r.yaml:1:4:", "tags"),
        ("a: " + "[" * 100 + "]" * 100, "r.yaml:1:20:", "nested"),
        ("---\na: 1\n---\nb: 2", "r.yaml:3:1:", "one YAML document"),
        ("[1, 2]: 3", "r.yaml:1:1:", "plain word"),
        ("a: .nan", "r.yaml:1:4:", "finite"),
        ("a: 1e999", "r.yaml:1:4:", "beyond"),
        ("a: " + "9" * 5000, "r.yaml:1:4:", "40 digits"),
        ("a: b: c", "r.yaml:1:5:", "not readable as YAML"),
        ("a: \x07", "r.yaml:1:4:", "not allowed"),
        ("", "r.yaml:1:1:", "found nothing"),
        ("- 1", "r.yaml:1:1:", "found a list"),
    ],
)
def test_what_is_not_plain_data_is_refused_with_its_place(text, start, word):
    with pytest.raises(UsageError) as caught:
        yaml_document.parse(text, "r.yaml")
    assert str(caught.value).startswith(start)
    assert word in str(caught.value)


def test_the_source_line_stands_below_the_fault():
    told = faults(SOUND.replace("sampling", "samplng")).splitlines()
    assert told[0] == "r.yaml:3:35: unknown key 'samplng'; did you mean 'sampling'?"
    assert told[1] == "    3 | process: [{mech: gauss, sigma: 4, samplng: poisson, rate: 0.01, n: 2^16}]"


def test_every_fault_is_told_at_once_in_the_order_of_the_file():
    text = SOUND.replace("rate: 0.01", "rate: 2").replace("sigma: 4", "sgma: 4")
    text = text.replace("gdp]", "gdpp]").replace("figure: delta", "figure: dlta")
    places = [line.split(":")[1:3] for line in faults(text).splitlines() if line.startswith("r.yaml")]
    assert places == [["3", "25"], ["3", "59"], ["5", "20"], ["6", "9"]]


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("kind: compare", "kind: compar", "kind must be one of"),
        ("kind: compare\n", "", "'kind' is missing"),
        ("kind: compare", "kind: fly", "kind must be one of"),
        ('source: "a test"\nprocess', "process", "'source' is missing"),
        ("accountants: [pld, gdp]\n", "", "'accountants' is missing"),
        ("mech: gauss", "mech: gaus", "no mechanism called 'gaus'; did you mean 'gauss'?"),
        ("sigma: 4", "sigma: four", "sigma must be a number"),
        ("sigma: 4", 'sigma: "4"', "sigma must be a number"),
        ("n: 2^16", "n: 2.5", "whole number"),
        ("n: 2^16", "n: 2^50", "less than or equal"),
        ("n: 2^16", "n: true", "whole number"),
        ("rate: 0.01", "rate: 0", "greater than 0"),
        ("sampling: poisson", "sampling: poison", "'poisson'"),
        ("{linspace: [0, 4, 5]}", "{linspace: [0, 4]}", "three numbers"),
        ("{linspace: [0, 4, 5]}", "{linspace: [0, 4, 1e9]}", "points"),
        ("{linspace: [0, 4, 5]}", "{geomspace: [0, 4, 5]}", "greater than 0"),
        ("{linspace: [0, 4, 5]}", "[]", "from 1 to"),
        ("over: eps", "over: epz", "cannot sweep over 'epz'; did you mean 'eps'?"),
        ("figure: delta-over-eps", "figure: delta-over-eps\ndelta: 1e-5", "ask at one eps or at one delta"),
        ("delta: 0.0277", "dleta: 0.0277", "unknown key 'dleta'; did you mean 'delta'?"),
        ("delta: 0.0277", "delta: x", "delta must be a number"),
        ("delta: 0.0277, ", "", "a number to meet"),
        ("accountant: pld}", "acountant: pld}", "unknown column 'acountant'"),
        ("within: 1e-2", "within: 0", "greater than 0"),
        ("process:", "cases: {a: [{mech: gauss, sigma: 1}]}\nprocess:", "either 'process'"),
        ("figure:", "table: class\nfigure:", "means nothing in a class table"),
        ("quick: {sweep", "quick: {swep", "did you mean 'sweep'?"),
        ("quick:", "panels: [{name: a}, {name: a}]\nquick:", "different names"),
    ],
)
def test_a_faulty_recipe_is_refused_in_words(old, new, word):
    assert old in SOUND
    assert word in faults(SOUND.replace(old, new, 1))


def test_quick_overrides_apply_only_when_asked():
    whole = recipe.check(yaml_document.parse(SOUND, "r.yaml"))
    quick = recipe.check(yaml_document.parse(SOUND, "r.yaml"), quick=True)
    assert field_types.expand_values(whole.panels[0].sweep[0].values) == [0, 1, 2, 3, 4]
    assert field_types.expand_values(quick.panels[0].sweep[0].values) == [1]


def test_a_panel_inherits_what_it_does_not_say_and_replaces_the_question():
    panels = "panels:\n  - {name: b, delta: 1e-4, sweep: {over: n, values: {powers: [2, 0, 3]}}}\n"
    text = SOUND[: SOUND.index("expect:")] + panels
    (panel,) = recipe.check(yaml_document.parse(text, "r.yaml")).panels
    assert (panel.accountants, panel.delta, panel.eps) == (["pld", "gdp"], 1e-4, None)
    assert field_types.expand_values(panel.sweep[0].values) == [1, 2, 4, 8]


def test_grids_end_where_they_say():
    assert field_types.expand_values({"linspace": [0, 1, 11]})[-1] == 1.0
    ends = field_types.expand_values({"geomspace": [0.1, 10, 5]})
    assert (ends[0], ends[-1]) == (0.1, 10)
    assert math.isclose(ends[2], 1.0)


def test_the_sampling_kinds_of_a_recipe_are_those_of_a_process():
    assert str(schema.Step.model_fields["sampling"].annotation).count("'") == 2 * len(SAMPLINGS)
    assert all(f"'{kind}'" in str(schema.Step.model_fields["sampling"].annotation) for kind in SAMPLINGS)


def test_a_file_that_is_not_text_or_too_large_is_refused(tmp_path: Path):
    path = tmp_path / "r.yaml"
    path.write_bytes(b"kind: compare\nsource: \xff\xfe")
    with pytest.raises(UsageError, match=r"r\.yaml:2: a recipe must be UTF-8"):
        yaml_document.read(path)
    path.write_bytes(b"#" * (yaml_document.MAX_BYTES + 1))
    with pytest.raises(UsageError, match="up to 1,000,000 bytes"):
        yaml_document.read(path)
    with pytest.raises(UsageError, match="cannot be read"):
        yaml_document.read(tmp_path / "none.yaml")


def test_the_exported_schema_accepts_a_sound_recipe_and_refuses_an_unknown_key():
    exported = schema.json_schema()
    data = yaml_document.parse(SOUND.replace("2^16", "65536"), "r.yaml").data
    jsonschema.validate(data, exported)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**data, "figur": "x"}, exported)


def outcome(text: str) -> None:
    """Loads and checks a text: either is an answer, a refusal or a result; anything else is a bug and raises."""
    for quick in (False, True):
        try:
            recipe.check(yaml_document.parse(text, "r.yaml"), quick=quick)
        except UsageError as error:
            refused = str(error)
            if not refused.startswith("r.yaml:"):
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


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_recipe_with_any_value_anywhere_is_either_a_recipe_or_refused(data):
    import json

    found = yaml_document.parse(SOUND, "r.yaml")
    path = data.draw(st.sampled_from(sorted((p for p in found.values if p), key=repr)))
    found.at(path[:-1])[path[-1]] = data.draw(VALUES)
    outcome(json.dumps(found.data))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_recipe_with_characters_changed_is_either_a_recipe_or_refused(data):
    text = SOUND
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.text(max_size=3)) + text[at + data.draw(st.integers(0, 5)) :]
    outcome(text)
