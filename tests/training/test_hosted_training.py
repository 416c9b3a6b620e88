"""Private steps in the loop of another framework: batches that were drawn, one update each, and a true statement.

Oracle: the sum of literal per-record gradients in float64, and the ledger.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import default_collate

from wpriv.errors import Unsupported, UsageError
from wpriv.training import hosted_training
from wpriv.training.hosted_training import Collate, HostedRun, PoissonBatches

RECORDS, BATCH, STEPS = 60, 12, 8
X = torch.randn(RECORDS, 4, generator=torch.Generator().manual_seed(0))
Y = torch.randint(3, (RECORDS,), generator=torch.Generator().manual_seed(1))
ROWS = list(zip(X, Y, strict=True))


def loss(outputs, targets):
    return cross_entropy(outputs, targets, reduction="none")


class Host:
    """A loop of another framework of the least size."""

    def __init__(self, out, model=None, steps=STEPS, clip=0.5, of=loss, physical=None, data=None, **options):
        torch.manual_seed(0)
        self.model = nn.Linear(4, 3) if model is None else model
        self.batches = PoissonBatches(RECORDS, BATCH, steps)
        training = hosted_training.hosted(
            self.model,
            self.model,
            of,
            (X[:2], Y[:2]),
            hosted_training.described(ROWS if data is None else data),
            framework="wpriv.tests",
            loss_name="cross-entropy",
            batches=self.batches,
            target=(3.0, 1e-3, clip),
            lr=0.1,
            physical=physical,
            **options,
        )
        self.run = HostedRun(training, out)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.run.watch(self.optimizer)

    def draws(self):
        while self.batches.count < self.batches.steps:
            yield from self.batches

    def step(self, places):
        self.run.step(X[places], Y[places], 0.1)

    def train(self, until=STEPS):
        for number, places in enumerate(self.draws()):
            if number == until:
                break
            self.step(places)
            self.optimizer.step()
        return self.run.finish()


def lines(out):
    return [json.loads(line) for line in (out / "ledger.jsonl").read_text().splitlines()]


def test_a_training_keeps_its_target_and_has_a_ledger_line_for_each_step(tmp_path):
    host = Host(tmp_path / "run", unit="sentence")
    result = host.train()
    assert 2.9 < result.guarantee.epsilon.upper <= 3.0
    assert len(lines(tmp_path / "run")) == STEPS == result.statement["steps"]
    assert result.statement["unit"] == "one sentence of the training set"
    assert {entry["sigma"] / entry["sensitivity"] for entry in lines(tmp_path / "run")} == {host.run.sigma}


def test_a_training_that_stops_early_has_the_guarantee_of_all_planned_steps(tmp_path):
    """What was released may have chosen the end; the statement says how many steps ran and what they alone cost."""
    result = Host(tmp_path / "run").train(until=3)
    assert len(lines(tmp_path / "run")) == result.statement["steps"] == 3
    assert result.epsilon == pytest.approx(3.0, rel=1e-3)
    assert "ended after 3 of 8 planned steps" in (tmp_path / "run" / "statement.md").read_text()


def test_a_step_leaves_the_mean_of_clipped_gradients_whatever_passes_at_once(tmp_path, monkeypatch):
    """Oracle: every record's gradient alone in float64, clipped by hand, over the expected batch."""
    monkeypatch.setattr("wpriv.training.engine.loop.add_noise", lambda total, *args, **options: list(total.parts))
    for physical in (1, 5, 60):
        host = Host(tmp_path / f"run-{physical}", physical=physical)
        model = nn.Linear(4, 3).double()
        model.load_state_dict(host.model.state_dict())
        places = next(host.draws())
        host.step(places)
        wanted = [torch.zeros_like(weight) for weight in model.parameters()]
        for place in places:
            value = cross_entropy(model(X[place : place + 1].double()), Y[place : place + 1])
            parts = torch.autograd.grad(value, list(model.parameters()))
            factor = min(1.0, 0.5 / float(torch.cat([part.flatten() for part in parts]).norm()))
            wanted = [total + factor * part / BATCH for total, part in zip(wanted, parts, strict=True)]
        for weight, part in zip(host.model.parameters(), wanted, strict=True):
            assert float((weight.grad - part).norm()) <= 2e-5 * float(part.norm())  # the slack of the factors, 8e-6
        host.run.close()


