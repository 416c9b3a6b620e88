"""Both ends of an exact eps of one release enclose the truth; oracle: closed forms in mpmath with 60 digits."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import mpmath
import pytest

from wpriv import DiscreteGauss, DiscreteLaplace, Gauss, Laplace, Poisson, Process, RandomizedResponse, Step, budget

E, LN = mpmath.exp, mpmath.log
LIMIT = 130  # outcomes of discrete-gauss on both sides of 0


def tail(x):
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2


def gauss(noise, t):
    """A(L > ln t) and B(L > ln t) of A = N(mu, 1) against B = N(0, 1)."""
    mu = 1 / noise
    x = LN(t) / mu + mu / 2
    return tail(x - mu), tail(x)


def laplace(noise, t):
    """The same of Laplace noise at distance 1."""
    u = LN(t) * noise  # of the loss in units of the largest one
    if u >= 1:
        return mpmath.mpf(0), mpmath.mpf(0)
    if u < -1:
        return mpmath.mpf(1), mpmath.mpf(1)
    x = (1 + u) / 2  # outcomes above this
    return 1 - E((x - 1) / noise) / 2, E(-x / noise) / 2


def atoms(name, noise):
    """A- and B-masses of the outcomes of a discrete mechanism."""
    if name == "randomized-response":
        high, low = 1 / (1 + E(-noise)), 1 / (1 + E(noise))
        return [(high, low), (low, high)]
    weights = {k: E(-mpmath.mpf(k * k) / (2 * noise**2)) if name == "discrete-gauss" else E(-abs(k) / noise)
               for k in range(-LIMIT, LIMIT + 1)}  # fmt: skip
    if name == "discrete-laplace":
        odds = E(-1 / noise)
        return [(1 / (1 + odds), odds / (1 + odds)), (odds / (1 + odds), 1 / (1 + odds))]
    norm = sum(weights.values())
    return [(weights[k - 1] / norm, weights[k] / norm) for k in range(1 - LIMIT, LIMIT + 1)]


def delta_of(name, noise, rate, eps):
    """The larger profile of the two orders of one release under Poisson sampling."""
    t = E(eps)
    if name not in ("gauss", "laplace"):
        mixed = [(rate * a + (1 - rate) * b, b) for a, b in atoms(name, noise)]
        return max(sum(max(p - t * q, 0) for p, q in rows) for rows in (mixed, [(b, a) for a, b in mixed]))
    tails = gauss if name == "gauss" else laplace
    a, b = tails(noise, (t - 1 + rate) / rate)
    remove, least = rate * a + (1 - rate) * b - t * b, (1 / t - 1 + rate) / rate
    if least <= 0:
        return remove
    a, b = tails(noise, least)  # the other order loses more than eps where A has less than this many times B
    return max(remove, (1 - b) - t * (rate * (1 - a) + (1 - rate) * (1 - b)))


MECHANISMS = {
    "gauss": Gauss,
    "laplace": Laplace,
    "discrete-gauss": DiscreteGauss,
    "discrete-laplace": DiscreteLaplace,
    "randomized-response": RandomizedResponse,
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_both_ends_of_an_exact_eps_enclose_the_truth(name):
    """At 40 random parameters each: delta at the upper end is at most delta, and at the lower end at least."""
    draw, checked = random.Random(name), 0
    with mpmath.workdps(60):
        for i in range(40):
            noise, delta = round(draw.uniform(0.6, 8), 3), 10 ** draw.uniform(-14, -3)
            rate = 1.0 if i % 4 == 0 else round(draw.uniform(0.001, 0.5), 5)
            sampling = () if rate == 1 else (Poisson(rate),)
            row = budget(Process((Step(MECHANISMS[name](noise), 1, *sampling),)), delta=delta)
            if row.claim != "exact" or not 0 < row.epsilon.upper < math.inf:
                continue
            checked += 1
            low, high = row.epsilon.lower, row.epsilon.upper
            assert high * (1 - 1e-9) < low < high
            numbers = mpmath.mpf(noise), mpmath.mpf(rate)
            assert delta_of(name, *numbers, mpmath.mpf(high)) <= delta, (noise, rate, delta)
            assert delta_of(name, *numbers, mpmath.mpf(low)) >= delta, (noise, rate, delta)
    assert checked >= 20


@pytest.mark.parametrize(
    ("mechanism", "delta"),
    [(Gauss(1000), 3.98941e-4), (Gauss(3), 0.13236), (Laplace(1000), 4.9987e-4), (RandomizedResponse(1e-5), 4.9999e-6)],
)
def test_a_tiny_eps_in_closed_form_is_still_called_exact(mechanism, delta):
    row = budget(Process((Step(mechanism, 1),)), delta=delta)
    assert 0 < row.epsilon.upper < 1e-4
    assert row.claim == "exact"


@pytest.mark.parametrize("mechanism", [RandomizedResponse(1.0), Laplace(2.0), Laplace(3.0)])
@pytest.mark.parametrize("delta", [1e-20, 1e-40, 1e-300])
def test_no_eps_exceeds_the_largest_loss_of_pure_dp(mechanism, delta):
    process = Process((Step(mechanism, 1),))
    scale = 1.0 if isinstance(mechanism, RandomizedResponse) else mechanism.scale
    largest = 1 / scale
    row = budget(process, delta=delta)
    # rounded up: the double next to 1/3 lies below it
    top = largest if Fraction(largest) * Fraction(scale) >= 1 else math.nextafter(largest, 1.0)
    assert largest * (1 - 1e-12) < row.epsilon.lower <= row.epsilon.upper <= top
