"""The wgrad mechanism: Gauss at the sensitivity of a clipped Wasserstein gradient, within groups."""

from __future__ import annotations

import math

import pytest

import wpriv
from tests.points import GOLDEN
from wpriv.accounting import evaluate
from wpriv.accounting.basis import explain
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.cli.main import main
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError
from wpriv.papers.mechanisms.wgrad import Wgrad

PARITY = {"bound": 1, "lipschitz_x": 1, "size_x": 2900, "size_z": 3100, "alpha": 0.75, "clip": 5}
RUN = {"sampling": "fixed", "rate": 0.2, "n": 500}
DELTA = 0.1 / 30000


@pytest.mark.parametrize(("ident", "formula"), [("003-eq7-0", "paper"), ("003-eq7-t", "tight")])
def test_the_sensitivity_is_the_golden_one_of_statistical_parity(ident, formula):
    assert Wgrad(1.0, **PARITY, formula=formula).sensitivity == pytest.approx(float(GOLDEN[ident]["value"]), rel=1e-12)


def test_the_sensitivity_is_the_golden_one_of_equality_of_odds():
    given = GOLDEN["003-eq8-0"]["inputs"]
    size = int(given["nmin"])
    odds = Wgrad(1.0, 1, 1, size, size, alpha=0.75, clip=5, labels=2, size=int(given["n"]), formula="paper")
    assert odds.sensitivity == pytest.approx(float(GOLDEN["003-eq8-0"]["value"]), rel=1e-12)


def test_wgrad_has_the_budget_of_a_gauss_mechanism_of_its_sensitivity():
    own = Process((Step(Wgrad(0.05, **PARITY), 500, Sampling("fixed", 0.2)),))
    plain = Process((Step(Gauss(0.05, Wgrad(0.05, **PARITY).sensitivity), 500, Sampling("fixed", 0.2)),))
    assert own.adjacency == "replace-within-group"
    for accountant in ("pld", "gdp-clt", "rdp"):
        ours, theirs = (evaluate.curve(p, accountant, of_pair=True).at(delta=DELTA).epsilon for p in (own, plain))
        assert ours == theirs


def test_the_golden_delta_of_the_composed_curve_lies_in_the_bracket():
    """C_p(G_{1/s})^{T} by a contour integral at 15 digits."""
    point = GOLDEN["003-cp-0"]
    noise = float(point["inputs"]["sigma"]) * Wgrad(1.0, **PARITY).sensitivity
    found = wpriv.budget("wgrad", sigma=noise, **PARITY, **RUN, eps=1, tol=1e-5).delta
    assert found.lower <= float(point["value"]) <= found.upper


@pytest.mark.parametrize(
    ("formula", "ident"), [("uniform", "003-gdp-0"), ("sampling", "003-gdp-0"), ("poisson", "003-gdp-1")]
)
def test_the_golden_limits_are_those_of_gdp_clt(formula, ident):
    """At eps = 0 delta of mu-GDP is 2 Phi(mu/2) - 1 = erf(mu / sqrt 8)."""
    noise = float(GOLDEN[ident]["inputs"]["sigma"])
    found = wpriv.budget("gauss", sigma=noise, **RUN, eps=0, accountant=f"gdp-clt:formula={formula}")
    assert found.claim == "approximate"
    assert found.delta.estimate == pytest.approx(math.erf(float(GOLDEN[ident]["value"]) / math.sqrt(8)), rel=1e-12)
    assert any("whatever" in w or "sampled otherwise" in w for w in found.warnings) == (formula == "poisson")


def test_the_golden_eps_of_the_limit():
    point = GOLDEN["003-gdpeps-0"]
    found = wpriv.budget("gauss", sigma=5, **RUN, delta=float(point["inputs"]["delta"]), accountant="gdp-clt")
    assert found.epsilon.estimate == pytest.approx(float(point["value"]), rel=1e-10)


@pytest.mark.slow
def test_the_tight_sensitivity_needs_half_the_noise_of_the_published_one():
    noise = {}
    for formula in ("tight", "paper"):
        given = {"bound": 1, "lipschitz_x": 1, "size_x": 3000, "size_z": 3000, "formula": formula}
        noise[formula] = wpriv.calibrate("wgrad", **given, **RUN, eps=1, delta=DELTA).value
    assert noise["paper"] / noise["tight"] == pytest.approx(2, rel=1e-3)


