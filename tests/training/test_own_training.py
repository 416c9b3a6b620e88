"""Private training of networks, losses and records of the user's own, from Python and from recipes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import wpriv
from wpriv.accounting import load_recipe
from wpriv.errors import MissingResource, Unsupported, UsageError
from wpriv.files import python_file
from wpriv.training import train as train_verb
from wpriv.training.tasks import _given

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 5)).astype(np.float32)
Y = (X @ np.arange(5.0) > 0).astype(int)
TEST = (X[:50], Y[:50])
OPTIONS = {"eps": 3, "delta": 1e-5, "batch": 100, "steps": 4, "lr": 0.5, "seed": 3, "progress": False}
pytestmark = pytest.mark.filterwarnings("ignore:.*seed")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))


def weights(folder) -> dict[str, torch.Tensor]:
    return torch.load(folder / "model.pt", weights_only=True)["weights"]


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_a_network_is_trained_in_place_with_the_guarantee_of_its_noise(tmp_path):
    model = network()
    first = {key: value.clone() for key, value in model.state_dict().items()}
    trained = wpriv.train(model, (X, Y), test=TEST, out=tmp_path / "r", **OPTIONS)
    assert trained.model is model
    assert not same(first, model.state_dict())
    assert same(model.state_dict(), weights(tmp_path / "r"))
    step = wpriv.Step(wpriv.Gauss(sigma=trained.plan.multiplier), 4, wpriv.Poisson(0.25))
    bracket = wpriv.curve(wpriv.Process((step,)), "pld").at(delta=1e-5).epsilon
    assert trained.guarantee.epsilon.upper == pytest.approx(bracket.upper, rel=1e-6)
    assert trained.guarantee.epsilon.safe <= 3
    assert trained.statement["private"]
    assert len((tmp_path / "r" / "ledger.jsonl").read_text().splitlines()) == 4


def test_a_recipe_trains_the_network_that_a_file_defines(tmp_path):
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\ndef net(classes, width=8):\n"
        "    return nn.Sequential(nn.Linear(5, width), nn.Tanh(), nn.Linear(width, classes))\n"
    )
    np.savez(tmp_path / "mine.npz", x_train=X, y_train=Y, x_test=TEST[0], y_test=TEST[1])
    (tmp_path / "own.yaml").write_text(
        "kind: train\nsource: a test\ntask: classify\n"
        f"data: {{name: arrays, file: {tmp_path / 'mine.npz'}}}\nmodel: {{file: net.py, name: net, width: 8}}\n"
        "privacy: {eps: 3, delta: 1e-5, clip: 1.0}\noptimizer: {name: sgd, lr: 0.5}\nbatch: 100\nsteps: 4\nseed: 3\n"
    )
    trained = wpriv.train(tmp_path / "own.yaml", out=tmp_path / "recipe")
    model = network()
    model.load_state_dict(weights(tmp_path / "recipe"))
    assert trained.metrics[-1]["accuracy"] == pytest.approx(
        float((model(torch.tensor(TEST[0])).argmax(1).numpy() == TEST[1]).mean())
    )
    stored = load_recipe.read(tmp_path / "recipe" / "recipe.yaml").training.model
    assert len(stored.sha256) == 16


def test_a_changed_file_is_another_recipe(tmp_path):
    path = tmp_path / "net.py"
    path.write_text("from torch import nn\n\ndef net(classes):\n    return nn.Linear(64, classes)\n")
    text = load_recipe.read("quick/digits").data | {"model": {"file": "net.py", "name": "net"}}
    (tmp_path / "own.yaml").write_text(json.dumps(text))
    first = load_recipe.read(tmp_path / "own.yaml")
    path.write_text(path.read_text() + "\n# changed\n")
    second = load_recipe.read(tmp_path / "own.yaml")
    assert first.data["model"]["sha256"] != second.data["model"]["sha256"]
    with pytest.raises(UsageError, match="sha256"):
        train_verb.changed(first, {"steps": 3})


@pytest.mark.parametrize("form", ["tensors", "dataset", "tensor_dataset"])
def test_records_may_be_tensors_or_datasets(tmp_path, form):
    x, y = torch.tensor(X), torch.tensor(Y)
    data = {"tensors": (x, y), "dataset": Pairs(x, y), "tensor_dataset": TensorDataset(x, y)}[form]
    one = wpriv.train(network(), data, test=TEST, out=tmp_path / "one", **OPTIONS)
    two = wpriv.train(network(), (X, Y), test=TEST, out=tmp_path / "two", **OPTIONS)
    assert one.metrics[-1]["accuracy"] == two.metrics[-1]["accuracy"]
    assert same(weights(tmp_path / "one"), weights(tmp_path / "two"))


class Pairs(torch.utils.data.Dataset):
    """Pairs of records and labels, one at a time."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, k):
        return self.x[k], self.y[k]


