"""Matrix factorization as one Gaussian release; the oracle is Gaussian noise at a sensitivity that was counted."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from wpriv import Gauss, MatrixGauss, Process, Step, budget, calibrate
from wpriv.cli.main import main
from wpriv.errors import MissingResource, Unsupported, UsageError

# prefix sums over 1000 steps, five participations 100 apart: 100 rows with each of 1 to 4, and 600 with 5
PREFIX = math.sqrt(100 * (1 + 4 + 9 + 16) + 600 * 25)
FIVE = {"strategy": "prefix:n=1000", "separation": 100, "participations": 5}


def saved(folder: Path, matrix: object) -> str:
    np.save(folder / "C.npy", matrix)
    return str(folder / "C.npy")


def overlapping(size: int = 30) -> np.ndarray:
    return np.tril(np.random.default_rng(3).normal(size=(size, size)))


def test_it_costs_what_gaussian_noise_of_its_sensitivity_costs():
    row = budget("matrix-gauss", sigma=40, **FIVE, delta=1e-5)
    plain = budget("gauss", sigma=40, sensitivity=PREFIX, delta=1e-5)
    assert row.claim == "exact"
    assert row.epsilon.safe == pytest.approx(plain.epsilon.safe, rel=1e-11)
    twice = budget("matrix-gauss", sigma=40, sensitivity=2, **FIVE, n=3, delta=1e-5)
    assert twice.epsilon.safe == pytest.approx(
        budget("gauss", sigma=40, sensitivity=2 * PREFIX, n=3, delta=1e-5).epsilon.safe, rel=1e-11
    )


def test_a_file_and_a_name_are_the_same_matrix(tmp_path):
    file = saved(tmp_path, np.tril(np.ones((50, 50))))
    assert MatrixGauss(2, file, 9).pair() == MatrixGauss(2, "prefix:n=50", 9).pair()
    changed = saved(tmp_path, np.eye(50))
    assert MatrixGauss(2, changed, 9).pair() == MatrixGauss(2, "identity:n=50", 9).pair()


def test_a_sensitivity_between_two_ends_brackets_eps_by_those_of_both(tmp_path):
    mechanism = MatrixGauss(40, saved(tmp_path, overlapping()), 5)
    lower, upper = mechanism.sensitivity_bounds()
    assert lower < upper * (1 - 1e-3)
    row = budget(mechanism, n=2, delta=1e-5)
    assert row.claim == "certified"
    for end, sensitivity in ((row.epsilon.lower, lower), (row.epsilon.upper, upper)):
        plain = budget(Gauss(40, sensitivity), n=2, delta=1e-5)
        assert end == pytest.approx(plain.epsilon.safe, rel=1e-9)
    (figures,) = row.as_dict()["computed"]
    expected = {"strategy_steps": 30, "strategy_sensitivity_lower": lower, "strategy_sensitivity_upper": upper}
    expected |= {"strategy_bands": 30, "strategy_column": pytest.approx(5.799075954455684)}
    assert figures == {"step": 0, **expected}
    assert budget(mechanism, accountant="renyi").claim == "upper-bound"
    rdp, plain = (budget(m, delta=1e-5, accountant="rdp") for m in (mechanism, Gauss(40, upper)))
    assert rdp.epsilon.safe == pytest.approx(plain.epsilon.safe, rel=1e-12)


def test_calibrate_gives_the_noise_of_the_sensitivity():
    answer = calibrate("matrix-gauss", **FIVE, eps=1, delta=1e-5)
    assert answer.value == pytest.approx(PREFIX * calibrate("gauss", eps=1, delta=1e-5).value, rel=1e-6)
    assert answer.guarantee.epsilon.safe <= 1


def test_it_composes_with_other_steps_and_with_groups():
    mechanism = MatrixGauss(40, **FIVE)
    both = Process((Step(mechanism), Step(Gauss(3))))
    plain = Process((Step(Gauss(40, PREFIX)), Step(Gauss(3))))
    assert budget(both, delta=1e-6).epsilon.safe == pytest.approx(budget(plain, delta=1e-6).epsilon.safe, rel=1e-9)
    group = budget(mechanism, group=3, delta=1e-6)
    assert group.epsilon.safe == pytest.approx(budget(Gauss(40, PREFIX), group=3, delta=1e-6).epsilon.safe, rel=1e-9)


@pytest.mark.parametrize("given", [{"sampling": "poisson", "rate": 0.1}, {"sampling": "fixed", "rate": 0.1}])
def test_it_is_never_subsampled(given):
    with pytest.raises(Unsupported, match="bands"):
        budget("matrix-gauss", sigma=4, strategy="prefix:n=10", **given, delta=1e-5)


@pytest.mark.parametrize(
    ("matrix", "match"),
    [
        (np.triu(np.ones((4, 4))), "row 0, column 1"),
        (np.ones((3, 4)), "square"),
        (np.ones(4), "square"),
        (np.zeros((4, 4)), "1e-100"),
        (np.diag([1.0, np.nan]), "finite"),
        (np.diag([1.0, np.inf]), "finite"),
        (np.eye(2) * 1j, "complex128"),
        (np.array([["a"]]), "real numbers"),
    ],
)
def test_other_matrices_are_refused_with_the_place_of_the_fault(tmp_path, matrix, match):
    with pytest.raises(UsageError, match=match):
        MatrixGauss(1.0, saved(tmp_path, matrix)).pair()


def test_missing_and_damaged_files_are_named(tmp_path):
    with pytest.raises(MissingResource, match=r"nothing\.npy"):
        MatrixGauss(1.0, str(tmp_path / "nothing.npy")).pair()
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(UsageError, match=r"text\.npy"):
        MatrixGauss(1.0, str(tmp_path / "text.npy")).pair()


@pytest.mark.parametrize(
    ("param", "named"),
    [
        ("strategy=root:n=0", "n from 1"),
        ("strategy=root:n=5,bands=6", "bands from 1"),
        ("strategy=root:n=2.5", "whole number"),
        ("strategy=rot:n=5", "no strategy called 'rot'"),
        ("strategy=root:n=5,width=2", "no option 'width'"),
        ("separation=0", "separation"),
        ("participations=-1", "participations"),
    ],
)
def test_errors_of_the_command_line_name_the_value(capsys, param, named):
    more = [] if param.startswith("strategy") else ["--param", "strategy=identity:n=4"]
    assert main(["budget", "--mech", "matrix-gauss", "--sigma", "1", "--param", param, *more, "--delta", "1e-5"]) == 2
    answer = capsys.readouterr()
    assert not answer.out
    assert named in answer.err


def test_the_command_line_prints_the_sensitivity_and_its_bracket(tmp_path, capsys):
    flags = ["--mech", "matrix-gauss", "--sigma", "40", "--param", f"strategy={saved(tmp_path, overlapping())}"]
    assert main(["budget", *flags, "--param", "separation=5", "--delta", "1e-5", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    lower, upper = (row["computed"][0][f"strategy_sensitivity_{end}"] for end in ("lower", "upper"))
    assert row["epsilon_lower"] < row["epsilon_upper"]
    assert main(["budget", *flags, "--param", "separation=5", "--delta", "1e-5"]) == 0
    assert f"between {lower:.4f}"[:-1] in capsys.readouterr().out
    assert lower < upper


def test_all_products_of_a_large_matrix_are_refused_with_what_to_ask(tmp_path):
    with pytest.raises(UsageError, match=r"separation=\.\.\.` of at least the 5000 bands"):
        MatrixGauss(1.0, "prefix:n=5000", separation=10).pair()
