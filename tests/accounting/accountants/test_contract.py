"""The contract of every accountant, on every process that it does not refuse; new accountants are included.

Ordered ends, no nan, delta in [0, 1], eps in [0, inf], falling in the other argument and in the noise, rising in n; a
valid notion and claim; equal steps accounted for like one step repeated; a refusal is Unsupported. Where the exact
Gaussian answer is known, a rigorous bracket contains it.
"""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from pathlib import Path

import pytest

import wpriv
from tests import nightly
from wpriv.accounting.mechanisms.gauss import Gauss, GaussPair
from wpriv.accounting.mechanisms.laplace import Laplace
from wpriv.accounting.mechanisms.randomized_response import RandomizedResponse
from wpriv.accounting.mechanisms.truncated_gauss import TruncatedGauss
from wpriv.core import registry
from wpriv.core.guarantee import CLAIMS, Curve
from wpriv.core.kinds import Sampling
from wpriv.core.pair_distances import of_distances
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported
from wpriv.numerics.bracket import Bracket
from wpriv.papers.mechanisms.projection import Projection

HOMES = [Path(wpriv.__file__).parent.joinpath(*folder.split(".")) for folder in registry.FOLDERS["accountants"]]
FILES = sorted(p for home in HOMES for p in home.rglob("*.py") if not p.name.startswith("_"))
NAMES = [p.stem.replace("_", "-") for p in FILES]
NOTIONS = ("approximate-dp", "probabilistic-dp", "rdp", "gdp", "wdp", "bdp")
SEEN = of_distances([0.3, 0.5, 0.6, 0.9, 1.2], coordinates=10)
POISSON, FIXED = Sampling("poisson", 0.01), Sampling("fixed", 0.1)
EPS = (0.0, 0.1, 1.0, 5.0, 300.0)
DELTAS = (0.4, 1e-3, 1e-8, 1e-30)


def processes(n: int, noise: float) -> dict[str, Process]:
    """The table of processes, with n-fold steps and noise scaled by a factor."""
    return {
        "gauss": Process((Step(Gauss(20.0 * noise), n),)),
        "laplace": Process((Step(Laplace(30.0 * noise), n),)),
        "randomized-response": Process((Step(RandomizedResponse(0.05 / noise, 1e-7 / noise), n),)),
        "subsampled gauss": Process((Step(Gauss(1.5 * noise), n, POISSON),)),
        "projection": Process((Step(Projection(d=50, k=20, sigma=4.0 * noise), n),)),
        "fixed-size projection": Process((Step(Projection(d=50, k=20, sigma=1.0 * noise), n, FIXED),)),
        "observed gauss": Process((Step(Gauss(1.5 * noise), n, POISSON, SEEN),)),
        "fixed-size gauss": Process((Step(Gauss(3.0 * noise), n, FIXED),)),
        "heterogeneous": Process((Step(Gauss(2.0 * noise), n, POISSON), Step(Laplace(50.0 * noise), 3))),
    }


# accountants of (eps, delta)-DP use the sensitivity, whatever was observed
OBSERVED = [
    name for name in NAMES if registry.load("accountants", name).NOTION not in ("approximate-dp", "probabilistic-dp")
]
# a projection is a mixture of many Gauss pairs: slow, and redundant for accountants that treat it like any other pair
PROJECTED = {"projection": ("pld", "rdp", "swd-tail", "pdp", "nagaev"), "fixed-size projection": ("pld", "swd-tail")}
ASKED = {"observed gauss": OBSERVED, **PROJECTED}
CASES = [(name, kind) for name in NAMES for kind in processes(1, 1.0) if name in ASKED.get(kind, NAMES)]


# takes as long as all others together
AT_NIGHT = pytest.param("pdp", "heterogeneous", marks=pytest.mark.nightly)
QUESTIONED = [AT_NIGHT if case == ("pdp", "heterogeneous") else case for case in CASES]
# each accountant is compared on every seventh process by default, and asked on every fifth
COMPARED = nightly.sharded(QUESTIONED, 7)
ASKED_ON = nightly.sharded(QUESTIONED, 5)
SPLIT = ("gauss", "laplace", "subsampled gauss", "observed gauss")


def curve_or_skip(name: str, process: Process) -> Curve:
    try:
        return registry.load("accountants", name).account(process)
    except Unsupported as refusal:
        message = str(refusal)
    assert len(message) > 30  # what was wanted, found, and what to change
    pytest.skip(f"{name} refuses: {message}")


def check(bracket: Bracket, largest: float) -> None:
    ends = [bracket.estimate] if bracket.upper is None else [bracket.lower, bracket.estimate, bracket.upper]
    assert (bracket.lower is None) == (bracket.upper is None)
    assert all(end is not None and 0 <= end <= largest for end in ends)  # nan fails too
    assert ends == sorted(ends)


