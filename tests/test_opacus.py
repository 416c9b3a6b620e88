"""wpriv inside Opacus. Oracles: the bracket of the calculator, and figures of Opacus 1.6.0 by prv and rdp."""

from __future__ import annotations

import itertools
import json
import shutil

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

pytest.importorskip("opacus")
from opacus import PrivacyEngine
from opacus.accountants import create_accountant
from opacus.accountants.utils import get_noise_multiplier
from opacus.schedulers import ExponentialNoise
from opacus.utils.batch_memory_manager import BatchMemoryManager

import wpriv
from wpriv.errors import Unsupported, UsageError
from wpriv.opacus import StepLedger, WprivAccountant, register

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
JOB = {"target_epsilon": 1, "target_delta": 1e-5, "sample_rate": 0.01, "steps": 1000}
GENERATOR = torch.Generator().manual_seed(0)
DATA = TensorDataset(torch.randn(100, 4, generator=GENERATOR), torch.randint(2, (100,), generator=GENERATOR))


def accountant(*history):
    made = create_accountant("wpriv")
    made.history = list(history)
    return made


def private(noise=1.0, batch=10, accountant="wpriv"):
    torch.manual_seed(0)
    engine, model = PrivacyEngine(accountant=accountant), torch.nn.Linear(4, 2)
    parts = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(DATA, batch_size=batch),
        noise_multiplier=noise,
        max_grad_norm=1.0,
    )
    return engine, *parts


def train(model, optimizer, loader):
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


def lines(folder):
    return [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("history", "prv"),
    [
        ([(1.0, 0.01, 1000)], 1.83837),
        ([(0.8 + 0.02 * k, 0.01, 100) for k in range(50)], 3.4749),
        ([(2.0, 1.0, 3)], 3.71884),
        ([(1.0, 0.01, 400), (2.0, 0.01, 100), (1.0, 0.01, 600)], 1.85048),
    ],
)
def test_eps_is_the_upper_end_of_the_bracket(history, prv, tmp_path):
    path = tmp_path / "history.json"
    path.write_text(json.dumps(history))
    bracket = wpriv.budget(history=path, delta=1e-5).epsilon
    eps = accountant(*history).get_epsilon(1e-5)
    assert bracket.lower <= eps <= bracket.lower * (1 + 1e-4)
    assert eps < prv
    assert accountant(*history).get_epsilon(1e-5, tol=1e-6, eps_error=0.01) <= bracket.lower * (1 + 1.1e-6)


@pytest.mark.parametrize(("tolerance", "sigma"), [(0.01, 1.41602), (1e-5, 1.41466)])
def test_the_noise_is_less_than_by_the_accountants_of_opacus(tolerance, sigma):
    found = get_noise_multiplier(**JOB, accountant="wpriv", epsilon_tolerance=tolerance)
    assert found == pytest.approx(sigma, abs=5e-6)
    assert found < 1.42578 < 1.52344  # prv and rdp, Opacus 1.6.0
    kept = wpriv.budget("gauss", sigma=found, sampling="poisson", rate=0.01, n=1000, delta=1e-5)
    assert 1 - tolerance - 1e-4 <= float(kept.epsilon) <= 1


def test_the_engine_finds_its_noise_with_any_tolerance_and_keeps_the_target():
    engine, model = PrivacyEngine(accountant="wpriv"), torch.nn.Linear(4, 2)
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(DATA, batch_size=20),
        target_epsilon=3,
        target_delta=1e-3,
        epochs=2,
        max_grad_norm=1.0,
        epsilon_tolerance=1e-4,
    )
    for _ in range(2):
        train(model, optimizer, loader)
    assert len(engine.accountant) == 10
    assert 3 - 1e-4 <= engine.get_epsilon(1e-3) <= 3


