"""What is learned is what was asked: labels keep their numbers or are declared, and every run names its classes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn

import wpriv
from wpriv.errors import FaultyRecords, UsageError
from wpriv.training import data

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 3)).astype(np.float32)
PLACES = np.digitize(X[:, 0], [-0.4, 0.4])  # three classes, 0 to 2
OPTIONS = {"sigma": 0.5, "delta": 1e-5, "batch": 80, "steps": 12, "lr": 1.0, "seed": 3, "progress": False}
pytestmark = pytest.mark.filterwarnings("ignore:.*seed")


def trained(folder, labels, outputs, x=X, **more):
    torch.manual_seed(0)
    model = more.pop("model", None) or nn.Linear(3, outputs)
    return wpriv.train(
        model, (x[:180], labels[:180]), test=(x[180:], labels[180:]), out=folder / "r", **OPTIONS, **more
    )


def predicted(run):
    """The oracle: the place of the largest output of the network itself."""
    with torch.no_grad():
        return run.model(torch.tensor(X[180:])).argmax(1).numpy()


def spent(folder):
    return (folder / "r" / "ledger.jsonl").exists()


@pytest.mark.parametrize(("scale", "shift", "outputs"), [(1, 0, 3), (2, 0, 5), (2, 0, 7), (1, 1, 4), (-1, 2, 3)])
def test_whole_labels_are_the_places_of_outputs(tmp_path, scale, shift, outputs):
    labels = scale * PLACES + shift
    run = trained(tmp_path, labels, outputs)
    accuracy = (predicted(run) == labels[180:]).mean()
    assert run.metrics[-1]["accuracy"] == pytest.approx(accuracy)
    assert accuracy > 0.6
    assert run.classes == tuple(range(outputs))
    assert run.statement["data"]["classes_from"] == "the numbers of the network's outputs"


@pytest.mark.parametrize(("scale", "shift", "found"), [(2, 0, 4), (1, 1, 3), (1, -1, -1), (1000, 0, 1000)])
def test_a_label_without_an_output_is_refused_before_anything_is_spent(tmp_path, scale, shift, found):
    with pytest.raises(UsageError, match=f"found {found} at record.*Declare the label of each output"):
        trained(tmp_path, scale * PLACES + shift, 3)
    assert not spent(tmp_path)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (PLACES * 2, [0, 2, 4]),
        (PLACES - 1, [1, 0, -1]),
        (PLACES + 1, range(1, 4)),
        (PLACES * 7.0, np.array([7, 0, 14])),
        (np.array(["low", "mid", "top"])[PLACES], ["top", "low", "mid"]),
    ],
)
def test_declared_classes_are_the_labels_of_the_outputs_in_their_order(tmp_path, labels, classes):
    run = trained(tmp_path, labels, 3, classes=classes)
    assert list(run.classes) == list(classes)
    right = np.array(run.classes)[predicted(run)] == labels[180:]
    assert run.metrics[-1]["accuracy"] == pytest.approx(right.mean())
    assert right.mean() > 0.6


def test_words_may_name_whole_labels_and_other_labels_are_refused(tmp_path):
    run = trained(tmp_path, PLACES, 3, classes=["low", "mid", "top"])
    assert run.classes == ("low", "mid", "top")
    assert run.metrics[-1]["accuracy"] == pytest.approx((predicted(run) == PLACES[180:]).mean())
    for labels, classes in ((PLACES + 1, ["low", "mid", "top"]), (PLACES, [0, 1])):
        with pytest.raises(FaultyRecords, match="none of the declared classes"):
            trained(tmp_path / "other", labels, 3, classes=classes)


def test_a_record_of_a_new_class_moves_no_target():
    labels = 2 * PLACES
    with_record = data.of_arrays("a", (X, np.append(labels[:-1], 1)), (X, labels), source="a test")
    without = data.of_arrays("a", (X, labels), (X, labels), source="a test")
    assert np.array_equal(with_record.y_train[:-1], without.y_train[:-1])


def test_every_run_names_its_classes_in_the_folder_the_header_and_the_result(tmp_path, capsys):
    words = np.array(["low", "mid", "top"])[PLACES]
    run = trained(tmp_path, words, 3)
    assert run.classes == ("low", "mid", "top")
    stored = json.loads((tmp_path / "r" / "statement.json").read_text())["data"]
    assert stored["classes"] == ["low", "mid", "top"]
    assert "taken as public" in stored["classes_from"]
    order = "classes by output: 0 = low, 1 = mid, 2 = top"
    assert order in (tmp_path / "r" / "statement.md").read_text()
    with safe_open(tmp_path / "r" / "model.safetensors", "pt") as file:
        assert json.loads(file.metadata()["classes"]) == ["low", "mid", "top"]
    again = wpriv.train(run.model, (X[:180], words[:180]), test=(X[180:], words[180:]), out=tmp_path / "r", **OPTIONS)
    assert again.classes == run.classes  # of a finished folder
    assert not capsys.readouterr().err
    shown = {**OPTIONS, "progress": True}
    wpriv.train(nn.Linear(3, 3), (X[:180], words[:180]), test=(X[180:], words[180:]), out=tmp_path / "b", **shown)
    assert order in capsys.readouterr().err


@pytest.mark.parametrize("loss", [None, "cross-entropy", nn.CrossEntropyLoss(), nn.NLLLoss(), nn.MultiMarginLoss()])
def test_numbers_to_predict_under_a_loss_of_classes_are_noticed_before_anything_is_spent(tmp_path, loss):
    for labels in (X[:, 0], np.round(X[:, 0], 1)):
        with pytest.raises(UsageError, match=r"numbers to predict.*squared"):
            trained(tmp_path, labels, 3, loss=loss)
    assert not spent(tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_target_that_is_no_finite_number_is_refused_by_its_record(tmp_path, value):
    labels = PLACES.astype(float)
    labels[17] = value
    for loss in (None, "squared", nn.CrossEntropyLoss()):
        with pytest.raises(FaultyRecords, match=r"training labels.*(nan|inf) at record 17"):
            trained(tmp_path, labels, 3, loss=loss)
    with pytest.raises(FaultyRecords, match="record 17: found 'nan', which stands for a missing value"):
        trained(tmp_path, np.where(np.arange(240) == 17, "nan", PLACES.astype(str)), 3)


@pytest.mark.parametrize("ignored", [-100, -1, 255, 1])
def test_ignored_records_have_no_share_in_the_gradient_nor_in_the_accuracy(tmp_path, ignored):
    labels = np.where(X[:, 1] > 0.8, ignored, PLACES)
    run = trained(tmp_path, labels, 3, loss=nn.CrossEntropyLoss(ignore_index=ignored))
    counts = labels[180:] != ignored
    assert run.metrics[-1]["accuracy"] == pytest.approx((predicted(run) == PLACES[180:])[counts].mean())
    # other numbers in the ignored records change nothing: their gradients are zero
    moved = np.where((labels == ignored)[:, None], 5 - X, X).astype(np.float32)
    other = trained(tmp_path / "b", labels, 3, x=moved, loss=nn.CrossEntropyLoss(ignore_index=ignored))
    assert torch.equal(run.model.weight, other.model.weight)


@pytest.mark.parametrize("ignored", [1, 2])
def test_a_label_to_ignore_that_is_the_place_of_another_class_is_refused(tmp_path, ignored):
    # torch would ignore the class at this place, and not the records of this label
    with pytest.raises(UsageError, match=f"ignore_index = {ignored} of the loss is the place of the class"):
        trained(tmp_path, 2 * PLACES, 3, classes=[4, 2, 0], loss=nn.CrossEntropyLoss(ignore_index=ignored))
    assert not spent(tmp_path)


def test_words_in_an_array_of_objects_are_words(tmp_path):
    words = np.array(["c", "a", "b"])[PLACES]
    one, other = trained(tmp_path / "a", words, 3), trained(tmp_path / "b", words.astype(object), 3)
    assert one.classes == other.classes == ("a", "b", "c")
    assert torch.equal(one.model.weight, other.model.weight)


def test_a_function_gets_whole_targets_as_they_are(tmp_path):
    signs = np.where(X[:, 0] > 0, 1, -1)

    def hinge(outputs, targets):
        return (1 - targets * outputs[:, 0]).relu()

    run = trained(tmp_path, signs, 1, loss=hinge)
    with torch.no_grad():
        outputs = run.model(torch.tensor(X[180:]))[:, 0].numpy()
    assert (np.sign(outputs) == signs[180:]).mean() > 0.8
    assert run.metrics[-1]["test_loss"] == pytest.approx(np.maximum(1 - signs[180:] * outputs, 0).mean(), rel=1e-5)
    assert run.classes == ()


@pytest.mark.parametrize("loss", ["squared", nn.MSELoss()])
def test_whole_numbers_to_predict_keep_their_values(tmp_path, loss):
    prices = (100 * PLACES - 20).astype(int)
    run = trained(tmp_path, prices, 1, loss=loss)
    with torch.no_grad():
        outputs = run.model(torch.tensor(X[180:]))[:, 0].numpy()
    assert run.metrics[-1]["test_loss"] == pytest.approx(np.square(outputs - prices[180:]).mean(), rel=1e-5)
    assert "accuracy" not in run.metrics[-1]


def test_binary_cross_entropy_refuses_targets_beyond_0_and_1_unless_they_are_declared(tmp_path):
    labels = np.where(X[:, 0] > 0, 2, 1)
    for loss in ("binary-cross-entropy", nn.BCEWithLogitsLoss()):
        with pytest.raises(UsageError, match="from 0 to 1; found 2"):
            trained(tmp_path, labels, 1, loss=loss)
    run = trained(tmp_path, labels, 1, loss=nn.BCEWithLogitsLoss(), classes=[1, 2])
    with torch.no_grad():
        assert ((run.model(torch.tensor(X[180:]))[:, 0].numpy() > 0) == (labels[180:] == 2)).mean() > 0.8
    assert run.classes == (1, 2)


def test_bfloat16_records_are_those_numbers_in_float32(tmp_path):
    x = torch.tensor(X).bfloat16()
    run = trained(tmp_path, PLACES, 3, x=x)
    other = trained(tmp_path / "b", PLACES, 3, x=x.float())
    assert torch.equal(run.model.weight, other.model.weight)
