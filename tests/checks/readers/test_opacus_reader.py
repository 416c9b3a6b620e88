"""Opacus: files written by the real library, live objects where it is installed, and hostile checkpoints."""

from __future__ import annotations

import os
import pickle
import zipfile

import pytest

import wpriv
from tests.checks.readers.standins import GOLDEN
from wpriv.checks.readers import _checkpoints, opacus
from wpriv.errors import UsageError

FILES = GOLDEN / "opacus-1.6.0"
DECLARED = {
    "max_per_unit": 1,
    "records_public": True,
    "noise.seed": "os",
    "composition.runs": 1,
    "composition.other": [],
}
STATE = "privacy_accountant_state_dict"


@pytest.mark.parametrize("name", ["checkpoint.pt", "numpy.pt", "history.json"])
def test_the_history_of_a_file_is_read_without_torch_and_without_opacus(name):
    found = opacus.read(FILES / name, {})
    assert opacus.recognises(FILES / name)
    assert [dict(step) for step in found.accounted] == [
        {"mech": "gauss", "noise_multiplier": 1.0, "sampling": "poisson", "rate": 0.01, "n": 500}
    ]
    assert found.read == ("history (1, 0.01, 500)", "mechanism prv")
    verdict = wpriv.check(FILES / name, eps=1.33617, delta=1e-5)
    assert verdict.verdict == "incomplete"
    assert [each.field for each in verdict.missing] == ["sampling.kind", "records_public", "max_per_unit"]


def checkpoint(path, data):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", data)
    return path


