"""Private training in the caller's own loop: the same steps as ``wpriv.train``, resumable, and hard to misuse."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

import wpriv
from tests.run.training.test_own_training import OPTIONS, TEST, X, Y, network, same, weights
from wpriv.errors import Unsupported, UsageError

LOOP = {key: value for key, value in OPTIONS.items() if key != "progress"} | {"test": TEST}


def loop(out, **changes):
    return wpriv.training_loop(network(), (X, Y), out=out, **{**LOOP, **changes})


def take_steps(out, loss=None, until=None, **changes):
    """Take the steps of a loop, up to one at which the caller fails."""
    with loop(out, **changes) as run:
        for batch in run:
            if batch.step == until:
                raise KeyboardInterrupt
            run.step(None if loss is None else loss(batch.step))
    return run


@pytest.fixture
def reference(tmp_path):
    wpriv.train(network(), (X, Y), out=tmp_path / "reference", **LOOP, progress=False)
    return weights(tmp_path / "reference")


def test_a_loop_takes_the_steps_of_train_bit_for_bit(tmp_path, reference):
    with loop(tmp_path / "loop") as run:
        numbers = []
        for batch in run:
            assert len(batch.inputs) == len(batch.targets)
            run.step()
            numbers.append((batch.step, run.epsilon))
    assert [step for step, _ in numbers] == [1, 2, 3, 4]
    assert sorted(eps for _, eps in numbers) == [eps for _, eps in numbers]
    assert numbers[-1][1] == pytest.approx(run.result.guarantee.epsilon.upper, rel=1e-4)
    assert same(weights(tmp_path / "loop"), reference)


def test_a_loop_that_was_left_goes_on_bit_for_bit(tmp_path, reference):
    with pytest.raises(KeyboardInterrupt):
        take_steps(tmp_path / "cut", until=3)
    take_steps(tmp_path / "cut", resume=True)
    assert same(weights(tmp_path / "cut"), reference)
    assert len((tmp_path / "cut" / "ledger.jsonl").read_text().splitlines()) == 4


def test_a_step_that_failed_is_paid_once_when_it_is_taken_again(tmp_path, reference):
    def fails(outputs, targets):
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        take_steps(tmp_path / "failed", loss=lambda step: fails if step == 2 else None)
    take_steps(tmp_path / "failed", resume=True)
    assert same(weights(tmp_path / "failed"), reference)


def test_another_loss_may_be_taken_at_every_step(tmp_path, reference):
    def doubled(outputs, targets):
        return 2 * cross_entropy(outputs, targets, reduction="none")

    run = take_steps(tmp_path / "doubled", loss=lambda step: doubled)
    assert not same(weights(tmp_path / "doubled"), reference)
    assert run.result.guarantee.epsilon.safe <= 3


def test_a_loss_that_mixes_records_is_refused_at_its_first_step(tmp_path):
    def mixes(outputs, targets):
        return cross_entropy(outputs, targets, reduction="none") * outputs.mean()

    with pytest.raises(Unsupported, match="mixes"):
        take_steps(tmp_path / "r", loss=lambda step: mixes)


def test_a_step_outside_of_a_round_is_an_error(tmp_path):
    run = loop(tmp_path / "r")
    with pytest.raises(UsageError, match="no batch"):
        run.step()
    with pytest.raises(UsageError, match="with"):
        next(iter(run))
    with run:
        for _ in run:
            run.step()
            with pytest.raises(UsageError, match="no batch"):
                run.step()
        with pytest.raises(UsageError, match="no batch"):
            run.step()


def test_a_round_without_a_step_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="not trained on"), loop(tmp_path / "r") as run:
        for _ in run:
            pass


def test_the_result_exists_only_after_the_last_step(tmp_path):
    with loop(tmp_path / "r") as run:
        for _ in run:
            run.step()
            with pytest.raises(UsageError, match="not over"):
                _ = run.result
    assert run.result.statement["private"]
    assert same(run.result.model.state_dict(), weights(tmp_path / "r"))


def test_two_loops_cannot_share_a_folder(tmp_path):
    with loop(tmp_path / "r"), pytest.raises(UsageError, match="another process"), loop(tmp_path / "r"):
        pass


def test_a_finished_loop_has_no_rounds_left(tmp_path, reference):
    with loop(tmp_path / "reference") as run:
        assert [*run] == []
        assert same(run.result.model.state_dict(), reference)


def test_learning_rates_and_weights_may_be_looked_at_between_steps(tmp_path):
    with loop(tmp_path / "r") as run:
        for _ in run:
            before = [p.detach().clone() for p in run.model.parameters()]
            run.step()
            assert any(not torch.equal(p, old) for p, old in zip(run.model.parameters(), before, strict=True))
