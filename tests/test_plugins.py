"""Adding a mechanism or an accountant is one new file and no registration line."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import wpriv
import wpriv.training.data
from wpriv.cli.main import main
from wpriv.core import registry
from wpriv.errors import UsageError

SMALLEST = {
    "mechanisms": 13,
    "accountants": 18,
    "figures": 11,
    "tables": 6,
    "data": 12,
    "models": 7,
    "tasks": 1,
    "readers": 1,
}

COIN = '''
from dataclasses import dataclass

import numpy as np

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import parameter


@dataclass(frozen=True)
class Coin(Mechanism):
    """Shows the record with a probability, else nothing."""

    share: float = parameter("probability of showing the record", exclusive_minimum=0.0)

    def pair(self) -> LossPair:
        return AtomicPair(np.zeros(1), np.log1p([-self.share]), self.share, self.share, symmetric=True)
'''
SHRUG = '''
"""Always delta = 1."""

from wpriv.core.guarantee import Curve
from wpriv.numerics.bracket import Bracket

NOTION, CLAIM, SOURCE, EXPLAIN = "approximate-dp", "upper-bound", "nothing is known", "delta <= 1."


def account(process, *, tol=1e-3):
    delta, epsilon = Bracket.above(1.0), Bracket.above(float("inf"))
    return Curve(process, "shrug", NOTION, CLAIM, SOURCE, lambda _: delta, lambda _: epsilon)
'''
SQUARES = '''
"""Squares of a few numbers."""

from dataclasses import dataclass

from wpriv.core.parameters import Parameters, parameter

COLUMNS = ("square",)


@dataclass(frozen=True)
class Params(Parameters):
    start: float = parameter("the first number", exclusive_minimum=0.0)
    count: int = parameter("how many", default=2, minimum=1)
    name: str = parameter("a word", default="x")


def rows(params):
    return [{"place": i, "square": (params.start + i) ** 2} for i in range(params.count)]
'''

PARITY = '''
"""The numbers 0 to 7 in bits, and whether each is odd."""

from dataclasses import dataclass

import numpy as np

from wpriv.core.parameters import Parameters
from wpriv.training.data import Data

ABOUT, GET = "parity of three bits", "It is made up."


@dataclass(frozen=True)
class Params(Parameters):
    pass


def read(root, params):
    x = np.array([[i >> j & 1 for j in range(3)] for i in range(8)], np.float32)
    y = np.arange(8) % 2
    return Data("synthetic-parity", x, y, x, y, ("even", "odd"), "made up")
'''

MEAN = '''
"""A model of logits whose loss is their mean square; records are not used."""

import numpy as np

from wpriv.config.field_types import StrictModel
from wpriv.training.tasks import TaskSpec


class Options(StrictModel):
    weight: float = 1.0


def build_job(recipe, data, device, *, adjacency):
    import torch

    from wpriv.training import models
    from wpriv.training.engine.job import Job
    from wpriv.training.engine.update_rules import UpdateRule

    model = models.build(recipe.model, data.shape, 2)
    optimizer = UpdateRule(model.parameters(), recipe.optimizer)

    def custom_step(places, gate):
        loss = model(torch.ones(1, *data.shape)).square().mean() * Options.model_validate(recipe.options).weight
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return torch.tensor([len(places), 0.0, 0.0])

    return Job(
        model, None, lambda: {"size": 1.0}, custom_step=custom_step, optimizers={"all": optimizer},
        save_artifacts=lambda folder: (folder / "notes.txt").write_text("none"),
    )


TASK = TaskSpec(options=Options, results=("size",), build_job=build_job, files=("notes.txt",))
'''


@pytest.fixture
def drop(tmp_path, monkeypatch):
    """Put a file beside the plug-ins of a folder for the duration of a test."""
    dropped = []

    def put(folder: str, name: str, source: str) -> None:
        where = registry.FOLDERS[folder][0]
        package = importlib.import_module(f"wpriv.{where}")
        home = tmp_path / folder
        home.mkdir()
        (home / f"{name}.py").write_text(source)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(home)])
        dropped.append(f"wpriv.{where}.{name}")

    yield put
    for module in dropped:
        sys.modules.pop(module, None)


def test_a_mechanism_in_one_new_file_is_known_by_name(drop):
    drop("mechanisms", "coin", COIN)
    assert "coin" in registry.names("mechanisms")
    row = wpriv.budget("coin", share=0.01, n=3, eps=1.0)
    exact = 1 - 0.99**3  # some coin has shown the record; otherwise nothing is learnt
    assert row.delta.lower <= exact * (1 + 1e-12)
    assert exact <= row.delta.upper * (1 + 1e-12)
    assert row.delta.upper == pytest.approx(exact, rel=1e-3)


def test_a_mechanism_of_another_package_is_known_by_its_entry_point(tmp_path, monkeypatch, capsys):
    (tmp_path / "strange_coins.py").write_text(COIN)
    about = tmp_path / "strange_coins-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: strange-coins\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[wpriv.mechanisms]\nstrange-coin = strange_coins\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry._entry_points.cache_clear()
    try:
        assert registry.known("mechanisms", "strange-coin")
        assert "strange-coin" in registry.names("mechanisms")
        assert main(["budget", "--mech", "strange-coin", "--param", "share=0.01", "--n", "3", "--eps", "1"]) == 0
        assert "delta = 0.0297" in capsys.readouterr().out
    finally:
        registry._entry_points.cache_clear()
        registry._mechanism.cache_clear()
        sys.modules.pop("strange_coins", None)


def test_an_accountant_in_one_new_file_is_known_by_name(drop):
    drop("accountants", "shrug", SHRUG)
    assert wpriv.budget("gauss", sigma=1.0, eps=1.0, accountant="shrug").delta.safe == 1.0


def test_a_table_in_one_new_file_is_made_by_a_recipe(drop, tmp_path):
    drop("tables", "squares", SQUARES)
    recipe = tmp_path / "r.yaml"
    text = "kind: compare\nsource: s\ntable: squares\nparams: {count: 1}\nsweep: {over: start, values: [2, 3]}\n"
    recipe.write_text(text + "expect:\n  - {where: {start: 3}, square: 9, within: 1e-12, source: s}\n")
    done = wpriv.compare(recipe, out=tmp_path / "out")
    done.require()
    assert [(row["start"], row["square"]) for row in done.rows] == [(2, 4.0), (3, 9.0)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"table": "square"}, "'squares'"),
        ({"table": "squares"}, "squares needs start"),
        ({"table": "squares", "params": {"start": -1}}, "found -1"),
        ({"table": "squares", "params": {"start": "a"}}, "found 'a'"),
        ({"table": "squares", "params": {"start": 1, "name": 2}}, "name must be text"),
        ({"table": "squares", "params": {"start": 1, "conut": 2}}, "did you mean 'count'"),
        ({"table": "squares", "params": {"start": 1}, "sweep": {"over": "n", "values": [1]}}, "'n'"),
        ({"table": "squares", "params": {"start": 1}, "delta": 0.1}, "'delta'"),
        (
            {"params": {"start": 1}, "process": [{"mech": "gauss", "sigma": 1}], "accountants": ["pld"], "eps": 1},
            "'params'",
        ),
    ],
)
def test_wrong_parameters_of_a_table_are_named(drop, given, words):
    drop("tables", "squares", SQUARES)
    with pytest.raises(UsageError) as error:
        wpriv.compare(**given)
    assert words in str(error.value)


def test_a_data_set_in_one_new_file_is_read_and_listed(drop, capsys):
    drop("data", "parity", PARITY)
    assert wpriv.training.data.read("parity").y_train.tolist() == [0, 1] * 4
    assert main(["data", "show", "parity"]) == 0
    assert capsys.readouterr().out.startswith("synthetic-parity: 8 to train on and 8 to test on, 3 float32")


@pytest.mark.slow
def test_a_task_in_one_new_file_is_trained_by_a_recipe(drop, tmp_path):
    drop("tasks", "mean_square", MEAN)
    recipe = tmp_path / "r.yaml"
    text = (
        "kind: train\nsource: s\ntask: mean-square\ndata: {name: toy, points: 20, tests: 5}\nmodel: {name: logistic}\n"
    )
    recipe.write_text(text + "privacy: none\noptimizer: {lr: 0.1}\nbatch: 5\nsteps: 2\nseed: 0\n")
    wpriv.train(recipe, out=tmp_path / "out")
    assert (tmp_path / "out" / "notes.txt").read_text() == "none"
    assert "size" in (tmp_path / "out" / "metrics.csv").read_text()


@pytest.mark.parametrize(("kind", "smallest_count"), SMALLEST.items())
def test_every_file_of_a_kind_is_known_by_its_name_and_loads(kind, smallest_count):
    names = []
    for folder in registry.FOLDERS[kind]:
        package = f"wpriv.{folder}"
        home = Path(wpriv.__file__).parent.joinpath(*folder.split("."))
        files = [path.stem.replace("_", "-") for path in home.rglob("*.py") if not path.stem.startswith("_")]
        declared = getattr(importlib.import_module(package), "DECLARED", {})
        names += [*files, *declared]
        for name, plugin in declared.items():
            assert registry.load(kind, name) is plugin
        for name in files:
            assert registry.load(kind, name).__name__ == f"{package}.{name.replace('-', '_')}"
    assert len(names) == len(set(names)) >= smallest_count
    assert set(names) == set(registry.names(kind))


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(UsageError, match="did you mean 'gauss'"):
        registry.load("mechanisms", "gaus")
