"""What a user is told without asking: signatures, how to load the weights, columns of very different scales."""

from __future__ import annotations

import inspect
import pydoc
import random
import re

import pytest
import torch

import wpriv
from wpriv.cli.main import main
from wpriv.errors import UsageError
from wpriv.training.models import mlp
from wpriv.training.train import train

OWN = """
kind: train
source: "columns of very different scales"
task: classify
data: {name: table, file: people.csv, target: target}
model: {name: logistic}
privacy: {eps: 3, delta: 1e-4, clip: 1}
optimizer: {name: sgd, lr: 1}
batch: 60
steps: 2
"""


@pytest.mark.parametrize("verb", [name for name in wpriv.__all__ if name.islower()])
def test_help_shows_the_parameters_and_the_text_of_every_public_function(verb):
    function = getattr(wpriv, verb)
    names = list(inspect.signature(function).parameters)
    assert names
    text = pydoc.render_doc(function, renderer=pydoc.plaintext)
    assert all(name in text for name in names)
    assert "Raises:" in text


def test_the_signature_of_train_is_that_of_the_verb():
    assert inspect.signature(wpriv.train) == inspect.signature(train)
    assert inspect.getdoc(train) in inspect.getdoc(wpriv.train)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: wpriv.train(mlp, [[1.0]], [0], eps=3, delta=1e-5), r"recipe, data .*train\(model, \(x, y\), eps=3"),
        (lambda: wpriv.budget("gauss", 4, delta=1e-5), "found 2 values$"),
    ],
)
def test_values_without_keywords_that_a_verb_does_not_take_are_refused_in_words(call, told):
    with pytest.raises(UsageError, match=told):
        call()


@pytest.mark.slow
def test_the_end_of_a_training_says_how_its_weights_are_loaded(tmp_path, capsys):
    folder = tmp_path / 'it\'s "a" folder'
    assert main(["train", "quick/digits", "--set", "epochs=1", "--set", "expect=[]", "--out", str(folder)]) == 0
    (told,) = re.findall(r'torch\.load\(.*\)\["weights"\]', capsys.readouterr().err)
    weights = eval(told, {"torch": torch})
    model = mlp.build(mlp.Params(width=32, depth=1, activation="tanh"), (1, 8, 8), 10)
    assert model.load_state_dict(weights).missing_keys == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("largest", "change", "warned"),
    [
        (90_000, [], True),
        (90_000, ["--set", "options.normalise=null"], True),
        (3, [], False),
        (90_000, ["--set", "options.normalise={mean: [40, 4e4, 0.5], std: [20, 2e4, 0.3]}"], False),
    ],
)
def test_columns_of_very_different_scales_are_warned_of_by_name_and_by_no_value(
    tmp_path, capsys, largest, change, warned
):
    rng = random.Random(0)
    rows = [f"{rng.random():.3f},{rng.randint(1, largest)},{rng.random():.3f},{rng.randint(0, 1)}" for _ in range(300)]
    (tmp_path / "people.csv").write_text("\n".join(["age,income,share,target", *rows, ""]))
    (tmp_path / "own.yaml").write_text(OWN)
    line = ["train", str(tmp_path / "own.yaml"), "--data-root", str(tmp_path), "--out", str(tmp_path / "t"), *change]
    assert main(line) == 0
    err = capsys.readouterr().err
    assert ("very different scales" in err) == warned
    assert ("'income'" in err) == warned
    # the training records decide on the warning: nothing that is kept or published may hold it
    assert "income" not in (tmp_path / "t" / "statement.json").read_text()


@pytest.mark.parametrize("count", [20, 41])
def test_a_table_whose_lines_are_not_all_on_the_screen_says_so_and_names_the_file_with_all(tmp_path, capsys, count):
    out = tmp_path / "curve"
    line = ["compare", "--mech", "gauss", "--sigma", "3", "--accountant", "gdp", "--out", str(out)]
    assert main([*line, "--sweep", f"eps=linspace:0,2,{count}"]) == 0
    captured = capsys.readouterr()
    lines = len((out / "table.csv").read_text().splitlines()) - 1
    shown = sum(bool(re.match(r"[0-9.]+ +[0-9.e-]+$", text)) for text in captured.out.splitlines())
    assert (lines, shown) == (count, min(count, 24))
    note_shown = f"the screen shows 24 of {count} lines; {out / 'table.csv'} has all" in captured.err
    assert note_shown == (count > 24)