def test_equal_neighbours_are_one_entry_and_the_length_is_the_number_of_steps():
    made = create_accountant("wpriv")
    for noise in (1.0, 1.0, 2.0, 1.0):
        made.step(noise_multiplier=noise, sample_rate=0.1)
    assert made.history == [(1.0, 0.1, 2), (2.0, 0.1, 1), (1.0, 0.1, 1)]
    assert len(made) == 4
    other = create_accountant("wpriv")
    other.load_state_dict(made.state_dict())
    assert (other.history, other.mechanism()) == (made.history, "wpriv")


def test_a_checkpoint_brings_the_history_back(tmp_path):
    engine, model, optimizer, loader = private()
    train(model, optimizer, loader)
    engine.save_checkpoint(path=tmp_path / "c.pt", module=model, optimizer=optimizer)
    again, *_ = private()
    again.load_checkpoint(path=tmp_path / "c.pt", module=model)
    assert again.accountant.history == engine.accountant.history == [(1.0, 0.1, 10)]
    assert again.get_epsilon(1e-3) == engine.get_epsilon(1e-3)


def test_registering_twice_is_allowed():
    register()
    assert isinstance(create_accountant("wpriv"), WprivAccountant)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: accountant().get_epsilon(1e-5), "no step was recorded"),
        (lambda: accountant((1.0, 0.1, 1)).get_epsilon(0), "`delta` must be above 0 and below 1"),
        (lambda: accountant((1.0, 0.1, 1)).get_epsilon(1), "`delta` must be above 0 and below 1"),
        (lambda: accountant((1.0, 0.1, 1)).get_epsilon("x"), "`delta` must be a number"),
        (lambda: accountant((0.0, 0.1, 1)).get_epsilon(1e-5), "no finite eps holds for a step without noise; found 0"),
        (lambda: accountant((1.0, 1.5, 1)).get_epsilon(1e-5), "`sample_rate`.*found 1.5"),
        (lambda: accountant((1.0, 0.1)).get_epsilon(1e-5), "entries \\(noise_multiplier, sample_rate, steps\\)"),
        (lambda: accountant().step(noise_multiplier=0.0, sample_rate=0.1), "without noise; found 0"),
        (lambda: accountant().step(noise_multiplier=1.0, sample_rate=1.5), "found 1.5"),
        (lambda: accountant().step(noise_multiplier=float("nan"), sample_rate=0.5), "finite"),
    ],
)
def test_a_history_without_a_figure_is_refused(call, words):
    with pytest.raises(UsageError, match=words):
        call()


def test_each_step_is_a_line_on_disk_before_the_engine_counts_it_and_the_weights_change(tmp_path):
    engine, model, optimizer, loader = private(accountant="rdp")
    (weights, _), own, seen = model.parameters(), optimizer.step_hook, []

    def between(stepping):
        seen.append((len(lines(tmp_path / "run")), len(engine.accountant), weights.detach().clone()))
        own(stepping)

    optimizer.attach_step_hook(between)
    book = StepLedger(optimizer, steps=10, out=tmp_path / "run", sample_rate=0.1)
    train(model, optimizer, loader)
    book.close()
    assert [(on_disk, counted) for on_disk, counted, _ in seen] == [(k + 1, min(k, 1)) for k in range(10)]
    assert all(bool((one != two).any()) for (_, _, one), (_, _, two) in itertools.pairwise(seen))
    assert optimizer.step_hook is between
    assert engine.accountant.history == [(1.0, 0.1, 10)]
    row = wpriv.budget(history=tmp_path / "run", delta=1e-3)
    assert row.process.adjacency == "zero-out"
    assert float(row.epsilon) == pytest.approx(accountant((1.0, 0.1, 10)).get_epsilon(1e-3), rel=1e-4)


