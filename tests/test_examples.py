"""Every example runs as its header says, and what it prints is sane."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import re
import stat
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import wpriv.training.data
from tests import nightly
from tests.points import ROOT

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(p for p in EXAMPLES.rglob("*") if p.suffix in (".sh", ".py", ".yaml"))


@pytest.fixture(scope="module")
def with_wpriv(tmp_path_factory):
    """An environment in which ``wpriv`` and ``python`` are this interpreter's."""
    folder = tmp_path_factory.mktemp("bin")
    for name, words in (("wpriv", f"{sys.executable} -m wpriv"), ("python", sys.executable)):
        file = folder / name
        file.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    root = str(EXAMPLES.parent)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": root}


def test_there_are_examples():
    assert len(SCRIPTS) >= 5


@pytest.mark.parametrize("script", nightly.sharded(SCRIPTS, 7), ids=lambda p: p.name)
def test_an_example_runs_as_its_header_says(script, with_wpriv):
    command = re.search(r"Run: (.+)", script.read_text()).group(1)
    run = ["bash", "-c", command]
    done = subprocess.run(run, cwd=EXAMPLES.parent, env=with_wpriv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "nan" not in done.stdout


def test_the_gate_prices_both_kinds_of_step(with_wpriv):
    done = subprocess.run(
        ["bash", str(EXAMPLES / "gate.sh")], env=with_wpriv, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert [step["n"] for step in found["process"]] == [2000, 3000]
    assert 0 < found["epsilon_lower"] <= found["epsilon"] <= 3


@pytest.mark.parametrize("name", ["budget", "calibrate"])
def test_the_docstring_of_a_verb_is_true(name):
    module = importlib.import_module(f"wpriv.accounting.{name}")
    results = doctest.testmod(module)
    assert results.attempted >= 1
    assert results.failed == 0


def test_sheets_of_cifar10_become_the_binary_version(with_wpriv, tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (6, 2, 1024, 3), np.uint8), rng.integers(0, 10, (6, 2))
    sheets, target = tmp_path / "sheets", tmp_path / "cifar10"
    sheets.mkdir()
    for name, sheet in zip((*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"), images, strict=True):
        Image.fromarray(sheet).save(sheets / f"{name}.png")
    (sheets / "train_lables.json").write_text(json.dumps(labels[:5].ravel().tolist()))
    (sheets / "test_lables.json").write_text(json.dumps(labels[5].tolist()))
    subprocess.run([sys.executable, EXAMPLES / "cifar10_from_png.py", sheets, target], env=with_wpriv, check=True)
    data = wpriv.training.data.read("cifar10", root=tmp_path, verify=False)
    assert np.array_equal(data.x_train, images[:5].reshape(10, 32, 32, 3).transpose(0, 3, 1, 2))
    assert np.array_equal(data.y_test, labels[5])
