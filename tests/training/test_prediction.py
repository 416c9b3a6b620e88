"""Predictions of finished trainings, and trainings in one file that another process reads."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import wpriv
from tests.training.test_own_training import OPTIONS, TEST, X, Y, network
from wpriv.errors import MissingResource, UsageError

WORDS = np.array(["no", "yes"])
GIVEN = {**OPTIONS, "eps": None, "sigma": 1.0}


def squared(outputs, targets):
    return ((outputs - targets) ** 2).flatten(1).sum(1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A training on words as labels, which tests only read."""
    out = tmp_path_factory.mktemp("trained") / "r"
    return wpriv.train(network(), (X, WORDS[Y]), test=(X[:50], WORDS[Y][:50]), out=out, **GIVEN)


def test_labels_and_probabilities_are_those_of_the_network_s_outputs(trained):
    with torch.no_grad():
        outputs = trained.model(torch.tensor(X))
    assert trained.classes == ("no", "yes")
    assert (trained.predict(X) == WORDS[outputs.argmax(1).numpy()]).all()
    assert np.allclose(trained.predict_proba(torch.tensor(X)), outputs.softmax(1).numpy())


def test_an_evaluation_of_the_test_records_gives_their_last_metrics(trained):
    figures = trained.evaluate(X[:50], WORDS[Y][:50])
    assert figures == pytest.approx({name: trained.metrics[-1][name] for name in ("accuracy", "test_loss")})
    with torch.no_grad():
        mean = float(cross_entropy(trained.model(torch.tensor(X[:50])), torch.tensor(Y[:50])))
    assert figures["test_loss"] == pytest.approx(mean)
    assert trained.evaluate((X[:50], WORDS[Y][:50])) == figures


def test_a_prediction_leaves_every_layer_in_its_mode(trained):
    trained.model[1].train()
    trained.predict(X)
    assert [layer.training for layer in trained.model] == [False, True, False]
    trained.model.eval()


READ = """
import sys
sys.path.insert(0, {root!r})
import numpy as np, wpriv
trained = wpriv.load({file!r})
print(trained)
np.save({numbers!r}, trained.predict_proba(np.load({records!r})))
"""


def test_another_process_reads_a_saved_training_and_predicts_the_same_bits(trained, tmp_path):
    file, numbers, records = (str(tmp_path / name) for name in ("t.wpriv", "numbers.npy", "records.npy"))
    np.save(records, X)
    trained.save(file)
    code = READ.format(root=sys.path[0], file=file, numbers=numbers, records=records)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(trained).strip()
    assert (np.load(numbers) == trained.predict_proba(X)).all()


def test_a_pickled_training_holds_no_record(trained):
    content = pickle.dumps(trained)
    assert len(content) < X.nbytes * 8  # recipe, guarantees and weights; the records are not there
    assert X[7].tobytes() not in content
    assert float(pickle.loads(content)) == trained.epsilon


def test_numbers_are_predicted_as_the_network_gives_them_and_a_function_as_loss_is_given_again(tmp_path):
    y = X.sum(1)
    options = {**GIVEN, "test": (X[:50], y[:50]), "out": tmp_path / "r"}
    trained = wpriv.train(nn.Linear(5, 1), (X, y), loss=lambda *both: squared(*both), **options)
    with torch.no_grad():
        assert (trained.predict(X) == trained.model(torch.tensor(X)).numpy()).all()
    assert trained.evaluate(X[:50], y[:50])["test_loss"] == pytest.approx(trained.metrics[-1]["test_loss"])
    with pytest.raises(UsageError, match="no probabilities"):
        trained.predict_proba(X)
    trained.save(tmp_path / "file")
    again = wpriv.load(tmp_path / "file")
    with pytest.raises(UsageError, match="give it as `loss`"):
        again.evaluate(X, y)
    assert again.evaluate(X, y, loss=squared) == trained.evaluate(X, y)


def test_one_output_for_two_classes_has_two_probabilities(tmp_path):
    y = Y.astype(np.float32)
    options = {**GIVEN, "test": (X[:50], y[:50]), "out": tmp_path / "r"}
    trained = wpriv.train(nn.Linear(5, 1), (X, y), loss=nn.BCEWithLogitsLoss(), classes=[0, 1], **options)
    with torch.no_grad():
        likely = trained.model(torch.tensor(X)).sigmoid().numpy()
    assert np.allclose(trained.predict_proba(X), np.hstack([1 - likely, likely]))
    assert (trained.predict(X) == (likely[:, 0] > 0.5)).all()


def test_the_network_of_a_recipe_is_built_again_with_its_weights(tmp_path):
    first = wpriv.train("quick/digits", out=tmp_path / "r")
    again = wpriv.train("quick/digits", out=tmp_path / "r")
    assert again.found
    from wpriv.training.data import read

    digits = read("digits")
    assert again.evaluate(digits.x_test, digits.y_test)["accuracy"] == first.metrics[-1]["accuracy"]


def test_records_of_another_form_and_trainings_without_predictions_are_refused(trained, tmp_path):
    for records, words in ((X[:, :4], "shape"), (X.astype(np.uint8), "bytes"), (3, "arrays"), (X[:0], "none")):
        with pytest.raises(UsageError, match=words):
            trained.predict(records)
    with pytest.raises(MissingResource, match="none of the declared"):
        trained.evaluate(X[:2], ["maybe", "no"])


def test_a_file_that_is_no_saved_training_is_refused(trained, tmp_path):
    (tmp_path / "text").write_text("no pickle")
    (tmp_path / "other").write_bytes(pickle.dumps({}))
    for name, words in (("text", "no such file"), ("other", "holds a dict"), (".", "is a folder")):
        with pytest.raises(UsageError, match=words):
            wpriv.load(tmp_path / name)
    with pytest.raises(MissingResource, match="cannot be read"):
        wpriv.load(tmp_path / "absent")


def test_a_network_that_cannot_be_pickled_is_named_with_its_weights(tmp_path):
    model = network()
    model[1].forward = lambda x: x.tanh()
    trained = wpriv.train(model, (X, Y), test=TEST, out=tmp_path / "r", **GIVEN)
    with pytest.raises(UsageError, match=r"model\.safetensors"):
        trained.save(tmp_path / "file")
