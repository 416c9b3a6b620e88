"""Error at equal eps: against noise that the verbs calibrate, and errors of literal matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wpriv import budget, calibrate
from wpriv.accounting.comparison.compare import compare
from wpriv.accounting.tables.correlated_noise import Params, rows
from wpriv.cli.main import main
from wpriv.errors import Unsupported, UsageError
from wpriv.strategies import strategy

JOB = {"bins": 10, "epochs": 3, "eps": 2.0, "delta": 1e-6}


def by_case(**given):
    return {row["case"]: row for row in rows(Params(**{**JOB, **given}))}


def error_of(matrix, sigma):
    noise = np.tril(np.ones(matrix.shape)) @ np.linalg.inv(matrix)
    return sigma * math.sqrt((noise**2).sum(axis=1).mean())


def test_without_amplification_the_noise_is_that_of_the_gaussian_at_the_sensitivity():
    row = by_case(strategies="blt:2", sampling="none")["blt:2, no amplification"]
    ours = strategy("blt:2", 30, 10, 3)
    sigma = ours.sensitivity(10, 3) * calibrate("gauss", eps=2, delta=1e-6).value
    assert sigma <= row["sigma"] <= sigma * (1 + 1e-5)
    assert row["mean_error"] == pytest.approx(error_of(ours.matrix(), row["sigma"]), rel=1e-9)
    assert row["eps_upper"] == row["eps_lower"] == pytest.approx(2, rel=3e-5)


@pytest.mark.parametrize("eps", [0.7, 2.0, 4.0])
def test_the_noise_that_is_printed_keeps_the_target(eps):
    # a number that was rounded to the nearest of its digits would exceed it by some 1e-6
    for row in rows(Params("lambda:0.5 banded:2", "none poisson", bins=5, epochs=2, eps=eps)):
        assert float(f"{row['sigma']:.6g}") == row["sigma"]
        assert row["eps_upper"] <= eps
        if row["sampling"] == "none":
            sigma = row["sigma"] / row["sensitivity"]
            assert budget("gauss", sigma=sigma, delta=1e-5).epsilon.safe <= eps * (1 + 1e-12)


def test_cyclic_poisson_sampling_has_the_noise_that_calibrate_finds_for_its_bands():
    table = by_case(strategies="banded:3", sampling="poisson")
    for case, bands in (("identity, cyclic Poisson", 1), ("banded:3, cyclic Poisson", 3)):
        job = {"sampling": "poisson", "rate": 0.1, "n": 30, "bands": bands, "eps": 2, "delta": 1e-6}
        assert table[case]["sigma"] == pytest.approx(calibrate("gauss", **job).value, rel=2e-3)
        assert 2 * (1 - 1e-2) <= table[case]["eps_upper"] <= 2
    ratio = table["banded:3, cyclic Poisson"]["mean_error"] / table["identity, cyclic Poisson"]["mean_error"]
    assert table["banded:3, cyclic Poisson"]["to_dp_sgd"] == pytest.approx(ratio)


def test_balls_in_bins_have_the_bracket_of_budget():
    row = by_case(strategies="lambda:0.5", sampling="balls-in-bins", sigma=3.0)["lambda:0.5, balls in bins"]
    job = {"sampling": "balls-in-bins", "bins": 10, "epochs": 3, "delta": 1e-6}
    eps = budget("matrix-gauss", sigma=3, strategy="lambda:0.5", **job, tol=1e-3).epsilon
    assert (row["eps_lower"], row["eps_upper"]) == (eps.lower, eps.safe)
    assert row["sigma"] == 3


def test_a_file_has_the_row_of_the_name_whose_matrix_it_holds(tmp_path):
    path = str(tmp_path / "C.npy")
    np.save(path, strategy("bisr:4", 30).matrix())
    for sampling, sigma in (("none", 0.0), ("balls-in-bins", 8.0)):
        file, name = rows(Params(f"{path} bisr:4", sampling, **JOB, sigma=sigma))[1:]
        figures = [key for key, value in name.items() if isinstance(value, float)]
        assert [file[key] for key in figures] == pytest.approx([name[key] for key in figures], rel=1e-9)
    np.save(path, np.eye(29))
    with pytest.raises(UsageError, match=r"bins x epochs = 30 rows was wanted; found 29"):
        rows(Params(path, "none", **JOB))


def test_strategies_without_a_proof_are_left_out_and_none_is_refused():
    table = by_case(strategies="banded:3 blt:2", sampling="poisson none")
    assert "blt:2, cyclic Poisson" not in table
    assert "blt:2, no amplification" in table
    with pytest.raises(Unsupported, match="cyclic Poisson sampling needs"):
        by_case(strategies="blt:2", sampling="poisson")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"strategies": "bandd:4"}, "did you mean 'banded'"),
        ({"sampling": "poison"}, "did you mean 'poisson'"),
        ({"delta": 1.5}, "a delta below 1"),
        ({"strategies": " "}, "wanted a strategy"),
        ({"bins": 0}, "bins must be at least 1"),
    ],
)
def test_faulty_parameters_are_refused(given, words):
    with pytest.raises(UsageError, match=words):
        Params(**{**JOB, **given})


def test_the_command_line_prints_the_table_and_draws_a_sweep(tmp_path, capsys):
    flags = ["--bins", "8", "--eps", "2", "--delta", "1e-5", "--sampling", "poisson"]
    out = ["--out", str(tmp_path / "out")]
    assert main(["compare", "--strategies", "banded:2", *flags, "--sweep", "epochs=1,2", *out]) == 0
    printed = capsys.readouterr().out
    assert printed.count("banded:2, cyclic Poisson") == 2
    assert (tmp_path / "out" / "figure.png").exists()
    assert main(["compare", "--strategies", "banded:2", *flags, "--mech", "gauss"]) == 2
    assert "leave out --mech" in capsys.readouterr().err


def test_a_recipe_has_the_rows_of_the_table():
    params = {"strategies": "identity", "sampling": "none", "bins": 5, "epochs": 2}
    found = compare(table="correlated-noise", params=params, sweep={"over": "eps", "values": [1, 4]}).rows
    assert [row["eps"] for row in found] == [1, 1, 4, 4]
    assert found[0]["sigma"] > found[2]["sigma"]
