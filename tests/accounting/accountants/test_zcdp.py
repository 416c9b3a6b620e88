"""zCDP takes the least rho of Laplace noise and its kin: the largest D_alpha / alpha over all orders.

Oracle: mpmath, Renyi divergences in closed form at orders from 1 + 1e-12 to 1000; for bounded range the largest over
all two-point releases of that range.
"""

from __future__ import annotations

import math

import mpmath as mp
import pytest

import wpriv
from wpriv.accounting.mechanisms.discrete_laplace import DiscreteLaplace
from wpriv.accounting.mechanisms.exponential import BoundedRangePair
from wpriv.accounting.mechanisms.laplace import LaplacePair
from wpriv.accounting.mechanisms.randomized_response import ResponsePair

ORDERS = [1 + mp.mpf(10) ** -k for k in (12, 6, 3, 2, 1)] + [mp.mpf(x) for x in (1.2, 1.5, 2, 3, 5, 10, 100, 1000)]
EPS = [1e-3, 0.05, 0.5, 1.0, 2.5, 6.0, 20.0]


def ratio(p: list[mp.mpf], q: list[mp.mpf], order: mp.mpf) -> mp.mpf:
    """D_order / order of two discrete distributions."""
    return mp.log(sum(a**order * b ** (1 - order) for a, b in zip(p, q, strict=True))) / (order - 1) / order


@pytest.mark.parametrize("eps", EPS)
def test_the_rho_of_laplace_is_the_largest_ratio(eps):
    def laplace(a: mp.mpf) -> mp.mpf:
        terms = a * mp.exp((a - 1) * eps) + (a - 1) * mp.exp(-a * eps)
        return mp.log(terms / (2 * a - 1)) / (a - 1) / a

    largest = max(map(laplace, ORDERS))
    rho = LaplacePair(eps).zcdp_rho()
    assert largest <= rho <= largest * (1 + mp.mpf(10) ** -9)


@pytest.mark.parametrize("eps", EPS)
@pytest.mark.parametrize("sensitivity", [1, 2, 5])
def test_the_rho_of_discrete_laplace_is_the_largest_ratio(eps, sensitivity):
    c = mp.exp(-mp.mpf(eps))
    between = [(1 - c) / (1 + c) * c ** (sensitivity - j) for j in range(1, sensitivity)]
    p = [c**sensitivity / (1 + c), *between, 1 / (1 + c)]
    largest = max(ratio(p, p[::-1], order) for order in ORDERS)
    rho = DiscreteLaplace(scale=1 / eps, sensitivity=sensitivity).pair().zcdp_rho()
    assert largest * (1 - mp.mpf(10) ** -14) <= rho <= largest * (1 + mp.mpf(10) ** -9)


@pytest.mark.parametrize("eps", EPS)
def test_the_rho_of_pure_dp_is_that_of_randomised_response(eps):
    p = 1 / (1 + mp.exp(-mp.mpf(eps)))
    largest = max(ratio([p, 1 - p], [1 - p, p], order) for order in ORDERS)
    assert largest <= ResponsePair(eps, 0.0, 1).zcdp_rho() <= largest * (1 + mp.mpf(10) ** -9)
    # a step of which only the largest loss is known
    alone = wpriv.budget("dp", eps0=eps, delta=1e-5, accountant="zcdp").epsilon.safe
    assert alone == pytest.approx(float(largest + 2 * mp.sqrt(largest * mp.log(1e5))), rel=1e-9)


@pytest.mark.parametrize("r", EPS)
def test_the_rho_of_bounded_range_is_the_largest_ratio_of_all_releases(r):
    largest = mp.mpf(0)
    for t in (mp.mpf(r) * k / 200 for k in range(1, 200)):
        p = (mp.exp(r) - mp.exp(t)) / (mp.exp(r) - 1)
        q = mp.exp(-t) * p
        largest = max(largest, *(ratio([p, 1 - p], [q, 1 - q], order) for order in ORDERS[::2]))
    rho = BoundedRangePair(r).zcdp_rho()
    assert largest <= rho <= min(largest * 1.01, r * r / 8 * (1 + 1e-12))


def test_ten_releases_of_laplace_noise():
    # rho = 10 / e: 10 / e + 2 sqrt(10 / e ln 1e5)
    found = wpriv.budget("laplace", scale=1, n=10, delta=1e-5, accountant="zcdp").epsilon.safe
    rho = 10 / math.e
    assert found == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1e5)), rel=1e-12)


@pytest.mark.parametrize("xi", [0.0, 0.1, 2.0])
@pytest.mark.parametrize("rho", [0.01, 0.5])
@pytest.mark.parametrize("delta", [1e-2, 1e-9])
def test_xi_and_rho_convert_to_eps_by_the_best_order(xi, rho, delta):
    """Oracles in mpmath: the closed form of Bun and Steinke; the conversion of 2020 at the best of many orders."""
    process = wpriv.Process((wpriv.Step(wpriv.Zcdp(rho, xi), 3),))
    closed = 3 * xi + 3 * rho + 2 * mp.sqrt(3 * rho * mp.log(1 / mp.mpf(delta)))
    assert wpriv.curve(process, "zcdp").epsilon(delta=delta) == pytest.approx(float(closed), rel=1e-12)

    def at(order: mp.mpf) -> mp.mpf:
        constant = mp.log(1 - 1 / order) - (mp.log(mp.mpf(delta)) + mp.log(order)) / (order - 1)
        return 3 * xi + 3 * rho * order + constant

    best = min(at(1 + mp.mpf(10) ** (mp.mpf(k) / 200)) for k in range(-200, 600))
    tight = wpriv.curve(process, "rdp").epsilon(delta=delta)
    assert tight <= float(closed)
    assert tight == pytest.approx(max(float(best), 0.0), rel=1e-4)
    assert tight <= float(best) * (1 + 1e-12)


def test_groups_of_xi_and_rho_follow_the_triangle_inequality_of_renyi_divergences():
    """Oracle: the induction of Bun and Steinke, D_a(0, k) <= ka/(ka-1) D_{(ka-1)/(k-1)}(0, k-1) + D_{ka}(k-1, k)."""
    xi, rho = mp.mpf("0.1"), mp.mpf("0.3")
    for order in (mp.mpf("1.5"), mp.mpf(2), mp.mpf(40)):

        def bound(k: int, a: mp.mpf) -> mp.mpf:
            if k == 1:
                return xi + rho * a
            return k * a / (k * a - 1) * bound(k - 1, (k * a - 1) / (k - 1)) + xi + rho * k * a

        for people in (2, 3, 5):
            person = wpriv.Zcdp(0.3, 0.1).grouped(people)
            assert float(bound(people, order)) <= float(person.xi + person.rho * order) * (1 + 1e-12)