@pytest.mark.parametrize("accountant", ["pld", "gdp-clt", "rdp", "clt"])
def test_every_guarantee_warns_of_what_is_not_protected(accountant):
    row = wpriv.budget("wgrad", sigma=0.05, **PARITY, **RUN, delta=DELTA, accountant=accountant)
    assert "NOT protected" in row.warnings[0]
    assert "replace-within-group" in row.as_dict()["adjacency"]
    rows = wpriv.compare(
        process=[{"mech": "wgrad", "sigma": 0.05, **PARITY, **RUN}], accountants=[accountant], delta=DELTA
    ).rows
    assert "NOT protected" in rows[0]["warnings"][0]


def test_the_reading_shows_the_noise_multiplier():
    read = wpriv.calibrate("wgrad", **PARITY, **RUN, eps=1, delta=DELTA).guarantee.extra["reading"]
    assert any("sensitivity = 0.00248563 (tight), noise multiplier = 18.0" in line for line in read)


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [
        ({"size_z": None}, "size_z"),
        ({"clip": 0}, "clip"),
        ({"alpha": 1.5}, "alpha"),
        ({"labels": 2}, "size=..."),
        ({"private": "z"}, "both, x"),
        ({"formula": "best"}, "tight, paper"),
        ({"alpha": 1, "lipschitz_x": 0, "lipschitz_z": 0}, "lipschitz_x"),
        ({"size_x": 2.5}, "size_x"),
    ],
)
def test_wgrad_names_a_bad_parameter(parameters, shown):
    with pytest.raises(UsageError, match=shown):
        Wgrad(1.0, **{**PARITY, **parameters})


@pytest.mark.parametrize(("kind", "adjacency"), [("poisson", ""), ("fixed", "replace-one"), ("none", "add-remove")])
def test_wgrad_refuses_other_sampling_and_adjacency(kind, adjacency):
    with pytest.raises(Unsupported):
        Process((Step(Wgrad(1.0, **PARITY), 1, Sampling(kind, 1.0 if kind == "none" else 0.1)),), adjacency)


def test_several_accountants_warn_once(capsys):
    flags = [f"--param={name}={value}" for name, value in PARITY.items()]
    job = [
        "budget",
        "--mech",
        "wgrad",
        "--sigma",
        "0.05",
        *flags,
        "--sampling",
        "fixed",
        "--rate",
        "0.2",
        "--delta",
        "1e-6",
    ]
    assert main([*job, "--accountant", "rdp", "--accountant", "gdp-clt"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.count("NOT protected") for line in lines] == [1, 0]
    assert lines[1].startswith("wpriv: warning: gdp-clt is a limit")


@pytest.mark.parametrize(("formula", "words"), [("tight", "constant corrected"), ("paper", "constant as published")])
def test_the_source_names_the_constant_that_was_used(formula, words):
    row = wpriv.budget("wgrad", sigma=1, **PARITY, formula=formula, delta=DELTA)
    (source,) = (line for line in explain(row)["sources"] if line.startswith("wgrad: "))
    assert source.endswith(f"({words})")


def test_a_figure_of_the_published_sensitivity_is_an_upper_bound_and_not_exact():
    given = {"bound": 1, "lipschitz_x": 1, "size_x": 3000, "size_z": 3000, "sigma": 0.01}
    paper, tight = (wpriv.budget("wgrad", **given, formula=name, delta=1e-5) for name in ("paper", "tight"))
    assert (tight.claim, tight.epsilon.lower) == ("exact", pytest.approx(tight.epsilon.safe))
    assert (paper.claim, paper.epsilon.lower) == ("upper-bound", 0.0)
    # Gaussian noise on twice the sensitivity
    assert paper.epsilon.safe == wpriv.budget("gauss", sigma=0.01, sensitivity=16 / 3000, delta=1e-5).epsilon.safe
    assert tight.epsilon.safe == wpriv.budget("gauss", sigma=0.01, sensitivity=8 / 3000, delta=1e-5).epsilon.safe
    assert any("as published" in line for line in paper.warnings)
    assert not any("as published" in line for line in tight.warnings)


@pytest.mark.parametrize(
    "run", [{"n": 100}, {"n": 100, "sampling": "fixed", "rate": 0.1}, {"n": 2, "accountant": "rdp"}]
)
def test_no_lower_end_is_claimed_for_the_published_sensitivity_however_often_it_is_released(run):
    given = {"bound": 1, "lipschitz_x": 1, "size_x": 3000, "size_z": 3000, "sigma": 0.05}
    row = wpriv.budget("wgrad", **given, formula="paper", delta=1e-5, **run)
    assert (row.claim, row.epsilon.lower) == ("upper-bound", 0.0)
    assert not any("wider than" in line for line in row.warnings)
    assert row.epsilon.safe >= wpriv.budget("wgrad", **given, delta=1e-5, **run).epsilon.safe
