"""Private training in the caller's own loop: the same steps as ``wpriv.train``, resumable, and hard to misuse."""

from __future__ import annotations

import contextlib
import gc
import itertools
import shutil
import subprocess
import sys

import pytest
import torch
from torch.nn.functional import cross_entropy

import wpriv
from tests import forked, nightly
from tests.training.test_own_training import OPTIONS, TEST, X, Y, network, same, weights
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


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a training by ``wpriv.train``, which tests only read."""
    out = tmp_path_factory.mktemp("trained") / "reference"
    wpriv.train(network(), (X, Y), out=out, **LOOP, progress=False)
    return out


@pytest.fixture(scope="module")
def reference(trained):
    return weights(trained)


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
        for batch in run:
            run.step()
            assert repr(run).startswith(f"<Loop: {batch.step} of {run.steps} steps, noise multiplier ")
            with pytest.raises(UsageError, match="not over"):
                _ = run.result
    assert repr(run).startswith("<Loop: over; ")
    assert repr(loop(tmp_path / "s")) == "<Loop: not begun; enter it by `with`>"
    assert float(run.result) == run.result.epsilon == run.result.guarantee.epsilon.safe
    assert str(run.result).split("\n")[1:] == [f"  warning: {line}" for line in run.result.warnings]
    assert run.result.statement["private"]
    assert same(run.result.model.state_dict(), weights(tmp_path / "r"))


def test_a_fork_has_spent_what_the_run_before_it_cost_before_its_first_step(tmp_path):
    first = take_steps(tmp_path / "r")
    before = wpriv.Process((wpriv.Step(wpriv.Gauss(sigma=first.sigma), 4, wpriv.Poisson(0.25)),))
    with loop(tmp_path / "fork") as run:
        assert run.epsilon == 0
    with loop(tmp_path / "r", fork=True, eps=6) as run:
        bracket = wpriv.curve(before, "pld").at(delta=1e-5).epsilon
        assert bracket.lower <= run.epsilon <= bracket.upper * (1 + 1e-3)


def test_a_loop_without_privacy_has_no_eps_at_any_step(tmp_path):
    with loop(tmp_path / "r", eps=None, delta=None, privacy="none") as run:
        assert run.epsilon is None


def test_two_loops_cannot_share_a_folder(tmp_path):
    with loop(tmp_path / "r"), pytest.raises(UsageError, match="another process"), loop(tmp_path / "r"):
        pass


def test_a_finished_loop_has_no_rounds_left(tmp_path, trained, reference):
    shutil.copytree(trained, tmp_path / "r")
    with loop(tmp_path / "r") as run:
        assert [*run] == []
        assert same(run.result.model.state_dict(), reference)


def test_learning_rates_and_weights_may_be_looked_at_between_steps(tmp_path):
    with loop(tmp_path / "r") as run:
        for _ in run:
            before = [p.detach().clone() for p in run.model.parameters()]
            run.step()
            assert any(not torch.equal(p, old) for p, old in zip(run.model.parameters(), before, strict=True))


def test_a_batch_is_drawn_by_one_loop_at_a_time(tmp_path):
    with loop(tmp_path / "r") as run:
        first = iter(run)
        next(first)
        with pytest.raises(UsageError, match="another"):
            next(iter(run))
        run.step()
        assert [batch.step for batch in first if run.step() is None] == [2, 3, 4]


def test_a_batch_that_was_left_is_not_trained_on_and_drawn_again(tmp_path, reference):
    batches = []
    with loop(tmp_path / "r") as run:
        for batch in run:
            batches.append(batch)
            break
        with pytest.raises(UsageError, match="no batch"):
            run.step()
        for batch in run:
            batches.append(batch)
            run.step()
    assert [batch.step for batch in batches] == [1, 1, 2, 3, 4]
    assert torch.equal(batches[0].inputs, batches[1].inputs)
    assert same(weights(tmp_path / "r"), reference)


def test_a_batch_that_is_kept_open_when_the_block_ends_is_drawn_again(tmp_path, reference):
    with loop(tmp_path / "r") as run:
        rounds = iter(run)
        next(rounds)
    take_steps(tmp_path / "r", resume=True)
    assert same(weights(tmp_path / "r"), reference)


def test_a_step_that_failed_cannot_be_taken_again_with_other_noise(tmp_path, reference):
    def interrupted():
        with loop(tmp_path / "r") as run:
            optimizer = run._engine.optimizers["model"]
            update = optimizer.step

            def cut():
                update()
                raise KeyboardInterrupt

            for batch in run:
                optimizer.step = cut if batch.step == 3 else update
                with contextlib.suppress(KeyboardInterrupt):
                    run.step()

    with pytest.raises(UsageError, match="step 3 failed"):
        interrupted()
    take_steps(tmp_path / "r", resume=True)
    assert same(weights(tmp_path / "r"), reference)


def _freeze(model):
    model[0].weight.requires_grad_(False)


def _replace(model):
    model[2] = torch.nn.Linear(8, 2)


def _add(model):
    model.append(torch.nn.Linear(2, 2))


def _descend(model):
    with torch.no_grad():
        model[0].weight.sub_(0.1 * torch.ones(8, 5))


def _flip(model):
    with torch.no_grad():
        model[0].weight.copy_(model[0].weight.flip(0))


def _assign(model):
    model[0].weight.data = torch.zeros(8, 5)


def _remember(model):
    model.scale.fill_(3.0)


@pytest.mark.parametrize(
    ("before", "change"),
    nightly.sharded(
        itertools.product([True, False], [_freeze, _replace, _add, _descend, _flip, _assign, _remember]), 2
    ),
)
def test_only_a_step_may_change_the_network(tmp_path, reference, change, before):
    def steps(change, **start):
        model = network()
        model.register_buffer("scale", torch.ones(1))
        with wpriv.training_loop(model, (X, Y), out=tmp_path / "r", **LOOP, **start) as run:
            for batch in run:
                if before and batch.step == 2:
                    change(run.model)
                run.step()
                if not before and batch.step == 2:
                    change(run.model)

    with pytest.raises(UsageError, match="changed by something else"):
        steps(change)
    # nothing of the change is saved: the run goes on as if it had not been
    steps(lambda model: None, resume=True)
    kept = weights(tmp_path / "r")
    assert kept.pop("scale") == 1
    assert same(kept, reference)


def test_a_change_after_the_last_round_of_a_loop_that_is_left_is_not_saved(tmp_path):
    def left():
        with loop(tmp_path / "r") as run:
            for _ in run:
                run.step()
                break
            _descend(run.model)

    with pytest.raises(UsageError, match="changed by something else"):
        left()


def test_weights_that_are_swapped_for_a_test_and_put_back_are_no_change(tmp_path, reference):
    with loop(tmp_path / "r") as run:
        for _ in run:
            run.step()
            kept = {name: value.clone() for name, value in run.model.state_dict().items()}
            _descend(run.model)
            run.model.load_state_dict(kept)
    assert same(weights(tmp_path / "r"), reference)


def test_the_learning_rate_of_a_step_is_the_given_one(tmp_path):
    """Against the difference that one step of plain gradient descent makes: it is proportional to the rate."""
    changes = {}
    for rate in (0.5, 0.25, 0.0):
        with loop(tmp_path / str(rate), steps=1) as run:
            before = {name: value.clone() for name, value in run.model.state_dict().items()}
            for _ in run:
                run.step(lr=rate)
            changes[rate] = {name: value - before[name] for name, value in run.model.state_dict().items()}
    for name, change in changes[0.5].items():
        assert torch.allclose(change, 2 * changes[0.25][name], atol=1e-6)
        assert not changes[0.0][name].any()


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf"), "0.1"])
def test_a_learning_rate_that_is_none_is_refused_before_the_step(tmp_path, rate):
    with loop(tmp_path / "r", steps=1) as run:
        for _ in run:
            with pytest.raises(UsageError, match="lr"):
                run.step(lr=rate)
            run.step()


@pytest.mark.parametrize("loss", [torch.nn.CrossEntropyLoss(), "cross-entropy"])
def test_a_step_takes_a_loss_in_each_form_that_train_takes(tmp_path, reference, loss):
    take_steps(tmp_path / "r", loss=lambda step: loss)
    assert same(weights(tmp_path / "r"), reference)


def test_the_value_of_a_loss_is_refused(tmp_path):
    with pytest.raises(UsageError, match="function"):
        take_steps(tmp_path / "r", loss=lambda step: torch.tensor(0.7, requires_grad=True))


def test_what_is_known_in_the_block_alone_is_an_error_before_it(tmp_path):
    run = loop(tmp_path / "r")
    for name in ("steps", "sigma", "epsilon"):
        with pytest.raises(UsageError, match="with block"):
            getattr(run, name)


PAST_TORCH = {
    "data": lambda model: model[0].weight.data.add_(0.1),
    "numpy": lambda model: model[0].weight.detach().numpy().__iadd__(0.1),
}


@pytest.mark.parametrize("way", PAST_TORCH)
@pytest.mark.parametrize("last", [False, True])
def test_numbers_that_are_written_past_torch_are_seen_before_the_next_step_and_before_a_checkpoint(tmp_path, way, last):
    """Changes that leave the version of a tensor as it is: through ``.data``, or an array that shares its memory."""

    def steps():
        with loop(tmp_path / "r") as run:
            for batch in run:
                run.step()
                if batch.step == (4 if last else 2):
                    PAST_TORCH[way](run.model)

    with pytest.raises(UsageError, match="changed by something else"):
        steps()
    assert not (tmp_path / "r" / "model.pt").exists()


BY_HAND = """
import torch, wpriv
x = torch.arange(80.0).view(40, 2) / 80
run = wpriv.training_loop(torch.nn.Linear(2, 2), (x, (x[:, 0] > 0.5).long()), sigma=1, delta=1e-5, batch=20, steps=2,
                          lr=0.1, out={folder!r}, test=(x, (x[:, 0] > 0.5).long()))