def test_a_ledger_is_read_after_a_crash_and_after_an_early_end_and_never_if_it_was_cut(tmp_path):
    engine, model, optimizer, loader = private()
    book = StepLedger(optimizer, steps=30, out=tmp_path / "run")
    train(model, optimizer, loader)
    shutil.copytree(tmp_path / "run", tmp_path / "crashed")
    book.close()
    for folder in ("run", "crashed"):
        row = wpriv.budget(history=tmp_path / folder, delta=1e-3)
        assert float(row.epsilon) == pytest.approx(engine.get_epsilon(1e-3), rel=1e-4)
        assert any("10 of its 30 planned steps" in line for line in row.extra["reading"])
    kept = (tmp_path / "run" / "ledger.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "run" / "ledger.jsonl").write_text("".join(kept[:-1]))
    with pytest.raises(UsageError, match="recorded 10 entries"):
        wpriv.budget(history=tmp_path / "run", delta=1e-3)


def test_a_continued_folder_accounts_for_all_of_its_runs(tmp_path):
    for _ in range(2):
        _, model, optimizer, loader = private()
        book = StepLedger(optimizer, steps=10, out=tmp_path)
        train(model, optimizer, loader)
        book.close()
    assert wpriv.budget(history=tmp_path, delta=1e-3).process.steps[0].n == 20


def test_noise_that_changes_and_batches_in_pieces_are_as_the_engine_counts_them(tmp_path):
    engine, model, optimizer, loader = private(batch=25)
    schedule = ExponentialNoise(optimizer, gamma=0.5)
    book = StepLedger(optimizer, steps=8, out=tmp_path)
    for _ in range(2):
        with BatchMemoryManager(data_loader=loader, max_physical_batch_size=4, optimizer=optimizer) as pieces:
            train(model, optimizer, pieces)
        schedule.step()
    book.close()
    found = [(line["sigma"], line["rate"]) for line in lines(tmp_path)]
    assert found == [(noise, rate) for noise, rate, steps in engine.accountant.history for _ in range(steps)]
    assert found == [(1.0, 0.25)] * 4 + [(0.5, 0.25)] * 4


def test_a_step_beyond_the_plan_is_refused_before_the_weights_change(tmp_path):
    _, model, optimizer, loader = private()
    StepLedger(optimizer, steps=3, out=tmp_path)
    with pytest.raises(UsageError, match="all 3 planned steps"):
        train(model, optimizer, loader)
    assert len(lines(tmp_path)) == 3


def changed(**attributes):
    _, _, optimizer, _ = private()
    for name, value in attributes.items():
        setattr(optimizer, name, value)
    return optimizer


@pytest.mark.parametrize(
    ("make", "options", "kind", "words"),
    [
        (lambda: changed().original_optimizer, {}, UsageError, "is SGD and no DPOptimizer"),
        (lambda: changed(step_hook=None), {}, UsageError, "give `sample_rate`"),
        (changed, {"sample_rate": 0.2}, UsageError, "is 0.2, and the engine accounts for 0.1"),
        (lambda: changed(noise_multiplier=0), {}, UsageError, "without noise"),
        (lambda: changed(world_size=2), {}, Unsupported, "2 processes"),
        (changed, {"steps": 0}, UsageError, "`steps`, the number of noisy steps,"),
        (changed, {"after": 7}, UsageError, "goes on after 7 steps"),
    ],
)
def test_a_ledger_that_would_not_hold_is_refused_and_leaves_nothing(make, options, kind, words, tmp_path):
    optimizer = make()
    with pytest.raises(kind, match=words):
        StepLedger(optimizer, out=tmp_path / "run", **{"steps": 10, **options})
    assert not (tmp_path / "run").exists()


def test_one_step_is_one_line(tmp_path):
    _, _, optimizer, _ = private()
    StepLedger(optimizer, steps=10, out=tmp_path / "a")
    with pytest.raises(UsageError, match="a ledger already"):
        StepLedger(optimizer, steps=10, out=tmp_path / "b")
    with pytest.raises(UsageError, match="another training writes to"):
        StepLedger(changed(), steps=10, out=tmp_path / "a")