class Hostile:
    """Runs a program where it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch hostile",)


NESTED = b"\x80\x02}X\x1d\x00\x00\x00" + STATE.encode() + b"0K\x01\x85" + b"2\x86" * 60 + b"K\x01s."
MEMO = b"\x80\x02X\x1d\x00\x00\x00" + STATE.encode() + b"r\xff\xff\xff\x7f."


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pickle.dumps({STATE: {"history": [], "x": Hostile()}}), "holds posix.system|holds nt.system"),
        (b"cbuiltins\neval\n(S'1 # " + STATE.encode() + b"'\ntR.", "holds builtins.eval"),
        (NESTED, "a key that is a tuple"),  # the hash of which takes 2^60 steps
        (MEMO, "must be an object"),  # a memo of 2^31 places
        (pickle.dumps({STATE: {"history": [(1.0, 0.01, 5)]}})[:-9], "damaged"),
        (STATE.encode() + b"\0" * (_checkpoints.MAX_BYTES + 1), "more than 16,000,000 bytes"),
        (pickle.dumps({STATE: {}}), "must be a list"),
        *(
            (pickle.dumps({STATE: {"history": [row]}}), words)
            for row, words in [
                ((1.0, 0.01, -5), "steps of entry 1"),
                ((1.0, 2.0, 5), "sample_rate of entry 1"),
                ((float("nan"), 0.01, 5), "finite"),
                (("one", 0.01, 5), "must be a number"),
                ((1.0, 0.01), "found 2 values"),
            ]
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_hostile_or_damaged_checkpoint_is_refused_by_name(tmp_path, monkeypatch, data, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=words):
        wpriv.check(checkpoint(tmp_path / "run.pt", data), delta=1e-5)
    assert not (tmp_path / "hostile").exists()


def private(records, batch, sigma, *, poisson=True, accountant="prv", sampler=None, history=None, **more):
    """The engine, model, optimizer and loader of ``make_private``, with a history as if it had trained."""
    torch, library = pytest.importorskip("torch"), pytest.importorskip("opacus")
    data = torch.utils.data.TensorDataset(torch.zeros(records, 9))
    model = torch.nn.Linear(9, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(data, batch_size=batch, shuffle=sampler is None, sampler=sampler)
    engine = library.PrivacyEngine(accountant=accountant)
    more = {"max_grad_norm": 1.0, **more}
    made = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=sigma, poisson_sampling=poisson, **more
    )
    engine.accountant.history = list(history or ())
    return engine, dict(zip(("model", "optimizer", "loader"), made, strict=True)), optimizer


def test_a_run_that_differs_in_the_sampler_alone_is_proved_and_refuted():
    history = [(1.0, 0.01, 500)]
    engine, objects, _ = private(5000, 50, 1.0, history=history)
    verdict = wpriv.check(engine, **objects, delta=1e-5, premises=DECLARED)
    assert verdict.sentence().startswith("(1.33617, 1e-5)-DP is proved for zero-out neighbours: delta(1.33617)")
    words = "history, UniformWithReplacementSampler, expected_batch_size 50, max_grad_norm 1"
    assert dict(verdict.facts())["read"] == words
    assert engine.accountant.history == history  # the figure was asked of a copy
    engine, objects, _ = private(5000, 50, 1.0, poisson=False, history=history)
    verdict = wpriv.check(engine, **objects, delta=1e-5, premises=DECLARED)
    assert verdict.epsilon == pytest.approx((7.12291, 11.4801), abs=1e-4)
    seen = "loader.batch_sampler.sampler is a RandomSampler without replacement"
    assert dict(verdict.facts())["contradicted"] == f"sampling is shuffle; {seen}"
    verdict = wpriv.check(engine, **objects, delta=1e-5, premises={**DECLARED, "sampling.kind": "poisson"})
    assert verdict.verdict == "contradicted"


def test_batches_that_are_split_and_rates_that_are_rounded_are_no_alarm():
    library = pytest.importorskip("opacus.utils.batch_memory_manager")
    engine, objects, _ = private(2500, 250, 1.0, history=[(1.0, 0.1, 20)])
    splitting = library.BatchMemoryManager(
        data_loader=objects["loader"], max_physical_batch_size=32, optimizer=objects["optimizer"]
    )
    with splitting as loader:
        verdict = wpriv.check(engine, **{**objects, "loader": loader}, delta=1e-5, premises=DECLARED)
    assert verdict.verdict == "proved"
    assert verdict.epsilon == pytest.approx((3.59074, 3.59075), abs=1e-5)
    engine, objects, _ = private(2970, 30, 1.0, history=[(1.0, 1 / 98, 98)])  # the sampler's rate is 1/99
    verdict = wpriv.check(engine, **objects, delta=1e-5, premises=DECLARED)
    assert verdict.epsilon == pytest.approx((0.720737, 0.720738), abs=1e-6)
    assert any("looser than need be" in words for _, words in verdict.facts())


def test_kinds_of_steps_and_clipping_by_layers_are_no_alarm():
    engine, objects, _ = private(500, 50, 1.0, history=[(1.0, 0.1, 10), (0.9, 0.1, 10), (0.81, 0.1, 10)])
    objects["optimizer"].noise_multiplier = 0.729  # what a schedule leaves for the next step
    verdict = wpriv.check(engine, **objects, delta=1e-5, premises=DECLARED)
    assert verdict.epsilon == pytest.approx((5.43986, 5.43987), abs=1e-5)
    assert verdict.verdict == "proved"
    layers = {"clipping": "per_layer", "max_grad_norm": [1.0, 1.0]}
    engine, objects, _ = private(500, 50, 1.0, history=[(1.0, 0.1, 10)], **layers)
    verdict = wpriv.check(engine, **objects, delta=1e-5, premises=DECLARED)
    assert (verdict.verdict, verdict.epsilon[1]) == ("proved", pytest.approx(2.85452, abs=1e-5))


@pytest.mark.parametrize("accountant", ["rdp", "prv", "gdp"])
def test_a_plain_optimizer_that_stepped_is_seen(accountant):
    engine, objects, plain = private(500, 50, 1.0, accountant=accountant)
    for optimizer in (plain, objects["optimizer"]):  # the private one made no step either
        verdict = wpriv.check(engine, **{**objects, "optimizer": optimizer}, delta=1e-5, premises=DECLARED)
        assert verdict.verdict == "refuted"
        assert "no private step was recorded" in verdict.sentence()


def test_a_central_limit_is_an_estimate_and_is_refuted():
    engine, objects, _ = private(5000, 50, 0.893555, accountant="gdp", history=[(0.893555, 0.01, 1000)])
    verdict = wpriv.check(engine, **objects, eps=2.0, premises={**DECLARED, "claim.delta": 1e-5})
    assert verdict.epsilon == pytest.approx((2.35703, 2.35704), abs=1e-5)
    assert verdict.is_estimate
    assert verdict.failure().endswith("an estimate was quoted as a guarantee")


def test_weights_workers_and_the_noise_of_adaptive_clipping_are_read():
    torch = pytest.importorskip("torch")
    weights = torch.ones(5000)
    weights[7] = 100
    sampler = torch.utils.data.WeightedRandomSampler(weights, 5000)
    engine, objects, _ = private(5000, 50, 1.0, poisson=False, sampler=sampler, history=[(1.0, 0.01, 500)])
    verdict = wpriv.check(engine, **objects, delta=1e-5, premises=DECLARED)
    assert verdict.verdict == "refuted"
    assert verdict.epsilon[0] == pytest.approx(492.976, abs=1e-2)
    engine, objects, _ = private(2500, 125, 1.0, poisson=False, history=[(1.0, 0.05, 160)])
    objects["optimizer"].world_size = 2
    verdict = wpriv.check(engine, **objects, delta=1e-5, premises=DECLARED)
    assert (verdict.verdict, verdict.epsilon[1]) == ("refuted", pytest.approx(39.3829, abs=1e-3))
    adaptive = {"clipping": "adaptive", "target_unclipped_quantile": 0.5, "clipbound_learning_rate": 0.2}
    adaptive |= {"max_clipbound": 10.0, "min_clipbound": 0.1, "unclipped_num_std": 0.6}
    for z, verdict in ((1.0, "proved"), (1.809068, "refuted")):  # paid, as from 1.6 on, and not
        engine, objects, _ = private(500, 10, 1.0, history=[(z, 0.02, 500)], **adaptive)
        found = wpriv.check(engine, **objects, delta=1e-5, premises=DECLARED)
        assert (found.verdict, found.epsilon[1]) == (verdict, pytest.approx(2.77345, abs=1e-5))


def test_the_rate_of_a_step_that_sums_several_batches_is_that_of_all_of_them():
    history = [(1.0, 0.02, 100)]  # 100 batches a pass, two of them a step: two passes
    engine, objects, _ = private(5000, 50, 1.0, poisson=False, history=history)
    verdict = wpriv.check(engine, **objects, delta=1e-5, premises=DECLARED)
    two_passes = wpriv.budget("gauss", sigma=1, n=2, delta=1e-5).epsilon.safe
    assert verdict.epsilon[1] == pytest.approx(two_passes, rel=1e-9)
    assert verdict.verdict == "refuted"


def test_objects_that_do_not_belong_together_are_contradicted():
    torch = pytest.importorskip("torch")
    engine, objects, _ = private(5000, 50, 1.0, history=[(1.0, 0.01, 500)])
    other, _, _ = private(5000, 50, 1.0, history=[(1.0, 0.01, 500)])
    assert wpriv.check(other, **objects, delta=1e-5, premises=DECLARED).verdict == "contradicted"
    norm = torch.nn.BatchNorm1d(3)
    verdict = wpriv.check(engine, **{**objects, "model": norm}, delta=1e-5, premises=DECLARED)
    words = [words for label, words in verdict.facts() if label == "contradicted"]
    assert any("not the one that the private optimizer updates" in each for each in words)
    assert any("mix records" in each for each in words)


def test_the_noise_that_a_schedule_leaves_for_the_next_step_is_no_alarm():
    engine, objects, _ = private(500, 50, 1.0, history=[(1.0, 0.1, 10)])
    objects["optimizer"].noise_multiplier = 0.9
    verdict = wpriv.check(engine, **objects, delta=1e-5, premises=DECLARED)
    assert verdict.verdict == "proved"
    assert any("0.9 now; the history has that of each step" in words for _, words in verdict.facts())


def test_a_hook_that_replaced_the_counting_one_is_contradicted_and_one_that_calls_it_is_not():
    engine, objects, _ = private(500, 50, 1.0, history=[(1.0, 0.1, 10)])
    optimizer, before = objects["optimizer"], objects["optimizer"].step_hook
    optimizer.attach_step_hook(lambda stepping: before(stepping))
    assert wpriv.check(engine, **objects, delta=1e-5, premises=DECLARED).verdict == "proved"
    optimizer.attach_step_hook(lambda stepping: None)
    verdict = wpriv.check(engine, **objects, delta=1e-5, premises=DECLARED)
    assert "counts in no accountant" in verdict.failure()


def test_steps_that_adam_has_counted_beyond_the_history_are_contradicted():
    engine, objects, plain = private(500, 50, 1.0, history=[(1.0, 0.1, 10)])
    parameter = plain.param_groups[0]["params"][0]
    for steps, verdict in ((10.0, "proved"), (30.0, "contradicted")):
        plain.state[parameter] = {"step": steps}
        assert wpriv.check(engine, **objects, delta=1e-5, premises=DECLARED).verdict == verdict
    assert list(plain.state) == [parameter]


@pytest.mark.parametrize(
    "less",
    [
        {"process": [{"mech": "gauss", "sigma": 100}]},
        {"accounted": [{"mech": "gauss", "sigma": 100}]},
        {"steps": 1},
        {"noise.std": 100},
        {"noise.multiplier": 100},
        {"noise.relative_to": "2 clip", "claim.eps": 1.2},
    ],
    ids=str,
)
def test_less_than_the_history_holds_is_not_proved_by_declaring_it(less):
    engine, objects, _ = private(500, 50, 1.0, history=[(1.0, 0.1, 10)])
    claim = {"claim.eps": 0.5, "claim.delta": 1e-5}
    verdict = wpriv.check(engine, **objects, premises={**DECLARED, **claim, **less})
    assert verdict.verdict in ("contradicted", "refuted")


def test_more_accounted_for_than_is_declared_to_have_run_is_no_alarm():
    engine, objects, _ = private(500, 50, 1.0, history=[(1.0, 0.1, 10)])
    verdict = wpriv.check(engine, **objects, delta=1e-5, premises={**DECLARED, "steps": 9})
    assert verdict.verdict == "proved"
