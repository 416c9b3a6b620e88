"""Every form of records that ``wpriv.train`` takes: the sum of a step is that of a literal loop over records alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

import wpriv
from wpriv.errors import FaultyRecords, UsageError
from wpriv.training import own_training
from wpriv.training.data import Packed, of_persons
from wpriv.training.tasks import _given, _supervised

N, T, WORDS = 30, 6, 11
OPTIONS: dict[str, Any] = {"sigma": 1.0, "delta": 1e-5, "batch": 8, "steps": 3, "lr": 0.1, "clip": 0.5}
GENERATOR = torch.Generator().manual_seed(4)
TOKENS = torch.randint(0, WORDS, (N, T), generator=GENERATOR)
MASK = (torch.arange(T) <= torch.arange(N)[:, None] % T).long()
KINDS = torch.arange(N) % 3
NUMBERS = torch.randn(N, 5, generator=GENERATOR)


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(WORDS, 4), nn.Linear(4, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.out((self.words(input_ids) * attention_mask[..., None]).sum(dim=1))


class Words(nn.Module):
    """Logits [B, T, K], as most language models give them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(WORDS, 4), nn.Linear(4, WORDS)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.words(x))


class Rows(Dataset[Any]):
    def __len__(self) -> int:
        return N

    def __getitem__(self, k: int) -> tuple[dict[str, Tensor], int]:
        return {"input_ids": TOKENS[k], "attention_mask": MASK[k]}, int(KINDS[k])


def of_step(model: nn.Module, data: Any, places: Any = (0, 3, 5, 5 + 1), **options: Any) -> tuple[Tensor, Any]:
    """The clipped sum of one step on some training records, with the training that was made of them."""
    training = own_training.own_training(model, data, **{**OPTIONS, **options})
    job = training.build_job(training.recipe.train, training.data, torch.device("cpu"), adjacency="add-remove")
    assert job.aggregate is not None
    total = job.aggregate(np.asarray(places, dtype=np.int64)).total
    return torch.cat([part.reshape(-1) for part in total.parts]), job


def literal(model: nn.Module, losses: list[Tensor], clip: float = 0.5) -> Tensor:
    """The definition: the sum of the gradients of the losses, each times min(1, C / norm)."""
    total = torch.zeros(sum(p.numel() for p in model.parameters()))
    for loss in losses:
        grads = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True, materialize_grads=True)
        row = torch.cat([grad.reshape(-1) for grad in grads])
        total += row * min(1.0, clip / max(float(row.norm()), 1e-30))
    return total


def close(one: Tensor, other: Tensor) -> bool:
    return float((one - other).norm()) <= 2e-5 * float(other.norm())


@pytest.mark.parametrize("form", ["tensors", "arrays", "dataset", "loader", "custom collate", "with workers"])
def test_a_dictionary_is_trained_by_the_names_of_arguments_whatever_holds_it(form):
    def collate(rows: list[Any]) -> Any:
        return {key: torch.stack([x[key] for x, _ in rows]) for key in rows[0][0]}, torch.tensor([y for _, y in rows])

    inputs = {"input_ids": TOKENS, "attention_mask": MASK}
    forms: dict[str, Any] = {
        "tensors": (inputs, KINDS),
        "arrays": ({key: part.numpy() for key, part in inputs.items()}, KINDS.numpy()),
        "dataset": Rows(),
        "loader": DataLoader(Rows(), batch_size=7, shuffle=True),
        "custom collate": DataLoader(Rows(), batch_size=7, collate_fn=collate),
        "with workers": DataLoader(Rows(), num_workers=1),
    }
    model = Named()
    test = (inputs, KINDS)
    if isinstance(forms[form], DataLoader):
        with pytest.warns(UserWarning, match="its batch size, shuffle and sampler are not"):
            total, job = of_step(model, forms[form], test=test)
    else:
        total, job = of_step(model, forms[form], test=test)
    wanted = [F.cross_entropy(model(TOKENS[k : k + 1], MASK[k : k + 1]), KINDS[k : k + 1]) for k in (0, 3, 5, 6)]
    assert close(total, literal(model, wanted))
    empty, targets = job.fetch(np.arange(0))
    assert {key: (part.shape, part.dtype) for key, part in empty.value.items()} == {
        key: ((0, T), torch.int64) for key in inputs
    }
    assert targets.shape == (0,)
    assert not bool(of_step(model, forms["tensors"], (), test=test)[0].any())


