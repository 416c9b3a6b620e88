"""Groups, largest batches and bands through the verbs: budget, calibrate, compare and histories."""

from __future__ import annotations

import json

import pytest

from wpriv import FixedSize, Gauss, Poisson, Process, Step, budget, calibrate, compare
from wpriv.cli.main import main
from wpriv.errors import Unsupported, UsageError

SGD = {"sigma": 4, "sampling": "poisson", "rate": 0.01, "n": 1000}


def test_objects_and_names_describe_the_same_group():
    by_name = budget("gauss", **SGD, group=3, delta=1e-6)
    process = Process((Step(Gauss(4), 1000, Poisson(0.01)),), group=3)
    by_mechanism = budget(Gauss(4), sampling=Poisson(0.01), n=1000, group=3, delta=1e-6)
    assert by_name.epsilon == budget(process, delta=1e-6).epsilon == by_mechanism.epsilon
    # dp-accounting 0.6.0, a mixture of Gaussians, on a grid of 1e-4
    assert by_name.epsilon.upper == pytest.approx(1.0373985, abs=2e-5)
    assert by_name.as_dict()["group"] == 3
    with pytest.raises(UsageError, match="groups of 3"):
        budget(process, group=2, delta=1e-6)


def test_a_group_under_fixed_size_sampling_takes_the_size_of_the_data_set():
    row = budget("gauss", sigma=4, sampling="fixed", batch=600, records=60000, n=10, group=2, delta=1e-6)
    assert row.process == Process((Step(Gauss(4), 10, FixedSize(0.01)),), group=2, records=60000)


@pytest.mark.parametrize("given", [{"n": 1000, "rate": 0.01}, {"sigma": 4, "rate": 0.01}, {"sigma": 4, "n": 1000}])
def test_calibrate_meets_its_target_for_a_group(given):
    answer = calibrate("gauss", sampling="poisson", eps=1.2, delta=1e-6, group=3, **given)
    assert answer.guarantee.process.group == 3
    assert answer.guarantee.epsilon.upper <= 1.2
    full = {"sigma": 4, "n": 1000, "rate": 0.01} | given | {answer.parameter: answer.value}
    assert budget("gauss", sampling="poisson", **full, group=3, delta=1e-6).epsilon.upper <= 1.2 * (1 + 1e-9)


def test_calibrate_says_that_the_rate_of_fixed_size_groups_is_not_solved_for():
    with pytest.raises(UsageError, match="size of a batch"):
        calibrate("gauss", sigma=4, n=10, sampling="fixed", records=600, eps=1, delta=1e-5, group=2)


def test_bands_are_read_as_fewer_steps_at_a_higher_rate():
    banded = budget("gauss", **SGD, bands=4, delta=1e-6)
    plain = budget("gauss", sigma=4, sampling="poisson", rate=0.04, n=250, delta=1e-6)
    assert banded.epsilon == plain.epsilon
    assert banded.process.describe() == plain.process.describe()
    assert any("4 bands" in line and "l2 norm at most 1" in line for line in banded.extra["reading"])
    assert budget("gauss", **SGD, bands=1, delta=1e-6).process == budget("gauss", **SGD, delta=1e-6).process
    odd = budget("gauss", sigma=4, sampling="poisson", batch=10, records=60, epochs=3, bands=4, delta=1e-6)
    assert (odd.process.steps[0].n, odd.process.steps[0].sampling.rate) == (5, pytest.approx(2 / 3))


def test_a_sweep_over_groups_and_over_the_largest_batch():
    process = [{"mech": "gauss", **SGD, "records": 60000}]
    groups = compare(process=process, accountants=["pld"], delta=1e-6, sweep={"over": "group", "values": [1, 2, 3]})
    assert [row["group"] for row in groups.rows] == [1, 2, 3]
    assert groups.rows[2]["epsilon"] == pytest.approx(1.0374, abs=2e-3)
    sizes = {"over": "max_batch", "values": [640, 800]}
    cut = compare(process=process, accountants=["pld", "rdp"], delta=1e-6, sweep=sizes)
    assert [row["max_batch"] for row in cut.rows if row["accountant"] == "pld"] == [640, 800]
    assert cut.rows[0]["epsilon_upper"] > cut.rows[1]["epsilon_upper"]


def test_a_process_with_a_group_may_be_compared():
    process = Process((Step(Gauss(4), 1000, Poisson(0.01, 800)),), records=60000)
    assert compare(process=process, accountants=["pld"], delta=1e-6).rows[0]["epsilon"] < 0.32
    group = Process((Step(Gauss(4), 1000, Poisson(0.01)),), group=2)
    with pytest.raises(UsageError, match="groups of 2"):
        compare(process=group, group=3, accountants=["pld"], delta=1e-6)


def test_a_history_is_accounted_for_in_groups(tmp_path, capsys):
    file = tmp_path / "history.json"
    file.write_text(json.dumps([[4, 0.01, 1000]]))
    assert main(["budget", "--history", str(file), "--group", "3", "--delta", "1e-6", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["group"], row["adjacency"]) == (3, "add-remove")
    assert row["epsilon"] == pytest.approx(1.0373985, abs=2e-5)


def test_groups_take_part_in_adaptive_histories_and_attack_readings():
    row = budget("gauss", **SGD, group=2, delta=1e-6, adaptive=True)
    fixed = budget("gauss", **SGD, group=2, delta=1e-6, attack=True)
    assert row.epsilon.upper >= fixed.epsilon.upper
    assert 0 < fixed.extra["attack"]["advantage_upper"] < 1


def test_formulas_without_groups_refuse_them():
    for name in ("gdp-clt",):
        with pytest.raises(Unsupported, match="groups of records"):
            budget("gauss", **SGD, group=2, delta=1e-6, accountant=name)
    with pytest.raises(Unsupported, match="largest batch"):
        budget("gauss", **SGD, max_batch=700, records=60000, delta=1e-6, accountant="gdp-clt")
    with pytest.raises(Unsupported, match="replace-one"):
        budget("gauss", **SGD, adjacency="replace-one", delta=1e-6, accountant="gdp-clt")


def test_moments_of_the_pairs_are_upper_bounds():
    for more in ({"group": 2}, {"max_batch": 700, "records": 60000}, {"adjacency": "replace-one", "sensitivity": 2}):
        job = {**SGD, "delta": 1e-6, **more}
        assert budget("gauss", **job, accountant="rdp").epsilon.upper > budget("gauss", **job).epsilon.upper
