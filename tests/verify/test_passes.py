"""Random allocation in the verifier: both pairs of a pass enclose oracles that share nothing with it.

Oracles: a sum over a grid of both outputs of a pass of two steps, and exact fractions of binomial sums for two-valued
ratios.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx

from wpriv import DiscreteGauss, Gauss, Laplace, Process, Step, budget
from wpriv.accounting import certificates
from wpriv.core.kinds import Allocation
from wpriv.errors import UsageError
from wpriv.verify import allocation, certificate, pairs, prove

CONTENT = {
    **{"schema": "wpriv.certificate/1", "notion": "approximate-dp", "asked": "delta", "adjacency": "add-remove"},
    **{"epsilon_lower": 1, "epsilon_upper": 1, "delta_lower": 0.1, "delta_upper": 0.2},
}


@pytest.fixture(autouse=True)
def precise():
    ctx.prec = pairs.BITS


def pair_of(mech: str, steps: int, upper: bool, small: float = 1e-16, **parameters: str) -> pairs.Pair:
    base = pairs.base_pair(mech, {name: Fraction(value) for name, value in parameters.items()})
    return allocation.allocation(base, steps, upper, small)


def profile(pair: pairs.Pair, eps: str) -> tuple[arb, arb]:
    """The profile of the order "remove", and that of the order "add"."""
    return tuple(prove.closed_form([(turned, 1)], arb(eps)) for turned in (pair, pair.reversed()))


def two_step_profile(eps: float) -> tuple[float, float]:
    """Two steps of Gaussian noise of sigma 1, by a sum over a grid of both outputs."""
    z = np.arange(-9, 9, 0.004) + 0.002
    ratio, weight = np.exp(z - 0.5), np.exp(-z * z / 2) / np.sqrt(2 * np.pi) * 0.004
    mean = (ratio[:, None] + ratio) / 2
    functions = np.maximum(mean - np.exp(eps), 0), np.maximum(1 - np.exp(eps) * mean, 0)
    return tuple(float(weight @ values @ weight) for values in functions)


@pytest.mark.slow
@pytest.mark.parametrize("eps", ["0.1", "0.5", "1"])
def test_a_pass_of_two_steps_is_enclosed_around_a_sum_over_a_grid(eps, monkeypatch):
    monkeypatch.setattr(allocation, "WORK", 3 * 10**5)
    truth = two_step_profile(float(eps))
    lower, upper = (profile(pair_of("gauss", 2, side, sigma="1", sensitivity="1"), eps) for side in (False, True))
    for low, exact, high in zip(lower, truth, upper, strict=True):
        assert float(low) <= exact * (1 + 1e-5)  # the error of the grid is below 1e-5
        assert float(high) >= exact * (1 - 1e-5)
        assert float(high) - float(low) < 1e-4 * exact


def binomial_profile(steps: int, eps0: str, eps: str) -> tuple[arb, arb]:
    """The exact profile of randomized response: the ratio is (k e^eps0 + (t - k) e^-eps0) / t with a binomial k."""
    top, x = arb(eps0).exp(), arb(eps).exp()
    chance = 1 / (1 + top)  # of the ratio e^eps0, without the record
    sums = [arb(0), arb(0)]
    for k in range(steps + 1):
        mass = math.comb(steps, k) * chance**k * (1 - chance) ** (steps - k)
        ratio = (k * top + (steps - k) / top) / steps
        sums = [sums[0] + mass * (ratio - x).max(arb(0)), sums[1] + mass * (1 - x * ratio).max(arb(0))]
    return sums[0], sums[1]


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "eps0", "eps"), [(2, "1", "0.3"), (13, "1.5", "0.5"), (100, "0.7", "0.1")])
def test_a_pass_of_randomized_response_encloses_its_binomial_sum(steps, eps0, eps, monkeypatch):
    monkeypatch.setattr(allocation, "WORK", 10**6)
    truth = binomial_profile(steps, eps0, eps)
    pair = [pair_of("randomized-response", steps, side, eps0=eps0, delta0="0") for side in (False, True)]
    lower, upper = (profile(end, eps) for end in pair)
    for low, exact, high in zip(lower, truth, upper, strict=True):
        assert low.lower() <= exact <= high.upper()
        assert float(high - low) < 0.05 * float(exact)


@pytest.mark.parametrize("delta0", ["0", "0.001"])
@pytest.mark.parametrize("steps", [2, 7, 50])
def test_the_masses_of_both_pairs_are_those_of_distributions(steps, delta0, monkeypatch):
    """From above they add up to 1 in both orders; from below to at most 1, and to nearly all of it."""
    monkeypatch.setattr(allocation, "WORK", 10**4)
    for mech, numbers in [("randomized-response", {"eps0": "1", "delta0": delta0}),
                          ("laplace", {"scale": "1", "sensitivity": "1"})]:  # fmt: skip
        for upper in (True, False):
            pair = pair_of(mech, steps, upper, **numbers)
            p = sum((row[1] for row in pair.atoms), pair.infinite)
            q = sum((row[2] for row in pair.atoms), pair.missing)
            for total in (p, q):
                assert abs(float(total) - 1) < 1e-12
                assert upper or total.lower() <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "steps", "n", "delta"),
    [(Gauss(1.0), 20, 20, 1e-30), (Laplace(2.0), 50, 100, 1e-6), (DiscreteGauss(2.0), 20, 100, 1e-7)],
    ids=["gauss at 1e-30", "laplace", "discrete-gauss"],
)
def test_brackets_of_random_allocation_are_proved(mechanism, steps, n, delta, monkeypatch):
    monkeypatch.setattr(allocation, "WORK", 10**6)
    row = budget(Process((Step(mechanism, n, Allocation(1 / steps)),)), delta=delta)
    claim = certificate.read(json.dumps(certificates.of_guarantee(row, 1e-3)))
    assert [proof.verdict for proof in prove.verify(claim, thorough=False)] == ["proved", "proved"]


def test_steps_that_are_not_whole_passes_are_refused_since_the_lower_end_of_a_whole_pass_is_not_theirs():
    step = {"mech": "gauss", "sigma": 1, "sensitivity": 1, "n": 95, "sampling": "allocation", "rate": 0.05}
    with pytest.raises(UsageError, match="n to be a multiple of 20"):
        certificate.read(json.dumps({**CONTENT, "process": [step]}))
    assert certificate.read(json.dumps({**CONTENT, "process": [{**step, "n": 100}]})).steps[0].n == 5


def test_a_rate_that_is_not_one_over_a_whole_number_is_refused():
    step = {"mech": "gauss", "sigma": 1, "sensitivity": 1, "n": 9, "sampling": "allocation", "rate": 0.3}
    with pytest.raises(UsageError, match="rate to be 1/t"):
        certificate.read(json.dumps({**CONTENT, "process": [step]}))


def test_no_mass_of_a_dominating_pair_is_lost_where_its_mean_rounds_to_zero():
    # oracle: the masses given, which add up to one; a lost one would lower the profile of the other order
    base = pairs.base_pair("gauss", {"sigma": Fraction(1), "sensitivity": Fraction(1)})
    points = allocation.Points(arb(0), arb(1) / 4, 130, 0, True)
    total = allocation.Ratio(-8, [3, 0, 1 << 129], [0, 0, 1 << 128], (1 << 129) - 3)
    pair = allocation.pair_of(total, points, 2, 1, base)
    assert len(pair.atoms) == 2
    assert sum((q for _, _, q in pair.atoms), pair.missing) == 1