def test_targets_for_each_token_have_the_mean_over_those_that_count():
    targets = TOKENS.roll(1, 1).masked_fill(MASK == 0, -100)
    targets[3] = -100
    model = Words()
    total, _ = of_step(model, (TOKENS, targets), tokens=WORDS, test=(TOKENS, targets))
    losses = [F.cross_entropy(model(TOKENS[k : k + 1])[0], targets[k]) for k in (0, 5, 6)]  # 3 counts nothing
    assert close(total, literal(model, losses))
    named = of_step(model, (TOKENS, targets), tokens=WORDS, test=(TOKENS, targets), loss=nn.CrossEntropyLoss())[0]
    assert torch.equal(total, named)


def test_the_losses_of_a_training_are_those_of_torch_on_each_record_alone(tmp_path):
    targets = TOKENS.roll(1, 1).masked_fill(MASK == 0, -100)
    model = Words()
    with torch.no_grad():
        before = [float(F.cross_entropy(model(TOKENS[k : k + 1])[0], targets[k])) for k in range(N)]
    options = {**OPTIONS, "sampling": "none", "batch": None, "steps": 1, "progress": False}
    trained = wpriv.train(model, (TOKENS, targets), test=(TOKENS, targets), tokens=WORDS, out=tmp_path / "r", **options)
    assert trained.metrics[-1]["loss"] == pytest.approx(np.mean(before), rel=1e-5)


def test_series_are_no_grey_pictures_where_the_network_takes_them_as_they_are():
    series = torch.randn(N, 4, 7, generator=GENERATOR)
    model = nn.Sequential(nn.Conv1d(4, 3, 3), nn.Flatten(), nn.Linear(15, 3))
    total, _ = of_step(model, (series, KINDS), test=(series, KINDS))
    assert close(
        total, literal(model, [F.cross_entropy(model(series[k : k + 1]), KINDS[k : k + 1]) for k in (0, 3, 5, 6)])
    )
    pictures = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten(), nn.Linear(30, 3))
    grey = [F.cross_entropy(pictures(series[k : k + 1, None]), KINDS[k : k + 1]) for k in (0, 3, 5, 6)]
    assert close(of_step(pictures, (series, KINDS), test=(series, KINDS))[0], literal(pictures, grey))


def test_records_without_targets_are_their_own_targets():
    model = nn.Linear(5, 5)

    def rebuilt(outputs: Tensor, x: Tensor) -> Tensor:
        return (outputs - x).square().sum(dim=1)

    total, _ = of_step(model, NUMBERS, test=NUMBERS, loss=rebuilt)
    assert close(total, literal(model, [rebuilt(model(NUMBERS[k : k + 1]), NUMBERS[k : k + 1]) for k in (0, 3, 5, 6)]))
    with pytest.raises(UsageError, match="give `loss`"):
        of_step(model, NUMBERS)


def test_several_tasks_have_a_dictionary_of_targets():
    class Tasks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kind, self.size = nn.Linear(5, 3), nn.Linear(5, 1)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"kind": self.kind(x), "size": self.size(x).squeeze(1)}

    def both(outputs: dict[str, Tensor], targets: dict[str, Tensor]) -> Tensor:
        kind = F.cross_entropy(outputs["kind"], targets["kind"], reduction="none")
        return kind + (outputs["size"] - targets["size"]).square()

    model, targets = Tasks(), {"kind": KINDS, "size": NUMBERS[:, 0]}
    total, _ = of_step(model, (NUMBERS, targets), test=(NUMBERS, targets), loss=both)
    rows = [{key: part[k : k + 1] for key, part in targets.items()} for k in (0, 3, 5, 6)]
    losses = [both(model(NUMBERS[k : k + 1]), row) for k, row in zip((0, 3, 5, 6), rows, strict=True)]
    assert close(total, literal(model, losses))


# --- persons ---

PERSONS = np.array([f"p{k * k % 7}" for k in range(N)])


def test_the_records_of_a_person_are_averaged_and_clipped_as_one():
    model = nn.Linear(5, 3)
    total, job = of_step(
        model, (NUMBERS, KINDS), (0, 2), person=PERSONS, max_per_person=4, batch=2, test=(NUMBERS, KINDS)
    )
    losses = []
    for name in list(dict.fromkeys(PERSONS))[0:3:2]:
        mine = np.flatnonzero(name == PERSONS)[:4]
        losses.append(F.cross_entropy(model(NUMBERS[mine]), KINDS[mine]))
    assert close(total, literal(model, losses))
    assert job.fetch(np.arange(2))[0].shape == (2, 4, 5)