def test_an_empty_batch_gets_noise_and_a_line(tmp_path):
    host = Host(tmp_path / "run")
    next(host.draws())
    waiting = host.batches.drawn.waiting
    waiting[0] = (waiting[0][0], np.zeros(0, np.int64))
    host.step([])
    assert len(lines(tmp_path / "run")) == 1
    assert float(host.model.weight.grad.abs().sum()) > 0
    host.run.close()


def test_a_loader_may_fetch_batches_ahead_of_the_steps(tmp_path):
    host = Host(tmp_path / "run")
    places = list(host.batches) + list(host.batches)
    for each in places:
        host.step(each)
        host.optimizer.step()
    assert host.run.finish().statement["steps"] == STEPS


def test_records_join_a_batch_by_coins_of_their_own():
    """Oracle: mean and variance of the binomial distribution, each to five standard errors."""
    sampler = PoissonBatches(50, 10, 20_000)
    counts = np.array([len(sampler.drawn.ahead()) for _ in range(4000)])
    assert counts.mean() == pytest.approx(10, abs=5 * np.sqrt(8 / 4000))
    assert counts.var() == pytest.approx(8, rel=5 * np.sqrt(2 / 4000))
    assert [len(list(PoissonBatches(50, 10, 7))), len(PoissonBatches(50, 10, 7))] == [5, 5]


def unused(host):
    host.step(next(host.draws()))
    host.step(next(host.draws()))


def twice(host):
    host.step(next(host.draws()))
    host.optimizer.step()
    host.optimizer.step()


def changed_gradient(host):
    host.step(next(host.draws()))
    host.model.weight.grad.add_(1.0)
    host.optimizer.step()


def replaced_gradient(host):
    host.step(next(host.draws()))
    host.model.weight.grad = torch.ones_like(host.model.weight)
    host.optimizer.step()


def changed_network(host):
    host.step(next(host.draws()))
    host.optimizer.step()
    with torch.no_grad():
        host.model.weight.add_(1.0)
    host.step(next(host.draws()))


def another_batch(host):
    places = next(host.draws())
    host.step([*places, 0])


def no_batch(host):
    host.step([0])


def another_weight(host):
    host.run.watch(torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1))


@pytest.mark.parametrize(
    ("misuse", "words"),
    [
        (unused, "did not use the private gradient of step 1"),
        (twice, "twice with one private gradient"),
        (changed_gradient, "were replaced or changed"),
        (replaced_gradient, "were replaced or changed"),
        (changed_network, "changed by something else than its optimizer"),
        (another_batch, "were drawn for it"),
        (no_batch, "none was drawn"),
        (another_weight, "2 weights beside those of the private network"),
        (lambda host: host.run.finish(), "before its first step"),
    ],
)
def test_what_the_guarantee_does_not_cover_is_refused(tmp_path, misuse, words):
    host = Host(tmp_path / "run")
    with pytest.raises(UsageError, match=words):
        misuse(host)
    host.run.close()


def test_a_network_or_a_loss_that_mixes_records_is_refused_before_anything_is_spent(tmp_path):
    mixing = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    with pytest.raises(Unsupported, match="BatchNorm1d"):
        Host(tmp_path / "norm", model=mixing)
    with pytest.raises(Unsupported, match="loss mixes"):
        Host(tmp_path / "loss", of=lambda outputs, targets: loss(outputs, targets) - loss(outputs, targets).mean())
    assert not (tmp_path / "norm").exists()
    assert not (tmp_path / "loss").exists()


