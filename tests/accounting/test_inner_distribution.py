"""The inner distribution of the privacy loss, against closed forms and changes of variables."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad

import wpriv
from wpriv import Gauss, Laplace, Poisson, Process, RandomizedResponse, Step, TruncatedGauss, Uniform
from wpriv.accounting.basis import InnerDistribution
from wpriv.core.atomic_pair import AtomicPair
from wpriv.errors import Unsupported, UsageError
from wpriv.papers.mechanisms.projection import Projection


@pytest.mark.parametrize("scale", [0.3, 2.0, 100.0])
def test_laplace_noise_has_two_atoms_and_an_exponential_between_them(scale: float) -> None:
    """Oracle: plc Appendix A.3, corrected: 1/2 at t, e^-t/2 at -t, density e^((y-t)/2)/4."""
    found, t = wpriv.inner_distribution(Laplace(scale)), 1 / scale
    assert found.order == "both"
    assert found.mass_at_infinity == 0
    (low, least), (high, most) = found.atoms()
    assert (low, high) == (pytest.approx(-t), pytest.approx(t))
    assert (least, most) == (pytest.approx(math.exp(-t) / 2, rel=1e-12), pytest.approx(0.5, rel=1e-12))
    y = t * np.linspace(-0.9, 0.9, 7)
    assert found.density(y) == pytest.approx(np.exp((y - t) / 2) / 4, rel=1e-7)
    assert found.density([-1.1 * t, 1.1 * t]).tolist() == [0.0, 0.0]
    assert found.density(t) == pytest.approx(0.25, rel=1e-4)
    assert found.mean == pytest.approx(t + math.expm1(-t), rel=1e-9)


def test_gaussian_noise_has_a_normal_loss_also_composed() -> None:
    """Oracle: plc Lemma 11, N(mu^2/2, mu^2) with mu^2 = n / sigma^2."""
    found = wpriv.inner_distribution("gauss sigma=2 n=9")
    y = np.array([-4.0, 0.0, 1.0, 3.0, 12.0])
    want = np.exp(-((y - 1.125) ** 2) / 4.5) / math.sqrt(4.5 * math.pi)
    assert found.density(y) == pytest.approx(want, rel=1e-7)
    assert found.atoms() == []
    assert (found.mean, found.variance) == (pytest.approx(1.125), pytest.approx(2.25))


@pytest.mark.parametrize("order", ["remove", "add"])
def test_a_sampled_step_has_the_density_of_the_change_of_variables(order: str) -> None:
    """Oracle: plc Lemma 10 with |dx/dy|, for P = (1-q) N(0, s^2) + q N(1, s^2) over Q = N(0, s^2), and the reverse."""
    q, sigma = 0.1, 2.0
    found = wpriv.inner_distribution(Process((Step(Gauss(sigma), 1, Poisson(q)),)), order)
    for x in (-3.0, 0.0, 1.0, 5.0):
        ratio = 1 - q + q * math.exp((x - 0.5) / sigma**2)
        slope = (ratio - 1 + q) / sigma**2 / ratio
        base = math.exp(-(x**2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))
        sign, density = (1, ratio * base) if order == "remove" else (-1, base)
        assert found.density(sign * math.log(ratio)) == pytest.approx(density / slope, rel=1e-6)


def test_what_it_leaves_out_is_the_mass_of_distinguishing_events() -> None:
    """Oracles: plc Example 1 (p = e^xi / (1 + e^xi) given a finite loss) and Example 2 (constant loss 0)."""
    found = wpriv.inner_distribution(RandomizedResponse(0.5, 0.01))
    p = 1 / (1 + math.exp(-0.5))
    assert found.mass_at_infinity == pytest.approx(0.01, rel=1e-12)
    assert [loss for loss, _ in found.atoms()] == [-0.5, 0.5]
    assert [mass for _, mass in found.atoms()] == pytest.approx([1 - p, p], rel=1e-12)
    assert found.mean == pytest.approx(0.5 * (2 * p - 1), rel=1e-12)
    assert found.density(0.1) == 0
    uniform = wpriv.inner_distribution(Process((Step(Uniform(outcomes=10), 4),)))
    assert uniform.mass_at_infinity == pytest.approx(1 - 0.9**4, rel=1e-12)
    assert uniform.mean == uniform.variance == 0


def test_atoms_and_density_add_up_to_one_with_the_mean_of_the_class() -> None:
    found = wpriv.inner_distribution(TruncatedGauss(sigma=1.0, bound=3.0))
    low, high = found.pair.support
    parts = [quad(lambda y, k=k: float(found.density(y)) * y**k, low, high, points=[0.0])[0] for k in (0, 1)]
    atoms = [sum(p * y**k for y, p in found.atoms()) for k in (0, 1)]
    assert parts[0] + atoms[0] == pytest.approx(1, rel=1e-4)
    assert parts[1] + atoms[1] == pytest.approx(found.mean, rel=1e-3)
    assert found.cdf([low - 1, high, math.inf]).tolist() == [0.0, pytest.approx(1.0), pytest.approx(1.0)]


def test_it_need_not_be_the_loss_of_any_mechanism() -> None:
    """plc error 3: A = (1/2, 1/2, 0), B = (0, 1, 0): the finite loss is -ln 2, so that E e^-L = 2 > 1."""
    pair = AtomicPair(np.array([-math.log(2)]), np.log([0.5]), 0.5)
    found = InnerDistribution("remove", -math.log(2), 0.0, 0.5, pair)
    assert sum(p * math.exp(-y) for y, p in found.atoms()) == pytest.approx(2)


def test_of_other_compositions_the_class_is_known_and_no_density() -> None:
    found = wpriv.inner_distribution("laplace scale=2 n=100 poisson .1")
    one = wpriv.inner_distribution("laplace scale=2 poisson .1")
    assert found.mean == pytest.approx(100 * one.mean)
    assert "mass at infinity 0" in str(found)
    with pytest.raises(Unsupported, match="Ask for one release"):
        found.density(0.1)
    with pytest.raises(UsageError, match="order"):
        wpriv.inner_distribution(Laplace(2.0), "removed")
    with pytest.raises(Unsupported, match="exact"):
        wpriv.inner_distribution(Projection(d=50, k=20, sigma=4.0))
