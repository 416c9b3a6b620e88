"""Premises: the form of each field, declarations on the command line and in YAML, and which source decides."""

from __future__ import annotations

import pytest

from wpriv.checks.premises import FIELDS, Fact, Premises, declared, of_document, of_mapping, parsed
from wpriv.checks.readers import premises as reader
from wpriv.config import yaml_document
from wpriv.errors import UsageError

# the YAML of the specification
WHOLE = """\
kind: check
claim: {eps: 1.33617, delta: 1e-5, by: "opacus 1.6.0 prv", kind: bound}
unit: record
max_per_unit: 1
adjacency: zero-out
records: 5000
records_public: yes
sampling: {kind: poisson, rate: 0.01, rate_accounted: 0.01}
steps: 500
noise: {multiplier: 1.0, seed: os}
clip: {norm: 1.0, scope: global, per: record}
divisor: constant
composition: {runs: 1, selected: no, other: []}
"""


def test_the_record_of_the_specification_is_read_whole(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(WHOLE)
    assert reader.recognises(path)
    found = Premises.of(reader.read(path, {}).facts)
    assert found.number("claim.eps") == 1.33617
    assert found.word("claim.by") == "opacus 1.6.0 prv"
    assert found.yes("records_public") is True
    assert found.count("steps") == 500
    assert found.count("composition.selected") == 0
    assert found.steps("composition.other") == ()
    assert len(found.facts) == 22


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("steps", "-5", "must be at least 0"),
        ("steps", "2.5", "whole number"),
        ("sampling.rate", "2", "at most 1"),
        ("sampling.rate", "nan", "finite"),
        ("sampling.rate", True, "number"),
        ("noise.multiplier", [1], "number"),
        ("sampling.kind", "poison", "did you mean 'poisson'"),
        ("records_public", "maybe", "yes or no"),
        ("sampling.rat", "1", "did you mean 'sampling.rate'"),
        ("rate_accounted", "1", "did you mean 'sampling.rate_accounted'"),
        ("process", "nonsense here", "mechanism"),
        ("clip.norm", {}, "list of numbers"),
        ("unit", 3, "text"),
    ],
)
def test_a_wrong_premise_is_named_with_what_was_wanted(name, value, words):
    with pytest.raises(UsageError, match=words):
        parsed(name, value)


def test_every_field_reads_its_own_values_again():
    values = {"word": None, "number": 0.5, "count": 7, "yes": True, "text": "x", "texts": ("a", "b"), "best": 3}
    for name, form in FIELDS.items():
        value = values.get(form.form) or (form.words[0] if form.words else (0.5, 1.0))
        value = ({"mech": "gauss", "sigma": 1},) if form.form == "steps" else value
        once = parsed(name, value)
        assert parsed(name, once) == once


def test_faults_of_a_file_are_named_with_line_and_column(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(WHOLE.replace("kind: poisson, rate", "kind: poison, rat"))
    with pytest.raises(UsageError) as error:
        of_document(yaml_document.read(path, "run.yaml"))
    assert "run.yaml:8:18: sampling.kind has no value 'poison'; did you mean 'poisson'?" in str(error.value)
    assert "run.yaml:8:26: no premise is called 'sampling.rat'; did you mean 'sampling.rate'?" in str(error.value)


def test_declarations_are_field_and_value():
    assert [(fact.field, fact.value) for fact in declared(["steps=500", "unit=client"])] == [
        ("steps", 500),
        ("unit", "client"),
    ]
    for texts in (["steps"], ["=5"], ["steps=5", "steps=6"]):
        with pytest.raises(UsageError):
            declared(texts)
    assert of_mapping({"sampling": {"rate": 0.1}, "sampling.kind": "shuffle"})[1].value == "shuffle"


def test_what_is_read_decides_and_a_declaration_that_disagrees_is_kept():
    read = Fact("sampling.kind", "shuffle", "read", "the sampler")
    found = Premises.of(
        [Fact("sampling.kind", "poisson", "declared"), read, Fact("noise.std", 5), Fact("noise.std", 5.0000001)]
    )
    assert found.word("sampling.kind") == "shuffle"
    assert [(a.value, b.value) for a, b in found.contradictions] == [("shuffle", "poisson")]