def test_a_second_training_of_one_network_on_the_same_records_is_refused(tmp_path):
    host = Host(tmp_path / "one")
    host.train()
    with pytest.raises(UsageError, match="on the same records"):
        Host(tmp_path / "two", model=host.model)
    with pytest.raises(UsageError, match="holds files already"):
        Host(tmp_path / "one")


def test_records_of_a_data_set_have_numbers_that_tell_data_sets_apart():
    few, many = [(torch.tensor(k), k) for k in range(20)], list(range(3000))
    assert hosted_training.described(few).fingerprint == hosted_training.described(list(few)).fingerprint
    assert hosted_training.described(few).fingerprint != hosted_training.described(few[::-1]).fingerprint
    assert hosted_training.described(many).records == 3000
    with pytest.raises(UsageError, match="has no records"):
        hosted_training.described([])
    with pytest.raises(UsageError, match="found generator"):
        hosted_training.described(iter_of(few))


def iter_of(rows):
    yield from rows


@pytest.mark.parametrize("numbers", [(0, 5), (61, 5), (2.5, 5), (10, 0), (True, 5)])
def test_a_batch_or_a_number_of_steps_out_of_range_is_refused(numbers):
    with pytest.raises(UsageError, match=r"expected_batch|steps"):
        PoissonBatches(60, *numbers)


def test_records_are_collated_alone_so_that_padding_depends_on_no_other_record():
    def longest(rows):
        return {"x": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)}

    equal, ragged = [torch.arange(3.0), torch.ones(3)], [torch.arange(3.0), torch.ones(5)]
    assert torch.equal(Collate(longest, equal)(equal)["x"], torch.stack(equal))
    assert Collate(longest, ragged)([])["x"].shape == (0, 3)
    with pytest.raises(UsageError, match=r"shapes \[3\] and \[5\].*pad all to one public length"):
        Collate(longest, ragged)(ragged)
    with pytest.raises(UsageError, match="pad all to one public length"):
        Collate(longest, [*equal * 400, torch.ones(5)]).require_one_shape()  # before a batch is drawn


def test_a_number_of_one_record_is_not_taken_for_that_of_all():
    def counted(rows):
        return {"x": torch.stack(rows), "scale": float(rows[0].sum())}

    equal, unequal = [torch.ones(3)] * 2, [torch.ones(3), torch.zeros(3)]
    assert Collate(counted, equal)(equal)["scale"] == 3
    with pytest.raises(UsageError, match="a row for each record"):
        Collate(counted, unequal)(unequal)
    with pytest.raises(UsageError, match="other parts"):
        Collate(lambda rows: [*rows[0].nonzero()], unequal)(unequal)


def mixed_up(rows):
    x, y = default_collate(rows)
    share = torch.rand(())
    return share * x + (1 - share) * x[torch.randperm(len(x))], y


def centred(rows):
    x, y = default_collate(rows)
    return x - x.mean(0), y


def padded(rows):
    sizes = [1 + int(y) for _, y in rows]
    x = nn.utils.rnn.pad_sequence([torch.ones(size) for size in sizes], batch_first=True)
    return x.masked_fill(torch.rand(len(rows), 1) < 0.5, 0.0), torch.tensor(sizes)


@pytest.mark.parametrize("collate", [mixed_up, centred])
def test_a_collate_function_that_mixes_records_is_refused(collate):
    with pytest.raises(Unsupported, match="makes a row from several records"):
        hosted_training.require_apart(ROWS, collate)


@pytest.mark.parametrize("collate", [default_collate, padded])
def test_a_collate_function_that_pads_or_draws_for_each_record_is_accepted(collate):
    hosted_training.require_apart(ROWS, collate)


def test_a_collate_function_whose_draws_cannot_be_repeated_is_refused():
    generator = torch.Generator()
    with pytest.raises(Unsupported, match="global generator"):
        hosted_training.require_apart(ROWS, lambda rows: torch.rand(len(rows), generator=generator))
