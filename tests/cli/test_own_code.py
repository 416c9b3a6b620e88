"""Python files that a recipe names: their errors are those of the file, and no bug of the program."""

from __future__ import annotations

import json

import pytest

from wpriv.accounting import load_recipe
from wpriv.cli.main import main

NET = """from torch import nn

class Net(nn.Linear):
    def __init__(self, classes):
        super().__init__(64, classes)
        self.calls = 0

    def forward(self, x):
        return super().forward(x.flatten(1))

class Broken(Net):
    def forward(self, x):
        raise KeyError("a word")
"""
LOSS = """from torch.nn.functional import cross_entropy

CALLS = 0

def late(outputs, targets):
    global CALLS
    CALLS += 1
    if CALLS > 150:
        raise ArithmeticError("too late")
    return cross_entropy(outputs, targets, reduction="none")
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "loss.py").write_text(LOSS)
    return tmp_path


def train(folder, changes):
    data = {key: value for key, value in load_recipe.read("quick/digits").data.items() if key != "quick"}
    (folder / "own.yaml").write_text(json.dumps({**data, **changes}))
    return main(["train", str(folder / "own.yaml"), "--out", str(folder / "r")])


def test_a_network_that_fails_is_named_with_its_line(folder, capsys):
    assert train(folder, {"model": {"file": "net.py", "name": "Broken"}}) == 2
    assert "net.py:13: Broken.forward failed: KeyError: 'a word'" in capsys.readouterr().err


def test_a_loss_that_fails_within_the_training_is_named_and_the_run_can_be_resumed(folder, capsys):
    changes = {"model": {"file": "net.py", "name": "Net"}, "task": "fit"}
    changes["options"] = {"loss": {"file": str(folder / "loss.py"), "name": "late"}}
    assert train(folder, changes) == 2
    assert "loss.py:9: late failed: ArithmeticError: too late" in capsys.readouterr().err
    assert (folder / "r" / "checkpoint.pt").exists()