def test_sampling_statement_and_ledger_count_persons(tmp_path):
    options = {**OPTIONS, "batch": 2, "progress": False}
    trained = wpriv.train(
        nn.Linear(5, 3), (NUMBERS, KINDS), person=PERSONS, max_per_person=4, out=tmp_path / "r", **options
    )
    persons = len(set(PERSONS)) - round(0.2 * len(set(PERSONS)))  # a fifth of the persons is held out
    assert trained.plan.records == persons
    assert trained.plan.sampling.rate == 2 / persons
    assert trained.statement["unit"].startswith("one person with all training records of theirs, of which at most 4")
    assert not any("several records of one person" in line for line in trained.statement["not_covered"])
    assert trained.statement["unit"] in (tmp_path / "r" / "statement.md").read_text()
    assert len((tmp_path / "r" / "ledger.jsonl").read_text().splitlines()) == 3


def test_persons_come_in_the_order_of_their_first_record_and_padding_is_their_own():
    places, present = of_persons("data", np.array([5, 2, 5, 9, 5, 2]), 6, 2)
    assert places.tolist() == [[0, 2], [1, 5], [3, 3]]
    assert present.tolist() == [[True, True], [True, True], [True, False]]
    with pytest.raises(FaultyRecords, match=r"say of each record whose it is.*\[6\]; found float64 \[6\]"):
        of_persons("data", np.arange(6.0), 6, 2)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"person": PERSONS}, "give both; found max_per_person None"),
        ({"max_per_person": 3}, "give both; found no person"),
        ({"person": PERSONS, "max_per_person": 0}, "must be above 0"),
        ({"person": PERSONS, "max_per_person": 2, "copies": 2}, "leave `copies` and `augment` out"),
    ],
)
def test_a_person_without_a_public_limit_is_refused(given, word):
    with pytest.raises(UsageError, match=word):
        of_step(nn.Linear(5, 3), (NUMBERS, KINDS), **given)


# --- copies ---