@pytest.mark.parametrize(
    "loss", ["squared", nn.MSELoss(), lambda outputs, targets: (outputs - targets).square().mean(dim=1)]
)
def test_every_way_to_name_the_squared_loss_trains_alike(tmp_path, loss):
    torch.manual_seed(0)
    target = X @ np.arange(5.0)
    trained = wpriv.train(nn.Linear(5, 1), (X, target), test=(X[:9], target[:9]), loss=loss, out=tmp_path, **OPTIONS)
    torch.manual_seed(0)
    other = wpriv.train(
        nn.Linear(5, 1), (X, target), test=(X[:9], target[:9]), loss="squared", out=tmp_path / "again", **OPTIONS
    )
    for one, two in zip(trained.model.parameters(), other.model.parameters(), strict=True):
        assert torch.allclose(one, two, atol=1e-6)


def test_a_finished_training_is_read_again_and_not_trained_again(tmp_path):
    first = wpriv.train(network(), (X, Y), test=TEST, out=tmp_path, **OPTIONS)
    again = wpriv.train(network(), (X, Y), test=TEST, out=tmp_path, **OPTIONS)
    assert again.metrics == first.metrics
    assert same(again.model.state_dict(), first.model.state_dict())


@pytest.mark.parametrize(
    ("changes", "what"),
    [({"steps": 5}, "another recipe"), ({"data": (X[::-1].copy(), Y)}, "other records"), ({"clip": 2}, "another")],
)
def test_results_of_another_training_are_not_taken_for_those_of_this_one(tmp_path, changes, what):
    wpriv.train(network(), (X, Y), test=TEST, out=tmp_path, **OPTIONS)
    arguments = {"data": (X, Y), **OPTIONS, **changes}
    with pytest.raises(UsageError, match=what):
        wpriv.train(network(), test=TEST, out=tmp_path, **arguments)


def test_no_number_computed_from_the_records_stands_in_the_recipe(tmp_path):
    wpriv.train(network(), (X, Y), test=TEST, out=tmp_path / "one", **OPTIONS)
    wpriv.train(network(), (X + 1, Y), test=TEST, out=tmp_path / "two", **OPTIONS)
    one, two = ((tmp_path / name / "recipe.yaml").read_text() for name in ("one", "two"))
    assert one == two


@pytest.mark.parametrize(
    ("arguments", "error", "word"),
    [
        ({"lr": None}, UsageError, "`lr`"),
        ({"eps": None}, UsageError, "`eps`"),
        ({"bacth": 3}, UsageError, "did you mean 'batch'"),
        ({"data": X}, UsageError, "`data`"),
        ({"data": None}, UsageError, "`data`"),
        ({"data": (X, Y[:7])}, MissingResource, "7 labels"),
        ({"data": (X[:, :4], Y), "test": (X[:5, :4], Y[:5])}, UsageError, "network"),
        ({"data": (X, X[:, 0]), "test": (X[:5], X[:5, 0])}, UsageError, "`loss='squared'`"),
        ({"loss": 3}, UsageError, "`loss`"),
        ({"loss": lambda outputs, targets: outputs.mean()}, UsageError, "each record"),
        ({"loss": lambda outputs, targets: outputs.sum(1) * outputs.mean()}, Unsupported, "mixes"),
        ({"model": nn.Sequential(nn.Linear(5, 2), nn.BatchNorm1d(2))}, Unsupported, "BatchNorm1d"),
        ({"model": 3}, UsageError, "torch.nn.Module"),
        ({"model": nn.Sequential(nn.LazyLinear(2))}, UsageError, "no shape yet"),
        ({"model": nn.Linear(5, 2).double()}, UsageError, r"float\(\)"),
        ({"data": (X, np.arange(400) % 3)}, UsageError, "from 0 to 2"),
        ({"test": (X[:50], np.full(50, 7))}, UsageError, "found 7 at record 0"),
        ({"data": (X, np.eye(2)[Y])}, MissingResource, "both be classes"),
        ({"loss": nn.MSELoss()}, UsageError, "one shape"),
        ({"loss": "cross-entropy", "data": (X, X[:, 0]), "test": (X[:5], X[:5, 0])}, UsageError, "numbers"),
        ({"privacy": "none"}, UsageError, "leave out"),
        ({"device": "gpu"}, UsageError, "cpu or cuda"),
        ({"set": {"steps": 1}}, UsageError, "`set`"),
        ({"sampling": "poison"}, UsageError, "sampling"),
    ],
)
def test_what_cannot_be_trained_soundly_is_refused_and_leaves_no_folder(tmp_path, arguments, error, word):
    call = {"model": network(), "data": (X, Y), "test": TEST, **OPTIONS, **arguments}
    with pytest.raises(error, match=word):
        wpriv.train(call.pop("model"), call.pop("data"), out=tmp_path / "r", **call)
    assert not (tmp_path / "r" / "ledger.jsonl").exists()