def test_every_accountant_is_covered() -> None:
    assert len(NAMES) >= 17
    assert set(registry.names("accountants")) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_accountant_declares_notion_claim_and_source(name: str) -> None:
    module = registry.load("accountants", name)
    assert module.NOTION in NOTIONS
    assert module.CLAIM in CLAIMS
    assert len(module.SOURCE) > 10
    assert 2 <= len(module.EXPLAIN.strip().splitlines()) <= 5
    assert len(module.__doc__) > 80


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_accountant_covers_some_process_and_refuses_others_as_unsupported(name: str) -> None:
    covered = 0
    for kind, process in processes(10, 1.0).items():
        if name not in ASKED.get(kind, NAMES):
            continue
        try:
            registry.load("accountants", name).account(process).delta_bracket(1.0)
            covered += 1
        except Unsupported:
            pass
    assert covered >= 1


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), ASKED_ON)
def test_ends_are_ordered_and_fall_in_the_question(name: str, kind: str) -> None:
    curve = curve_or_skip(name, processes(100, 1.0)[kind])
    assert curve.accountant == name
    assert curve.notion in NOTIONS
    assert curve.claim in CLAIMS
    assert curve.warnings or curve.claim != "approximate"
    deltas, epsilons = [curve.delta_bracket(eps) for eps in EPS], [curve.epsilon_bracket(delta) for delta in DELTAS]
    for bracket in deltas:
        check(bracket, 1.0)
    for bracket in epsilons:
        check(bracket, math.inf)
    for a, b in pairwise(deltas):
        assert b.safe <= a.safe * (1 + 1e-9)
    for a, b in pairwise(epsilons):
        assert a.safe <= b.safe * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), COMPARED)
def test_more_releases_cost_more_and_more_noise_costs_less(name: str, kind: str) -> None:
    few, many, noisy = (
        curve_or_skip(name, processes(n, noise)[kind]) for n, noise in ((50, 1.0), (200, 1.0), (50, 1.5))
    )
    # a published WDP eps grows with the noise, as its own tests show
    for less, more in ((few, many), (noisy, few)) if few.notion != "wdp" else ((few, many),):
        for eps in (0.1, 1.0):
            a, b = less.delta_bracket(eps), more.delta_bracket(eps)
            assert a.estimate <= b.estimate * 1.001 + 1e-300
            # the safe ends too, but for the width of a bracket
            assert (a.safe if a.lower is None else a.lower) <= b.safe * (1 + 1e-9)
        for delta in (1e-3, 1e-8):
            assert less.epsilon(delta=delta) <= more.epsilon(delta=delta) * 1.001 + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), nightly.sharded([case for case in CASES if case[1] in SPLIT], 3))
def test_equal_steps_count_like_one_step_repeated(name: str, kind: str) -> None:
    (step,) = processes(90, 1.0)[kind].steps
    parts = Process((dataclasses.replace(step, n=40), dataclasses.replace(step, n=50)))
    single, split = curve_or_skip(name, Process((step,))), curve_or_skip(name, parts)
    for delta in (1e-2, 1e-9):
        a, b = single.epsilon_bracket(delta), split.epsilon_bracket(delta)
        assert a.safe == pytest.approx(b.safe, rel=2e-3)
        assert a.estimate == pytest.approx(b.estimate, rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("sigma", "n"), [(0.5, 1), (20.0, 100), (1000.0, 2**40)])
def test_a_rigorous_bracket_contains_the_exact_gauss(name: str, sigma: float, n: int) -> None:
    """Oracle: Theorem 5 of Sommer et al. (2019), one Gaussian of mu = sqrt(n)/sigma."""
    curve = curve_or_skip(name, Process((Step(Gauss(sigma), n),)))
    if curve.notion != "approximate-dp" or curve.claim in ("approximate", "as-published"):
        pytest.skip(f"{name} certifies no (eps, delta)")
    exact = GaussPair(math.sqrt(n) / sigma)
    for z in (0.0, 2.0, 6.0):
        eps = max(0.0, exact.mu**2 / 2 + z * exact.mu)
        bracket = curve.delta_bracket(eps)
        truth = math.exp(float(exact.log_delta(eps)))
        assert bracket.lower is not None
        assert bracket.upper is not None
        assert bracket.lower * (1 - 1e-9) <= truth <= bracket.upper * (1 + 1e-9)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", NAMES)
def test_a_step_with_disjoint_supports_has_delta_one_or_is_refused(name: str) -> None:
    """Truth by definition: the neighbours share no outcome, so delta is 1 at every eps."""
    curve = curve_or_skip(name, Process((Step(TruncatedGauss(1.0, 0.4), 3),)))
    assert curve.delta(eps=1.0) == pytest.approx(1.0, rel=1e-12)
    assert curve.epsilon(delta=1e-5) == math.inf
