"""Deviations from printed settings: the oracle is a recipe and the sentence that a reader would write by hand."""

from __future__ import annotations

import pytest

from wpriv.accounting import load_recipe
from wpriv.errors import UsageError
from wpriv.results import expectations

TRAIN = """\
kind: train
source: "a paper, Table 1"
task: classify
data: {name: mnist, records: 60000, first: 6000}
model: {name: grey-cnn}
privacy: {eps: 1, delta: 1e-5}
optimizer: {lr: 0.5}
batch: 250
epochs: 2
seeds: 5
printed: {source: "Section 5", steps: 41652, seeds: 10, optimizer.lr: 0.05, data.records: 60000, optimizer.name: adam}
sweep: {over: method, settings: {ours: {privacy.eps: 2}, theirs: {optimizer.lr: 0.05}}}
expect:
  - {where: {method: ours}, accuracy: 0.9, within: 0.1, kind: published, source: "Table 1"}
  - {where: {method: theirs}, accuracy: 0.9, within: 0.1, kind: published, source: "Table 1"}
"""
COMPARE = """\
kind: compare
source: "a paper, Figure 1"
process: [{mech: gauss, sigma: 4, n: 100}]
printed: {source: "Figure 1", process.0.sigma: 5, process.0.n: 100, delta: 1e-5}
delta: 1e-6
expect: [{epsilon: 1, within: 0.1, source: "by hand"}]
"""


@pytest.fixture
def read(tmp_path):
    def read(text):
        (tmp_path / "recipe.yaml").write_text(text)
        return load_recipe.read(tmp_path / "recipe.yaml")

    return read


def test_a_row_of_a_sweep_names_what_its_own_training_has_other_than_printed(read):
    rows = [{"method": name, "accuracy": 0.9, "seeds": 5, "step": 48} for name in ("ours", "theirs")]
    ours, theirs = expectations.verdicts(read(TRAIN), rows)
    shared = "steps 48 of 41,652; seeds 5 of 10; {}records 6,000 of 60,000; optimizer sgd for adam"
    assert ours.setting == shared.format("lr 0.5 for 0.05; ")
    assert theirs.setting == shared.format("")


def test_settings_that_vary_in_a_sweep_are_not_compared_for_the_whole_of_it(read):
    assert "lr" not in expectations.deviations(read(TRAIN), {}, "", {}, 5)


def test_a_comparison_has_its_settings_in_its_steps_and_its_question(read):
    assert expectations.deviations(read(COMPARE), {}, "", {}) == "sigma 4 for 5; delta 1e-06 for 1e-05"


def test_a_row_of_a_figure_over_n_deviates_in_no_n(read):
    recipe = read(
        COMPARE.replace("expect: [{epsilon", "sweep: {over: n, values: [10, 100]}\nexpect: [{where: {n: 10}, epsilon")
    )
    assert (
        expectations.verdicts(recipe, [{"n": 10, "epsilon": 1.0}])[0].setting == "sigma 4 for 5; delta 1e-06 for 1e-05"
    )


def test_a_printed_power_is_the_number_of_a_row(read):
    recipe = read(COMPARE.replace("n: 100,", "n: 2^4,").replace("n: 100}", "n: 16}"))
    assert "n 16" not in expectations.deviations(recipe, {"n": 16}, "", {})


def test_a_recipe_that_runs_as_printed_deviates_in_nothing(read):
    recipe = read(COMPARE.replace("sigma: 5", "sigma: 4").replace("1e-6", "1e-5"))
    assert expectations.verdicts(recipe, [{"epsilon": 1.0}])[0].setting == ""


def test_a_quick_run_is_not_compared_with_printed_settings(read, tmp_path):
    read(TRAIN)
    assert load_recipe.read(tmp_path / "recipe.yaml", quick=True).printed is None


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("optimizer.lr: 0.05,", "optimizer.rate: 0.05,", "a recipe of this kind has no key 'optimizer.rate'"),
        ('source: "Section 5", ', "", "source"),
        ("kind: published", "procedure: another, kind: reference", "procedure is about a number of the paper"),
    ],
)
def test_a_printed_setting_names_a_key_and_its_source(read, old, new, fault):
    with pytest.raises(UsageError, match=fault):
        read(TRAIN.replace(old, new, 1))