def test_options_of_a_network_are_refused_beside_a_recipe():
    with pytest.raises(UsageError, match="`eps`"):
        wpriv.train("quick/digits", eps=3)


def test_the_recipe_of_a_python_training_says_that_only_python_can_run_it(tmp_path):
    wpriv.train(network(), (X, Y), test=TEST, out=tmp_path / "r", **OPTIONS)
    with pytest.raises(UsageError, match=r"wpriv\.train"):
        wpriv.train(tmp_path / "r" / "recipe.yaml", out=tmp_path / "again")


def test_without_a_folder_each_training_gets_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = [wpriv.train(network(), (X, Y), test=TEST, **OPTIONS).out for _ in range(2)]
    assert [str(folder) for folder in folders] == ["results/Sequential", "results/Sequential-2"]


def test_training_without_privacy_is_said_to_promise_nothing(tmp_path):
    options = {**OPTIONS, "eps": None, "delta": None}
    trained = wpriv.train(network(), (X, Y), test=TEST, privacy="none", out=tmp_path, **options)
    assert not trained.statement["private"]
    with pytest.raises(Unsupported):
        _ = trained.guarantee


def test_a_loss_in_a_file_trains_like_the_same_loss_by_name(tmp_path):
    np.savez(tmp_path / "mine.npz", x=X, y=X @ np.arange(5.0))
    (tmp_path / "loss.py").write_text(
        "def squared(outputs, targets):\n    return (outputs - targets).square().mean(1)\n"
    )
    rows = []
    for name, loss in (("named", "squared"), ("own", {"file": str(tmp_path / "loss.py"), "name": "squared"})):
        recipe = {
            "kind": "train", "source": "a test", "task": "fit",
            "data": {"name": "arrays", "file": str(tmp_path / "mine.npz")},
            "model": {"name": "mlp", "width": 8}, "options": {"loss": loss},
            "privacy": {"eps": 3, "delta": 1e-5}, "optimizer": {"name": "sgd", "lr": 0.1},
            "batch": 100, "steps": 3, "seed": 1,
        }  # fmt: skip
        (tmp_path / f"{name}.yaml").write_text(json.dumps(recipe))
        rows.append(wpriv.train(tmp_path / f"{name}.yaml", out=tmp_path / name).metrics[-1])
    assert rows[0]["test_loss"] == pytest.approx(rows[1]["test_loss"], rel=1e-5)


def test_data_files_may_lie_beside_the_recipe(tmp_path, monkeypatch):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "elsewhere").mkdir()
    np.savez(tmp_path / "recipes" / "mine.npz", x=X, y=Y)
    (tmp_path / "recipes" / "own.yaml").write_text(
        "kind: train\nsource: a test\ntask: classify\ndata: {name: arrays, file: mine.npz}\n"
        "model: {name: logistic}\nprivacy: {eps: 3, delta: 1e-5}\noptimizer: {name: sgd, lr: 0.5}\n"
        "batch: 100\nsteps: 2\n"
    )
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = load_recipe.read("../recipes/own.yaml").training.data.file
    assert found == str(tmp_path / "recipes" / "mine.npz")
    # a file in the working directory is taken as before
    np.savez("mine.npz", x=X, y=Y)
    assert load_recipe.read("../recipes/own.yaml").training.data.file == "mine.npz"


