"""Folders of transformers 5.24.0, DPTrainer 0.1.2 and opake 0.16.1, and files of Lightning 2.6.6."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import wpriv
from tests.checks.readers.standins import GOLDEN, golden
from wpriv.checks.readers import lightning, opake, transformers
from wpriv.errors import Unsupported, UsageError

DPTRAINER, OPAKE = GOLDEN / "dptrainer-0.1.2", GOLDEN / "opake-0.16.1"
PUBLIC = {"records_public": True, "max_per_unit": 1}


def values(found):
    return {fact.field: fact.value for fact in found.facts}


def test_a_trainer_counts_updates_and_shows_nothing_private():
    folder = GOLDEN / "transformers-5.24.0"
    found = transformers.read(folder, {})
    assert values(found) == {"steps": 6, "steps_source": "counter"}
    assert found == transformers.read(folder / "checkpoint-6" / "trainer_state.json", {})
    assert wpriv.check(folder).verdict == "incomplete"


def test_a_search_of_hyperparameters_is_noted(tmp_path):
    state = {"global_step": 6, "is_hyper_param_search": True}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert "composition.selected" in transformers.read(tmp_path, {}).notes[0]


def test_epochs_of_dptrainer_that_end_in_the_midst_of_a_batch_are_refuted():
    result = wpriv.check(DPTRAINER / "checkpoint-20", premises=PUBLIC)
    assert result.verdict == "refuted"
    assert result.epsilon == pytest.approx((4.72126, 4.72127), abs=1.1e-5)
    lines = dict(result.facts())
    assert "4 of 15 releases hold parts of two batches" in lines["contradicted"]
    assert "state eps" not in lines["change"]


def test_updates_above_the_history_that_no_number_decides_are_contradicted():
    result = wpriv.check(DPTRAINER / "checkpoint-30", premises=PUBLIC)
    assert result.verdict == "contradicted"
    assert "global_step is 30, and the history has 20 steps" in result.sentence()


def state_of(global_step, tmp_path, **changes):
    data = golden("dptrainer-0.1.2/checkpoint-30/trainer_state.json")
    data |= {"global_step": global_step, **changes}
    (tmp_path / "trainer_state.json").write_text(json.dumps(data))
    return tmp_path


def test_a_history_of_all_updates_is_proved(tmp_path):
    result = wpriv.check(state_of(20, tmp_path), premises={**PUBLIC, "sampling.kind": "poisson"})
    assert result.verdict == "proved"
    assert result.epsilon[1] == pytest.approx(1.69271, abs=1e-4)


def test_a_history_without_steps_has_no_finite_eps(tmp_path):
    data = golden("dptrainer-0.1.2/checkpoint-30/trainer_state.json")
    data["stateful_callbacks"]["DPCallback"]["attributes"]["_accountant_state_dict"]["history"] = []
    data["log_history"] = [{"privacy_epsilon": 0.0, "step": 30}]
    (tmp_path / "trainer_state.json").write_text(json.dumps(data))
    result = wpriv.check(tmp_path, premises=PUBLIC)
    assert result.verdict == "refuted"
    assert "no private step" in result.sentence()


def test_a_folder_of_opake_is_proved_at_what_it_printed():
    result = wpriv.check(OPAKE, premises=PUBLIC)
    assert result.verdict == "proved"
    assert result.epsilon == pytest.approx((2.99809, 2.99810), abs=1.1e-5)
    assert "accountant.json of 12 steps" in str(result.facts())


def test_an_account_of_opake_deeper_than_python_reads_is_read_whole():
    found = opake.read(OPAKE / "changing.json", {})
    assert [step["noise_multiplier"] for step in found.accounted[:1200]] == [
        pytest.approx(2 + k / 1000) for k in range(1200)
    ]
    truncated, adaptive, given = found.accounted[1200:]
    assert (truncated["max_batch"], truncated["records"]) == (64, 500)
    assert adaptive["noise_multiplier"] == pytest.approx(
        0.9805806756909201
    )  # what opake has for effective_noise_multiplier
    assert given == {"mech": "dp", "eps0": 0.1, "delta0": 1e-6, "n": 1}
    assert values(found)["claim.eps"] == 3.0


def test_blocks_of_an_allocation_are_passes_of_their_sizes():
    inner = {"type": "Gaussian", "noise_multiplier": 2.0}
    process = {"type": "KOutOfT", "inner": inner, "k": 3, "n_steps": 10, "allocation": "block"}
    steps = opake.steps_of(process)
    assert [(round(1 / step["rate"]), step["n"]) for step in steps] == [(3, 6), (4, 4)]
    with pytest.raises(Unsupported, match="allocation 'total'"):
        opake.steps_of({**process, "allocation": "total"})


def test_a_monte_carlo_figure_of_opake_is_an_estimate(tmp_path):
    data = {"process": {"type": "BallsInBins", "inner": {}}}
    (tmp_path / "accountant.json").write_text(json.dumps(data))
    found = opake.read(tmp_path, {})
    assert values(found)["claim.kind"] == "estimate"
    assert "no pair of BallsInBins" in found.notes[0]


def test_an_unknown_process_is_refused():
    with pytest.raises(UsageError, match="no process of opake is called 'Quantum'"):
        opake.steps_of({"type": "Quantum"})


def test_a_checkpoint_of_lightning_has_the_account_of_a_callback():
    file = GOLDEN / "lightning-2.6.6" / "last.ckpt"
    found = lightning.read(file, {})
    assert found.name == "lightning 2.6.6"
    assert found.accounted == ({"mech": "gauss", "noise_multiplier": 1.0, "sampling": "poisson", "rate": 0.1, "n": 20},)
    result = wpriv.check(file, eps=3.60105, delta=1e-5, premises={**PUBLIC, "sampling.kind": "poisson"})
    assert result.verdict == "proved"


def test_a_log_of_lightning_has_the_last_eps():
    for path in (GOLDEN / "lightning-2.6.6" / "metrics.csv", GOLDEN / "lightning-2.6.6"):
        assert values(lightning.read(path, {}))["claim.eps"] == pytest.approx(3.5360724925)


def trainer(optimizer):
    names = {"optimizers": [optimizer], "global_step": 20, "train_dataloader": None, "lightning_module": None}
    return type("Trainer", (), {"__module__": "lightning.pytorch.trainer.trainer", **names})()


def test_a_plain_optimizer_of_a_trainer_has_no_finite_eps():
    """F8: Lightning wraps the optimizer that stepped, which is none of Opacus."""
    wrapped = SimpleNamespace(_optimizer=type("SGD", (), {"__module__": "torch.optim.sgd"})())
    wrapped = type("LightningSGD", (), {"optimizer": wrapped._optimizer})()
    assert lightning.recognises(trainer(wrapped))
    result = wpriv.check(trainer(wrapped), eps=0.0, delta=1e-5, premises=PUBLIC)
    assert result.verdict == "refuted"
    assert "adds no noise" in result.sentence()


def test_stated_guarantees_are_composed_exactly(tmp_path):
    """The numbers of R12: (.1, 1e-5) a thousand times at delta .0099552, Kairouz, Oh, Viswanath 2015."""
    release = {"type": "EpsDelta", "epsilon": 0.1, "delta": 1e-5}
    data = {"process": {"type": "Repeated", "inner": release, "count": 1000}}
    (tmp_path / "accountant.json").write_text(json.dumps(data, indent=1))
    result = wpriv.check(tmp_path, eps=20.6203, delta=0.0099552, premises=PUBLIC)
    assert result.verdict == "proved"
    assert result.epsilon[1] == pytest.approx(18.2737, abs=5e-5)
