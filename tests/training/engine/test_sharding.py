"""Weights divided between two processes: the same sums and noise as whole ones, and complete results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.training.engine import sharded_toys, toys
from tests.training.engine.test_distributed import run_two
from wpriv.accounting import ledger
from wpriv.cli.main import main
from wpriv.config.train_schema import Train
from wpriv.errors import Unsupported, UsageError
from wpriv.files import checkpoint
from wpriv.training.engine import sharding
from wpriv.training.engine.saved_weights import CHECKPOINT, LEDGER, MODEL, inherit
from wpriv.training.noise import noise_stream, release
from wpriv.training.noise.noise_stream import Noise
from wpriv.training.noise.release import Bounded, Part

PRIVATE = ("whole", "divided", "divided in small passes", "clocks that differ", "stopped")
needs_processes = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> tuple[Path, list[dict[str, torch.Tensor]]]:
    """The results of two processes that talk over gloo."""
    folder = tmp_path_factory.mktemp("two")
    run_two(
        f"import runpy, sys; sys.argv = ['toys', {str(folder)!r}]\n"
        "runpy.run_module('tests.training.engine.sharded_toys', run_name='__main__')"
    )
    return folder, [torch.load(folder / f"rank{r}.pt", weights_only=True) for r in range(2)]


def alone(folder: Path, plan: object, *, private: bool = True) -> torch.Tensor:
    """The weights of one process whose records are clipped by definition, one after another."""
    own = sharded_toys.job(12, private=private, method="loop")
    return sharded_toys.flat(sharded_toys.train(folder, own, plan).job.model)


@needs_processes
@pytest.mark.slow
def test_divided_weights_end_with_the_bits_of_whole_ones_in_as_many_processes(two):
    for results in two[1]:
        assert torch.equal(results["divided"], results["whole"])
    for name in (*PRIVATE, "sgd", "plain"):
        assert torch.equal(two[1][0][name], two[1][1][name])


@needs_processes
@pytest.mark.slow
def test_divided_weights_end_near_those_of_one_process(two, tmp_path):
    # the same seeds draw the same records and the same noise: only the order of adding up differs
    adam = alone(tmp_path / "adam", sharded_toys.schedule())
    for name in PRIVATE:
        assert torch.allclose(two[1][0][name], adam, atol=2e-5)
    sgd = alone(tmp_path / "sgd", sharded_toys.schedule("sgd"))
    assert torch.allclose(two[1][0]["sgd"], sgd, atol=1e-5)
    plan = replace(
        toys.schedule(sharded_toys.STEPS, strategy="lambda:0.9"), optimizer=sharded_toys.schedule("sgd").optimizer
    )
    assert torch.allclose(two[1][0]["correlated"], alone(tmp_path / "correlated", plan), atol=1e-5)
    plain = alone(tmp_path / "plain", sharded_toys.schedule(multiplier=0.0), private=False)
    assert torch.allclose(two[1][0]["plain"], plain, atol=1e-4)


@needs_processes
@pytest.mark.slow
def test_a_run_that_was_stopped_ends_with_the_same_bits_and_pays_for_each_step_once(two):
    folder, (results, _) = two
    assert torch.equal(results["stopped"], results["divided"])
    steps = [entry.step for entry in ledger.entries(folder / "stopped" / LEDGER)]
    assert steps == list(range(1, sharded_toys.STEPS + 1))
    assert not list(folder.glob("*/checkpoint*"))


@needs_processes
@pytest.mark.slow
def test_the_released_weights_are_complete(two):
    folder, (results, _) = two
    stored = checkpoint.load(folder / "divided" / MODEL)["weights"]
    network = sharded_toys.network()
    network.load_state_dict(stored)
    assert torch.equal(torch.cat([weight.reshape(-1) for weight in stored.values()]), results["divided"])


@needs_processes
@pytest.mark.slow
def test_each_process_keeps_its_rows_of_weights_and_of_the_optimizer(two):
    weights = sharded_toys.network().named_parameters()
    whole, shapes = zip(*(("factor" in name, weight.shape) for name, weight in weights), strict=True)
    for rank, results in enumerate(two[1]):
        # torch.chunk divides rows into parts of equal sizes, rounded up
        wanted = [
            shape[0] if all_rows else len(torch.arange(shape[0]).chunk(2)[rank])
            for all_rows, shape in zip(whole, shapes, strict=True)
        ]
        assert results["rows"].tolist() == wanted
        numbers = sum(rows * shape[1:].numel() for rows, shape in zip(wanted, shapes, strict=True))
        assert int(results["kept"]) == 2 * numbers  # Adam: two averages


@pytest.mark.parametrize("count", [1, 2, 9, 64, 65])
@pytest.mark.parametrize("pairs", [4, 2**18])
def test_numbers_at_some_places_are_those_of_the_whole_draw(monkeypatch, count, pairs):
    monkeypatch.setattr(noise_stream, "PAIRS", pairs)
    key = bytes(range(32))
    whole, parts = Noise(key), Noise(key)
    numbers = whole.normal(count, 3.0, torch.float64)
    places = [(0, count // 3), (count // 2, count - count // 2), (count // 3, 0)]
    wanted = torch.cat([numbers[first : first + length] for first, length in places])
    assert torch.equal(parts.normal_at(places, count, 3.0), wanted)
    assert parts.state() == whole.state()


def test_a_part_of_a_release_is_that_part_of_the_whole_release():
    vector = torch.linspace(-3, 3, 50)
    total = Bounded([vector[:20].reshape(4, 5), vector[20:]], 0.5, "add-remove")
    whole = torch.cat([part.reshape(-1) for part in release.add_noise(total, 2.0, Noise(bytes(32)))])
    mine = Bounded([vector[10:20].reshape(2, 5), vector[20:27]], 0.5, "add-remove")
    parts = release.add_noise(mine, 2.0, Noise(bytes(32)), coordinates=([Part(10, 10), Part(20, 7)], 50))
    assert torch.equal(torch.cat([part.reshape(-1) for part in parts]), whole[10:27])


def test_a_part_of_an_exact_release_is_refused():
    total = Bounded([torch.zeros(2, dtype=torch.float64)], 1.0, "add-remove", 2.0**-31)
    with pytest.raises(Unsupported, match="whole vector"):
        release.add_noise(total, 2.0, exact=True, coordinates=([Part(0, 2)], 4))


def test_one_process_divides_nothing():
    own = sharded_toys.job(12)
    assert sharding.divided(own, Train.model_validate(sharded_toys.RECIPE)) is own


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"privacy": {**sharded_toys.RECIPE["privacy"], "mask": 0.5}}, "the key privacy.mask"),
        ({"privacy": {**sharded_toys.RECIPE["privacy"], "noise": "exact"}}, "the key privacy.noise"),
    ],
)
def test_keys_that_need_whole_weights_are_refused(monkeypatch, changes, text):
    monkeypatch.setattr("wpriv.training.engine.distributed.size", lambda: 2)
    recipe = Train.model_validate({**sharded_toys.RECIPE, **changes})
    with pytest.raises(Unsupported, match=text):
        sharding.divided(sharded_toys.job(12), recipe)


def test_methods_and_tasks_that_need_whole_weights_are_refused(monkeypatch):
    monkeypatch.setattr("wpriv.training.engine.distributed.size", lambda: 2)
    recipe = Train.model_validate(sharded_toys.RECIPE)
    with pytest.raises(Unsupported, match="this network needs vmap"):
        sharding.divided(sharded_toys.job(12, method="vmap"), recipe)
    own = sharded_toys.job(12)
    own.aggregate = lambda indices: None
    with pytest.raises(Unsupported, match="sums something else"):
        sharding.divided(own, recipe)
    own.batches = None
    with pytest.raises(Unsupported, match="the task classify needs"):
        sharding.divided(own, recipe)


def test_a_checkpoint_of_another_number_of_processes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("wpriv.training.engine.distributed.size", lambda: 2)
    with pytest.raises(UsageError, match="Continue with torchrun --nproc-per-node 4"):
        sharding.require_processes({"divided": 4}, False, tmp_path)
    with pytest.raises(UsageError, match="Continue without torchrun"):
        sharding.require_processes({}, True, tmp_path)
    sharding.require_processes({}, False, tmp_path)


def test_no_fork_begins_from_divided_weights(tmp_path):
    position = {"identity": "toy", "run": 1, "ledger": {"lines": 0, "digest": ""}, "clear": False}
    checkpoint.save(tmp_path / CHECKPOINT, {**position, "weights": {}, "divided": 2})
    with pytest.raises(UsageError, match="divided among 2 processes; finish this run with `resume=True`"):
        inherit(sharded_toys.network(), tmp_path, torch.device("cpu"))


# keys that divided training does not take, each with a value
WHOLE = [
    ("privacy.adapt", "{}"),
    ("privacy.clip", "batch-mean"),
    ("augment", "{copies: 2, flip: both}"),
    ("average", "{}"),
    ("init", str(Path(__file__))),
    ("freeze", "x"),
    ("lora", "{rank: 1}"),
    ("optimizer.warmup", "2"),
]


def test_the_check_of_a_recipe_and_the_start_of_a_training_refuse_a_key_by_the_same_words(monkeypatch, capsys):
    monkeypatch.setattr("wpriv.training.engine.distributed.size", lambda: 2)
    changes = {"average": {"decay": 0.9}, "shard_weights": True}
    with pytest.raises(Unsupported) as start:
        sharding.divided(sharded_toys.job(12), Train.model_validate({**sharded_toys.RECIPE, **changes}))
    words = ["--dry-run", "--set", "shard_weights=true", "--set", "average={decay: 0.9}"]
    assert main(["train", "quick/digits", *words]) == 2
    assert str(start.value) in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--shard-weights"], "torchrun --nproc-per-node 2"),
        (["--set", "shard_weights=true", "--set", "privacy.method=vmap"], "privacy.method"),
        (["--set", "shard_weights=true", "--set", "privacy.noise=exact"], "privacy.noise"),
        (["--set", "shard_weights=true", "--set", "privacy.mask=0.5"], "privacy.mask"),
        *((["--set", "shard_weights=true", "--set", f"{key}={value}"], f"the key {key} needs") for key, value in WHOLE),
        (["--set", "shard_weights=3"], "shard_weights"),
    ],
)
def test_the_command_refuses_what_needs_whole_weights(tmp_path, monkeypatch, capsys, words, text):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "quick/digits", "--out", "x", *words]) == 2
    error = capsys.readouterr().err
    assert text in error
    assert "shard" in error
    assert not Path("x").exists()


def test_a_recipe_without_the_key_is_the_same_run_as_before_there_was_one():
    from wpriv.training import train

    assert "shard_weights" not in train.recipe_of("quick/digits").data
    assert train.recipe_of("quick/digits", changes={"shard_weights": True}).data["shard_weights"] is True