def test_a_finished_training_prints_as_one_line(tmp_path):
    trained = wpriv.train(network(), (X, Y), test=TEST, out=tmp_path / "r", **OPTIONS)
    line = trained.sentence()
    assert str(trained).split("\n") == [line, *(f"  warning: {each}" for each in trained.warnings)]
    assert repr(trained).startswith(f"<Trained: {line}>")
    assert "\n" not in line
    assert line.startswith("Sequential: accuracy 0.")
    assert "eps = 3 (certified, delta 1e-5)" in line


def test_classification_of_numbers_to_predict_is_refused_and_not_trained_as_one_class(tmp_path):
    np.savez(tmp_path / "mine.npz", x=X, y=X[:, 0])
    changes = {"data": {"name": "arrays", "file": str(tmp_path / "mine.npz")}, "data.records": None}
    with pytest.raises(UsageError, match="to predict"):
        wpriv.train("quick/digits", set=changes, out=tmp_path / "r")


def test_the_digest_of_a_file_goes_with_the_file_where_a_key_is_changed(tmp_path):
    for name, width in (("a.py", 2), ("b.py", 3)):
        text = f"from torch import nn\n\ndef net(classes):\n    return nn.Linear(64, classes)  # {width}\n"
        (tmp_path / name).write_text(text)
    written = load_recipe.read("quick/digits").data | {"model": {"file": str(tmp_path / "a.py"), "name": "net"}}
    (tmp_path / "own.yaml").write_text(json.dumps(written))
    first = train_verb.recipe_of(tmp_path / "own.yaml")
    second = train_verb.recipe_of(tmp_path / "own.yaml", changes={"model.file": str(tmp_path / "b.py")})
    assert second.data["model"]["sha256"] == python_file.digest(tmp_path / "b.py")
    assert first.data["model"]["sha256"] == python_file.digest(tmp_path / "a.py") != second.data["model"]["sha256"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"eps": float("inf"), "sigma": 1.0}, "trains without noise"),
        ({"privacy": {"eps": float("inf"), "sigma": 1.0, "delta": 1e-5}, "eps": None}, "trains without noise"),
        ({"eps": 1.0, "privacy": {"eps": 8.0}}, "give it once"),
        ({"delta": 1e-6, "privacy": {"delta": 1e-3}}, "give it once"),
        ({"clip": 0.5, "privacy": {"clip": 2.0}}, "give it once"),
        ({"sampling": "poisson", "privacy": {"sampling": "fixed"}}, "give it once"),
        ({"optimizer": {"name": "sgd", "lr": 0.1}}, "give it once"),
    ],
)
def test_a_target_that_another_one_contradicts_is_refused_and_not_dropped(tmp_path, change, word):
    with pytest.raises(UsageError, match=word):
        wpriv.train(network(), (X, Y), out=tmp_path / "r", **{**OPTIONS, **change})


@pytest.mark.parametrize("form", [torch.Tensor.bfloat16, torch.Tensor.half, torch.Tensor.to_sparse])
def test_tensors_of_other_forms_are_the_arrays_of_their_numbers(form):
    numbers = torch.tensor([[0.5, -2.0], [1.0, 0.0]])
    for given in ((form(numbers), numbers[:, 0]), TensorDataset(form(numbers).to_dense(), numbers[:, 0])):
        x, y = _given.pair(given, "data")
        assert x.tolist() == numbers.tolist()
        assert y.tolist() == [0.5, 1.0]
    rows = [(numbers[0].bfloat16(), torch.tensor(0.5)), (numbers[1].bfloat16(), torch.tensor(1.0))]
    assert _given.pair(Rows(rows), "data")[0].tolist() == numbers.tolist()


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, place):
        return self.rows[place]


def test_a_tensor_that_is_no_array_is_refused_by_its_argument():
    with pytest.raises(UsageError, match="`data` holds a tensor of torch"):
        _given.pair((torch.ones(2, 2, device="meta"), torch.ones(2)), "data")


def test_a_loop_over_records_is_named_where_no_faster_method_is_right(tmp_path, capsys):
    class Unusual(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(5, 2))

        def forward(self, x):
            return torch.stack([row @ self.weight * (1.0 if row[0].item() > 0 else 2.0) for row in x])

    options = {"sigma": 1.0, "delta": 1e-5, "batch": 10, "steps": 1, "lr": 0.1, "test": TEST}
    wpriv.train(Unusual(), (X[:40], Y[:40]), out=tmp_path / "r", **options)
    assert "one after another" in capsys.readouterr().err