run.__enter__()
rounds = iter(run)
next(rounds)
run.step()
{end}
"""


def test_a_block_that_is_entered_by_hand_and_never_left_ends_without_an_error_at_the_end_of_python(tmp_path):
    words = [sys.executable, "-c", BY_HAND.format(folder=str(tmp_path / "r"), end="")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_block_that_is_entered_by_hand_and_never_left_ends_without_an_error_where_it_is_deleted(tmp_path):
    # what earlier tests of this process left is collected first; then with python's own hook, since pytest's keeps to
    # itself what a destructor raises
    end = "import gc, sys; gc.collect(); sys.unraisablehook = sys.__unraisablehook__; del run, rounds; gc.collect()"
    code = BY_HAND.format(folder=str(tmp_path / "r"), end=end)
    assert forked.at_once(None, [{}], tmp_path, before=code) == [(0, "")]


def test_a_network_is_free_again_once_a_loop_that_was_entered_by_hand_is_gone(tmp_path):
    model = network()
    run = wpriv.training_loop(model, (X, Y), out=tmp_path / "r", **LOOP)
    run.__enter__()
    del run
    gc.collect()
    with wpriv.training_loop(model, (X, Y), out=tmp_path / "r", **LOOP, fresh=True) as run:
        assert run.model is model


def end_after(out, steps, **how):
    """Take some steps of a loop and end it within its round."""
    with loop(out, eps=None, sigma=1.0) as run:
        for batch in run:
            run.step()
            if batch.step == steps:
                run.finish(**how)
                with pytest.raises(UsageError, match="over"):
                    run.step()
    return run


def cost(steps):
    process = wpriv.Process((wpriv.Step(wpriv.Gauss(1.0), steps, wpriv.Poisson(0.25)),))
    return wpriv.curve(process, "pld").at(delta=1e-5).epsilon.upper


@pytest.mark.parametrize("scheduled", [True, False])
def test_a_training_that_is_ended_early_states_the_steps_that_ran_and_the_guarantee_of_its_end(tmp_path, scheduled):
    """An end that was chosen from what was released is a function of all planned steps, and keeps their guarantee."""
    result = end_after(tmp_path / "r", 2, scheduled=scheduled).result
    assert result.statement["steps"] == 2
    assert len((tmp_path / "r" / "ledger.jsonl").read_text().splitlines()) == 2
    assert result.epsilon == pytest.approx(cost(2 if scheduled else 4), rel=1e-3)
    (remark,) = result.statement["remarks"]
    assert remark.startswith("The training was ended after 2 of 4 planned steps")
    assert result.metrics[-1]["step"] == 2
    assert not (tmp_path / "r" / "checkpoint.pt").exists()
    # the first steps of the whole training, bit for bit, and the folder holds the ended one
    with loop(tmp_path / "again", eps=None, sigma=1.0, steps=4) as run:
        for batch in run:
            run.step()
            if batch.step == 2:
                assert same(run.model.state_dict(), weights(tmp_path / "r"))
    found = wpriv.train(network(), (X, Y), out=tmp_path / "r", **{**LOOP, "eps": None, "sigma": 1.0}, progress=False)
    assert found.found
    assert found.plan.steps == 2
    assert found.epsilon == result.epsilon
    assert found.statement == result.statement


def test_a_loop_may_be_ended_after_its_rounds_were_left_or_when_it_goes_on(tmp_path):
    with loop(tmp_path / "r") as run:
        for _ in run:
            run.step()
            break
        with pytest.raises(UsageError, match=r"1 of 4 steps.*run\.finish\(\)"):
            _ = run.result
        assert run.finish() is run.finish() is run.result
        assert [*run] == []
    with pytest.raises(UsageError, match=r"1 of 4 steps"):
        _ = take_one(tmp_path / "left").result
    with loop(tmp_path / "left", resume=True) as run:
        run.finish()
    assert same(weights(tmp_path / "left"), weights(tmp_path / "r"))


def take_one(out):
    with loop(out) as run:
        for _ in run:
            run.step()
            break
    return run


def test_a_training_ends_only_after_a_step_and_with_the_network_of_its_steps(tmp_path):
    with pytest.raises(UsageError, match="with block"):
        loop(tmp_path / "r").finish()
    with loop(tmp_path / "r") as run:
        with pytest.raises(UsageError, match="none has"):
            run.finish()
        for _ in run:
            with pytest.raises(UsageError, match="not trained on"):
                run.finish()
            run.step()
            break
        run.finish()

    def changed():
        with loop(tmp_path / "changed") as run:
            for _ in run:
                run.step()
                run.model[0].weight.data.zero_()
                run.finish()

    with pytest.raises(UsageError, match="changed by something else"):
        changed()


def test_a_training_goes_on_from_one_that_was_ended_at_the_cost_of_the_steps_of_both(tmp_path):
    end_after(tmp_path / "r", 1)
    with loop(tmp_path / "r", eps=None, sigma=1.0, steps=2, fork=True) as run:
        for _ in run:
            run.step()
    assert run.result.statement["steps"] == 3


def test_an_evaluation_within_a_loop_is_that_of_the_network_and_changes_no_step(tmp_path, reference):
    with loop(tmp_path / "r") as run:
        with pytest.raises(UsageError, match="with block"):
            loop(tmp_path / "other").evaluate(*TEST)
        for x, y in run:
            assert len(x) == len(y)
            run.step()
            figures = run.evaluate(*TEST)
            with torch.no_grad():
                outputs = run.model(torch.tensor(TEST[0]))
            assert figures["accuracy"] == pytest.approx(float((outputs.argmax(1).numpy() == TEST[1]).mean()))
    assert run.evaluate(TEST) == run.evaluate(*TEST) == run.result.evaluate(*TEST) == figures
    assert same(weights(tmp_path / "r"), reference)