class Noisy(nn.Module):
    """A network that draws in its forward pass, and notes what it drew."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x + torch.randn_like(x))


def test_copies_are_averaged_before_clipping_and_their_draws_all_differ(monkeypatch):
    model = Noisy()
    test = (NUMBERS, KINDS)
    training = own_training.own_training(model, (NUMBERS, KINDS), test=test, copies=3, **OPTIONS)
    job = training.build_job(training.recipe.train, training.data, torch.device("cpu"), adjacency="add-remove")
    places = np.array([1, 4])
    job.aggregate(places)  # what is tried of a network at first is over
    drawn: list[Tensor] = []
    monkeypatch.setattr(torch, "randn_like", lambda x: drawn.append(torch.empty_like(x).normal_()) or drawn[-1])
    totals = [torch.cat([part.reshape(-1) for part in job.aggregate(places).total.parts]) for _ in range(2)]
    assert len(drawn) == 2
    assert len(torch.cat(drawn).unique()) == 2 * 2 * 3 * 5  # of all copies, records and steps
    for total, noise in zip(totals, drawn, strict=True):
        rows = (NUMBERS[places].repeat_interleave(3, 0) + noise).view(2, 3, 5)
        losses = [F.cross_entropy(model.out(rows[k]), KINDS[place].repeat(3)) for k, place in enumerate(places)]
        assert close(total, literal(model, losses))


def test_copies_that_nothing_changes_are_refused():
    with pytest.raises(UsageError, match="the 4 copies of a record would all be the same"):
        of_step(nn.Linear(5, 3), (NUMBERS, KINDS), copies=4)
    with pytest.raises(UsageError, match="give it once"):
        of_step(nn.Linear(5, 3), (NUMBERS, KINDS), copies=4, augment={"copies": 3})


# --- refusals ---


def test_a_dataset_of_dictionaries_that_hold_the_target_is_told_how_to_give_it():
    rows = [{"numbers": NUMBERS[k], "kind": KINDS[k]} for k in range(N)]
    loader = DataLoader(rows, batch_size=4)  # type: ignore[arg-type]  # torch takes whatever has places
    with (
        pytest.warns(UserWarning, match="its batch size"),
        pytest.raises(UsageError, match="target from them give a pair"),
    ):
        of_step(nn.Linear(5, 3), loader, loss=nn.CrossEntropyLoss())


def test_records_of_several_lengths_and_tokens_of_persons_are_told_what_to_give():
    ragged = [TOKENS[k, : 1 + k % T] for k in range(N)]
    with pytest.raises(FaultyRecords, match=r"several lengths\. Pad each to one public length"):
        of_step(Words(), (ragged, KINDS), tokens=WORDS)
    with pytest.raises(UsageError, match="leave `tokens` out"):
        of_step(Words(), (TOKENS, KINDS), tokens=WORDS, person=KINDS, max_per_person=2)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield NUMBERS[0], 1


class Ragged(Rows):
    def __getitem__(self, k: int) -> Any:
        return NUMBERS[k][: 2 + k % 3], int(KINDS[k])


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (Stream(), "Stream has no length, and the sampling rate"),
        (DataLoader(Stream()), "Stream has no length, and the sampling rate"),
        (Ragged(), "Pad each record to a public length"),
        (({"input_ids": TOKENS, "attention_masks": MASK}, KINDS), "did you mean 'attention_mask'"),
        (
            ({"input_ids": TOKENS + 1, "attention_mask": MASK}, KINDS),
            "index out of range in self. Tokens must be below .* input_ids from 1 to 11",
        ),
        (({"input_ids": TOKENS, "attention_mask": MASK[:9]}, KINDS), "one number of records"),
        (({"input_ids": np.full(N, "a")}, KINDS), "wanted an array of numbers"),
        (({"input_ids": NUMBERS * np.nan}, KINDS), "must be finite; found nan in record 0"),
        (({}, KINDS), "found nothing"),
    ],
)
def test_records_that_cannot_be_trained_on_are_refused_by_what_to_change(data, word):
    with pytest.raises((UsageError, FaultyRecords), match=word):
        of_step(Named(), data)


def test_a_list_of_rows_is_an_array_and_a_list_of_inputs_a_tree():
    x, _ = _given.pair(([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [0, 1, 0]), "data")
    assert np.asarray(x).shape == (3, 2)
    several, _ = _given.pair(([NUMBERS[:, :2], NUMBERS[:, 2:]], KINDS), "data")
    assert [part.shape for part in several.unpacked()] == [(N, 2), (N, 3)]


def test_a_record_of_numbers_of_8_and_4_bytes_is_a_tree_of_tensors():
    # the bytes of a record, 3 x 8 + 3 x 4, are no multiple of 8
    inputs = {"input_ids": TOKENS[:, :3], "attention_mask": MASK[:, :3].float()}
    packed, _ = _given.pair((inputs, KINDS), "data")
    one = _supervised.tensors_of(Packed(packed.rows[:1], packed.form), torch.device("cpu"))
    assert {name: leaf.tolist() for name, leaf in one.value.items()} == {
        name: leaf[:1].tolist() for name, leaf in inputs.items()
    }


def test_a_finished_training_predicts_records_of_its_form(tmp_path):
    inputs = {"input_ids": TOKENS, "attention_mask": MASK}
    model = Named()
    trained = wpriv.train(model, (inputs, KINDS), test=(inputs, KINDS), out=tmp_path / "r", progress=False, **OPTIONS)
    with torch.no_grad():
        wanted = model(TOKENS, MASK)
    assert trained.predict(inputs).tolist() == wanted.argmax(dim=1).tolist()
    assert np.allclose(trained.predict_proba(inputs), wanted.softmax(dim=1))
    figures = trained.evaluate(inputs, KINDS)
    assert figures["accuracy"] == pytest.approx(float((wanted.argmax(dim=1) == KINDS).float().mean()))
    assert figures["test_loss"] == pytest.approx(float(F.cross_entropy(wanted, KINDS)), rel=1e-5)
    with pytest.raises(UsageError, match="the form of the training"):
        trained.predict({"input_ids": TOKENS})


def test_the_losses_of_a_finished_training_are_those_of_tokens_and_persons(tmp_path):
    targets = TOKENS.roll(1, 1).masked_fill(MASK == 0, -100)
    words = wpriv.train(
        Words(), (TOKENS, targets), test=(TOKENS, targets), tokens=WORDS, out=tmp_path / "w", progress=False, **OPTIONS
    )
    assert words.evaluate(TOKENS, targets)["test_loss"] == pytest.approx(words.metrics[-1]["test_loss"])
    assert words.predict(TOKENS).shape == (N, T, WORDS)
    options = {**OPTIONS, "batch": 2, "progress": False, "person": PERSONS, "max_per_person": 4}
    persons = wpriv.train(nn.Linear(5, 3), (NUMBERS, KINDS), test=(NUMBERS, KINDS), out=tmp_path / "p", **options)
    figures = persons.evaluate(NUMBERS, KINDS)
    assert figures == pytest.approx({name: persons.metrics[-1][name] for name in ("test_loss", "accuracy")})
