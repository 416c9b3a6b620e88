"""model.safetensors holds the weights of the training and the statement in short; one that does not fit is named."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import wpriv
from tests.training.test_training_statement import RECIPE, trained
from wpriv.cli.main import main
from wpriv.errors import Unsupported, UsageError
from wpriv.files import array_files
from wpriv.results import storage
from wpriv.results.model import Protection
from wpriv.training import finalize
from wpriv.training.engine import saved_weights
from wpriv.training.reports import model_check


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    trained(folder)
    return folder / "out"


@pytest.fixture
def out(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "out")


def header_of(folder):
    with safe_open(str(folder / storage.WEIGHTS), "pt") as file:
        return file.metadata()


def rewrite(folder, *, weights=None, **entries):
    """Write the file again by the library, with other weights or other entries in its header."""
    header = {**header_of(folder), **entries}
    save_file(weights or load_file(folder / storage.WEIGHTS), folder / storage.WEIGHTS, metadata=header)


@pytest.mark.slow
def test_the_weights_are_those_of_the_training_and_the_header_says_what_the_statement_says(out):
    # oracle: the reader of the safetensors library, and the file of torch
    stored = torch.load(out / storage.MODEL, weights_only=True)["weights"]
    weights, header = load_file(out / storage.WEIGHTS), header_of(out)
    assert weights.keys() == stored.keys()
    assert all(torch.equal(weights[name], stored[name]) for name in stored)
    content = (out / storage.STATEMENT).read_bytes()
    statement = json.loads(content)
    [row] = statement["guarantees"]
    assert (float(header["epsilon"]), float(header["delta"])) == (row["epsilon"], 1e-5)
    assert (header["claim"], header["accountant"], header["notion"]) == ("certified", "pld", "approximate-dp")
    assert (header["unit"], header["group"], header["adjacency"]) == (statement["unit"], "1", "add-remove")
    assert (header["sampling"], float(header["rate"])) == ("poisson", statement["sampling"]["rate"])
    assert (header["ledger"], header["ledger_lines"]) == (statement["ledger"]["digest"], "3")
    assert header["wpriv"] == wpriv.__version__
    assert header["statement_sha256"] == hashlib.sha256(content).hexdigest()
    assert json.loads(header["warnings"]) == statement["warnings"]
    assert header["format"] == "pt"
    assert model_check.check(out, thorough=True).verdict == model_check.FITS


@pytest.mark.slow
def test_the_digest_is_the_documented_one(out):
    content = (out / storage.WEIGHTS).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])  # oracle: the description of the format, read by hand
    entries, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    entries.pop("__metadata__")
    total = hashlib.sha256()
    for name in sorted(entries):
        begin, end = entries[name]["data_offsets"]
        total.update(json.dumps([name, entries[name]["dtype"], entries[name]["shape"]]).encode() + b"\n")
        total.update(data[begin:end])
    assert json.loads((out / storage.STATEMENT).read_text())["model"] == {
        "file": storage.WEIGHTS,
        "weights_sha256": total.hexdigest(),
    }


def other_weights(out):
    weights = load_file(out / storage.WEIGHTS)
    name = min(weights)
    weights[name] = torch.nextafter(weights[name], torch.tensor(9.0))
    rewrite(out, weights=weights)


def other_torch_weights(out):
    stored = torch.load(out / storage.MODEL, weights_only=True)
    stored["weights"][min(stored["weights"])] += 1
    torch.save(stored, out / storage.MODEL)


def edited_statement(out):
    path = out / storage.STATEMENT
    statement = json.loads(path.read_text())
    statement["guarantees"][0]["epsilon"] /= 2
    path.write_text(json.dumps(statement, indent=2) + "\n")


CHANGES = [
    (lambda out: rewrite(out, epsilon="0.1"), "epsilon is '0.1' in the header"),
    (lambda out: rewrite(out, unit="all records of a person"), "unit is"),
    (lambda out: rewrite(out, ledger="0" * 32), "ledger is"),
    (other_weights, "the weights in model.safetensors are not those of statement.json"),
    (edited_statement, "does not fit statement.json: epsilon is"),
    (lambda out: (out / storage.WEIGHTS).write_bytes(b"not weights"), "cannot be read as a safetensors file"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_a_file_that_does_not_fit_its_statement_is_named(out, capsys, change, words):
    change(out)
    result = model_check.check(out)
    assert result.verdict == model_check.DIFFERS
    assert words in result.words
    assert main(["verify", str(out)]) == 1
    assert words in capsys.readouterr().err
    recipe = out.parent / "r.yaml"
    recipe.write_text(RECIPE)
    assert main(["train", str(recipe), "--out", str(out)]) == 2
    assert "Delete" in capsys.readouterr().err
    # the advice helps
    (out / storage.STATEMENT).unlink()
    assert main(["train", str(recipe), "--out", str(out)]) == 0
    assert model_check.check(out).verdict == model_check.FITS


@pytest.mark.slow
def test_other_weights_in_model_pt_are_named_by_verify(out, capsys):
    other_torch_weights(out)
    assert main(["verify", str(out)]) == 1
    assert "the weights in model.pt are not those of statement.json" in capsys.readouterr().err


@pytest.mark.slow
def test_a_missing_file_and_a_statement_without_one_are_no_faults(out):
    (out / storage.WEIGHTS).unlink()
    assert model_check.require(out).verdict == model_check.MISSING
    path = out / storage.STATEMENT
    path.write_text(json.dumps({**json.loads(path.read_text()), "model": None}))
    assert model_check.require(out).verdict == model_check.UNNAMED
    path.write_text("[]")
    with pytest.raises(UsageError, match="is no privacy statement"):
        model_check.check(out)


@pytest.mark.slow
def test_weights_trained_without_privacy_say_so(tmp_path):
    trained(tmp_path, RECIPE.replace("{eps: 4, delta: 1e-5}", "none"))
    header = header_of(tmp_path / "out")
    assert (header["privacy"], header["promise"]) == ("none", "trained without privacy: no guarantee")
    assert header["publish"].startswith("no: ")
    assert not header.keys() & {"epsilon", "delta", "claim", "unit", "ledger"}
    assert model_check.check(tmp_path / "out", thorough=True).verdict == model_check.FITS


@pytest.mark.slow
def test_a_group_is_named_in_the_unit(tmp_path):
    text = RECIPE.replace("{eps: 4, delta: 1e-5}", "{sigma: 4, delta: 1e-5, group: 2}")
    trained(tmp_path, text)
    header = header_of(tmp_path / "out")
    assert (header["group"], header["unit"]) == (
        "2",
        "a person with up to 2 records, each one training record with its label",
    )


@pytest.mark.slow
def test_the_header_of_a_fork_and_of_a_fresh_start_is_that_of_the_new_statement(tmp_path):
    trained(tmp_path, RECIPE.replace("eps: 4", "sigma: 3"))
    from wpriv.training import train

    out = tmp_path / "out"
    train.train(tmp_path / "r.yaml", out=out, fork=True, set={"optimizer.lr": 0.5})
    assert (header_of(out)["steps"], model_check.check(out).verdict) == ("6", model_check.FITS)
    assert model_check.check(out / "before-1").verdict == model_check.FITS
    train.train(tmp_path / "r.yaml", out=out, fresh=True)
    assert (header_of(out)["steps"], model_check.check(out).verdict) == ("3", model_check.FITS)
    assert "earlier runs" in header_of(out)["warnings"]


def test_shared_and_strided_tensors_are_written_as_they_are_seen():
    weights = torch.arange(6.0).reshape(2, 3)
    content = saved_weights.encode({"a": weights.T, "b": weights, "c": weights[0], "half": weights.bfloat16()})
    same = saved_weights.encode({"half": weights.bfloat16(), "c": weights[0].clone(), "b": weights, "a": weights.T}, {})
    assert array_files.digest(content) == array_files.digest(same)
    assert array_files.digest(content) != array_files.digest(saved_weights.encode({"a": weights}))


@pytest.mark.parametrize("entry", ["words", torch.zeros(2, dtype=torch.complex128)])
def test_weights_that_the_format_does_not_hold_are_left_out_with_the_reason(tmp_path, entry):
    weights = {"a": torch.zeros(2), "x": entry}
    with pytest.raises(Unsupported):
        saved_weights.encode(weights)
    described = finalize.describe_weights({"weights": weights}, None)
    assert described["model"]["file"] is None
    assert described["model"]["why"]
    (tmp_path / storage.WEIGHTS).write_bytes(b"of an earlier version")
    finalize.write_weights(tmp_path / storage.WEIGHTS, weights, described, "", "model")
    assert not (tmp_path / storage.WEIGHTS).exists()


def test_the_best_guarantee_is_the_least_proven_one():
    figures = [
        ("approximate-dp", "upper-bound", 3.0),
        ("approximate-dp", "certified", 2.0),
        ("approximate-dp", "approximate", 1.0),
        ("wdp", "as-published", 0.5),
    ]
    rows = [
        {"notion": notion, "claim": claim, "epsilon": eps, "delta": 1e-5, "accountant": "a"}
        for notion, claim, eps in figures
    ]
    stated = dict.fromkeys(("unit", "adjacency", "adjacency_means"), "")
    stated |= {key: [] for key in ("covered", "not_covered", "not_assessed")}
    assert Protection(**stated, guarantees=rows).best.epsilon == 2.0
    assert Protection(**stated, guarantees=rows[2:]).best is None
