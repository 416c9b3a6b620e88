"""Documents of any depth and form, and files that are made to break a reader."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import pytest

import wpriv
from wpriv.checks.check import reader_of
from wpriv.checks.readers import _documents
from wpriv.errors import UsageError, WprivError

DEEP = 100_000


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, -3e-5, True, False, None, 'x"y\\z, é'], "b": {"c": []}, "": {}},
        [[], {}, [[1], {"k": "v"}], "}", "]", ":"],
        {"type": "Poisson", "inner": {"type": "Gaussian", "noise_multiplier": 1.0}},
    ],
)
def test_the_reader_without_recursion_reads_what_json_reads(value):
    for text in (json.dumps(value), json.dumps(value, indent=2)):
        assert _documents._nested(text) == json.loads(text)


def test_json_that_python_nests_too_deeply_for_is_read():
    value = _documents.parse('{"inner": ' * 5000 + "[7]" + "}" * 5000, "file")
    for _ in range(5000):
        value = value["inner"]
    assert value == [7]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A(x=1, y=[2.5, (3, 'z')])", {"type": "A", "x": 1, "y": [2.5, [3, "z"]]}),
        (
            "m.A(b=B(), c=None, d=-inf, e=True)",
            {"type": "m.A", "b": {"type": "B"}, "c": None, "d": -math.inf, "e": True},
        ),
        ("A(x=np.float64(0.5), r=<Relation.REPLACE_ONE: 2>)", {"type": "A", "x": 0.5, "r": "REPLACE_ONE"}),
    ],
)
def test_reprs_are_read_without_running_them(text, value):
    assert _documents.parse(text, "repr") == value


@pytest.mark.parametrize(
    "text",
    [
        *("A(", "A(x=)", "A(x=1))", "A(x=1, x=2)", "A(1, 2)", "A(x 1)", "A(x=1 y=2)", "A(x=1), B()", "A(x=f)"),
        *("[1,,2]", "[1", "A(x:1)", "__import__('os').system('true')", "A(x=lambda: 0)", "A(x=1", "x=1", ""),
    ],
)
def test_what_is_no_repr_is_refused(text):
    with pytest.raises(ValueError, match=r"character|ends|word|key|name|several"):
        _documents._nested(text)
    with pytest.raises(UsageError, match=r"^file: "):
        _documents.parse(text, "file")


@pytest.mark.parametrize("text", ['{"a": 1,}', '{"a": 1} x', '{"a": 1, "a": 2}', "[1, 2", '{"a": 01}'])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(UsageError):
        _documents.parse(text, "file")


FILES = {
    "deep-lists.json": "[" * DEEP + "]" * DEEP,
    "deeper.json": '{"process": ' + '{"type": "CachedProcess", "inner": ' * DEEP + "1" + "}" * (DEEP + 1),
    "deep-event.json": '{"type": "SelfComposedDpEvent", "event": ' * DEEP + "7" + "}" * DEEP,
    "deep.repr": "SelfComposedDpEvent(count=1, event=" * DEEP + "7" + ")" * DEEP,
    "nan.json": '{"type": "GaussianDpEvent", "noise_multiplier": NaN}',
    "infinite.json": '{"type": "GaussianDpEvent", "noise_multiplier": Infinity}',
    "negative.json": '{"type": "GaussianDpEvent", "noise_multiplier": -1}',
    "text.json": '{"type": "GaussianDpEvent", "noise_multiplier": "1"}',
    "yes.json": '{"type": "GaussianDpEvent", "noise_multiplier": true}',
    "lacks.json": '{"type": "GaussianDpEvent"}',
    "unknown.json": '{"type": "QuantumDpEvent", "noise_multiplier": 1}',
    "huge.json": '{"type": "SelfComposedDpEvent", "count": 1' + "0" * 400 + ', "event": {"type": "NoOpDpEvent"}}',
    "digits.json": '{"type": "SelfComposedDpEvent", "count": ' + "9" * 9000 + ', "event": {"type": "NoOpDpEvent"}}',
    "half.json": '{"type": "SelfComposedDpEvent", "count": 2.5, "event": {"type": "NoOpDpEvent"}}',
    "rate.json": '{"type": "PoissonSampledDpEvent", "sampling_probability": 2, '
    '"event": {"type": "GaussianDpEvent", "noise_multiplier": 1}}',
    "events.json": '{"type": "ComposedDpEvent", "events": {"0": 1}}',
    "flower.json": '{"config": {"neighboring_relation": "replace-one"}, "compositions": []}',
    "flower-types.json": '{"config": 1, "compositions": 2}',
    "accountant.json": '{"process": {"type": "Gaussian", "noise_multiplier": [1]}}',
    "process.json": '{"process": 5}',
    "trainer_state.json": '{"global_step": -3, "stateful_callbacks": 4}',
    "trainer_state-2.json": '{"global_step": 3, "stateful_callbacks": {"DPCallback": {"args": {}, "attributes": 1}}}',
    "statement.txt": "DP-SGD performed over many examples",
    "config.json": '{"global_state": {"l2_norm_clip": 0, "stddev": 1}, "num_microbatches": 1}',
    "metrics.csv": "epoch,epsilon,step\n0,soon,4\n",
    "last.ckpt": "PK\x03\x04 not a zip",
    "nothing.json": "",
    "binary.json": "\x00\x01{",
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_made_to_break_a_reader_is_refused_in_words(tmp_path, name):
    file = tmp_path / name
    file.write_text(FILES[name], encoding="utf-8")
    with pytest.raises(WprivError) as error:
        wpriv.check(file, delta=1e-5, premises={"records_public": True, "max_per_unit": 1})
    assert error.value.exit_code == 2
    assert len(str(error.value)) < 1000


def test_a_file_of_a_gigabyte_is_not_read(tmp_path):
    file = tmp_path / "accountant.json"
    with file.open("wb") as out:
        out.write(b'{"process": ')
        os.truncate(out.fileno(), 10**9)
    with pytest.raises(UsageError, match="up to 50,000,000 bytes"):
        wpriv.check(file)


def test_no_reader_loads_the_library_of_an_object():
    libraries = "torch attr flwr lightning transformers opacus jax tensorflow dp_accounting"
    code = (
        "import sys\nfrom wpriv.core import registry\nfor name in registry.names('readers'):\n"
        "    registry.load('readers', name).recognises(object())\n"
        f"assert not set(sys.modules) & set({libraries.split()!r})"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_every_reader_says_no_to_what_it_does_not_know(tmp_path):
    for x in (object(), tmp_path, tmp_path / "absent", 3):
        with pytest.raises(UsageError, match="nothing here reads"):
            reader_of(x)


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("event.json", '{"count": 1, "type": "SelfComposedDpEvent"}', "SelfComposedDpEvent"),
        ("event(1).json", '{"type": "NoOpDpEvent"}', "NoOpDpEvent"),
        ("event.txt", "dp_event.GaussianDpEvent(noise_multiplier=1.0)", "GaussianDpEvent"),
        ("other.json", '{"kind": "check"}', ""),
        ("list.json", "[1]", ""),
    ],
)
def test_the_class_that_a_file_holds_is_found(tmp_path, name, text, kind):
    (tmp_path / name).write_text(text)
    assert _documents.type_of(tmp_path / name) == kind
