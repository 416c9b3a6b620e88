"""Sommer, Meiser, Mohammadi (2019), "Privacy Loss Classes", from Section 5 on, for the table ``claims``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
from scipy.special import ndtr

from wpriv.accounting.accountants import pld
from wpriv.accounting.mechanisms.gauss import Gauss, GaussPair
from wpriv.accounting.mechanisms.laplace import Laplace, LaplacePair
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_moments import loss_class, raw_third_moment
from wpriv.core.process import Process, Step
from wpriv.core.subsampled_pairs import poisson
from wpriv.numerics.arrays import Array
from wpriv.numerics.conversions import normal_log_delta
from wpriv.numerics.root_finding import smallest_meeting
from wpriv.papers.accountants._normal_approximation import UNIFORM, composed
from wpriv.papers.tables._claims_plc_losses import pair_of, published_sigma
from wpriv.papers.tables._statement import Case, Claims, panels

# distributions A against B for which the third moment of the loss is smaller than that about its mean
SKEWED = (([0.99, 0.01], [0.5, 0.5]), ([0.917, 0.083], [0.554, 0.446]))
# A has a rare outcome of loss 5, and hardly any loss elsewhere; its delta at eps = 2
RARE = ([1e-4, 1 - 1e-4], [1e-4 * math.exp(-5), 1 - 1e-4 * math.exp(-5)])
RARE_DELTA = RARE[0][0] - math.exp(2) * RARE[1][0]

STATEMENTS = Claims()
upper = STATEMENTS.claim
equal = partial(STATEMENTS.claim, equal=True)
lower = partial(STATEMENTS.claim, lower=True)


@upper("Theorem 4", "Kolmogorov distance at most 0.4748 E|Y|^3/(sqrt(n) sigma^3)")
def _() -> Iterator[Case]:
    for (p, q), n in product(SKEWED, (1, 10, 100)):
        loss = loss_class(pair_of(p, q))
        chain = pair_of(p, q).self_compose(n)
        assert isinstance(chain, AtomicPair)
        steps = np.cumsum(np.exp(chain.log_p))
        normal = ndtr((chain.losses - n * loss.mean) / math.sqrt(n * loss.variance))
        distance = max(np.abs(steps - normal).max(), np.abs(np.append(0.0, steps[:-1]) - normal).max())
        bound = UNIFORM[True] * raw_third_moment(pair_of(p, q)) / math.sqrt(n) / loss.variance**1.5
        yield f"A={tuple(p)}, B={tuple(q)}, n={n}", bound, float(distance)


@lower("Theorem 4, moments", "its E|Y|^3 can be smaller than the E|Y - mean|^3 that its proof needs", SKEWED)
def _(p: list[float], q: list[float]) -> Case:
    return f"A={tuple(p)}, B={tuple(q)}", raw_third_moment(pair_of(p, q)), loss_class(pair_of(p, q)).third


def _quadrature(low: float, high: float) -> tuple[Array, Array]:
    return panels(np.linspace(low, high, 81))


def _normal_delta(eps: float, mean: float, deviation: float, infinity: float = 0.0) -> float:
    """delta of a normal loss by quadrature, with the mass ``infinity`` of distinguishing events."""
    y, weight = _quadrature(eps, max(eps, mean) + 40 * deviation)
    density = np.exp(-(((y - mean) / deviation) ** 2) / 2) / (deviation * math.sqrt(2 * math.pi))
    return infinity + (1 - infinity) * float(np.sum(weight * density * -np.expm1(eps - y)))


@equal("Lemma 9", "delta of continuous outputs is an integral over their losses")
def _() -> Iterator[Case]:
    for s, eps in product((0.5, 2.0), (0.0, 0.3)):
        # of N(s, 1) against N(0, 1), whose loss exceeds eps at outputs beyond eps/s + s/2
        least = eps / s + s / 2
        outputs = float(ndtr(s - least) - math.exp(eps) * ndtr(-least))
        yield f"Gauss sigma={1 / s:g}, eps={eps:g}", _normal_delta(eps, s * s / 2, s), outputs
        # of Lap(0, 1) against Lap(s, 1), whose loss exceeds eps at outputs below (s - eps)/2
        y, weight = _quadrature(eps, s)
        losses = float(np.sum(weight * np.exp((y - s) / 2) / 4 * -np.expm1(eps - y))) - math.expm1(eps - s) / 2
        outputs = 1 - math.exp((eps - s) / 2) / 2 - math.exp(eps + (s - eps) / 2 - s) / 2
        yield f"Laplace t={s:g}, eps={eps:g}", losses, outputs


@equal("Lemma 10", "density A(L^-1(y)) dL^-1/dy, without absolute value", (1.0, 0.5), error=8)
def _(t: float) -> Case:
    below, above = np.exp(LaplacePair(t).tails(np.array([-t / 2, t / 2])).cdf_p)
    # A(L^-1(y)) dL^-1/dy = -e^((y-t)/2)/4, since L falls
    printed = -0.5 * (math.exp(-t / 4) - math.exp(-3 * t / 4))
    return f"Laplace t={t:g}: P(-t/2 < loss <= t/2)", printed, float(above - below)


@equal("Lemma 11", "Gaussian noise has a normal loss (s^2/2, s^2)")
def _() -> Iterator[Case]:
    for s in (0.5, 1.0, 2.0):
        y, weight = _quadrature(-40, 40)
        density = np.exp(-(y**2) / 2) / math.sqrt(2 * math.pi)
        loss = s * y + s * s / 2  # of the output y + s under N(s, 1), against N(0, 1)
        yield f"Gauss sigma={1 / s:g}: mean", s * s / 2, float(np.sum(weight * density * loss))
        yield f"Gauss sigma={1 / s:g}: variance", s * s, float(np.sum(weight * density * (loss - s * s / 2) ** 2))


@equal("Lemma 11, inverse", "L^-1(y) = (y sigma^2 + ...)/(2 (x0 - x1))", (0.0, 1.0), error=9)
def _(y: float) -> Case:
    # sigma=1, inputs 1 and 0: the loss of the output u is u - 1/2; with 2 y sigma^2 for y sigma^2 it is right
    return f"sigma=1, x0=1, x1=0, y={y:g}", (y + 1) / 2, y + 0.5


equal("Lemma 11, variance", "sigma^2 = E y^2", error=9)(lambda: ("Gauss sigma=1", 1.0 + 0.5**2, 1.0))


@equal(
    "Lemma 12",
    "delta of a normal loss, with distinguishing events",
    ((0.5, 0.2, 1.0, 0.001), (1.0, 0.5, 1.0, 0.0), (3.0, 1.0, 0.5, 0.1)),
)
def _(eps: float, mean: float, deviation: float, infinity: float) -> Case:
    inner = math.exp(normal_log_delta(eps, mean, deviation**2))
    at = f"mean={mean:g}, sigma={deviation:g}, w(inf)={infinity:g}, eps={eps:g}"
    return at, infinity + (1 - infinity) * inner, _normal_delta(eps, mean, deviation, infinity)


@equal(
    "Theorem 5", "delta of Gaussian noise, exactly", ((0.0, 1, 1), (1.0, 1, 1), (3.2, 40, 128), (0.005, 900_000, 2**22))
)
def _(eps: float, sigma: float, n: int) -> Case:
    deviation = math.sqrt(n) / sigma
    published = math.exp(float(GaussPair(deviation).log_delta(eps)))
    return f"sigma={sigma}, n={n}, eps={eps:g}", published, _normal_delta(eps, deviation**2 / 2, deviation)


def _normal_tail(eps: float, mean: float, deviation: float) -> float:
    y, weight = _quadrature(eps, max(eps, mean) + 40 * deviation)
    return float(np.sum(weight * np.exp(-(((y - mean) / deviation) ** 2) / 2))) / (deviation * math.sqrt(2 * math.pi))


@equal("Corollary 5.1", "PDP of Gaussian noise, exactly", ((0.0, 1, 1), (6.4, 40, 256)))
def _(eps: float, sigma: float, n: int) -> Case:
    deviation = math.sqrt(n) / sigma
    mean = deviation**2 / 2
    published = math.erfc((eps - mean) / (math.sqrt(2) * deviation)) / 2
    return f"sigma={sigma}, n={n}, eps={eps:g}", published, _normal_tail(eps, mean, deviation)


def _pdp_sigma(eps: float, delta: float) -> float:
    """The smallest sigma of one release whose loss exceeds eps with probability delta at most, by root search."""
    return smallest_meeting(lambda sigma: float(ndtr(1 / (2 * sigma) - eps * sigma)) - delta, guess=1 / eps)


@equal("Corollary 5.2", "smallest sigma for PDP, over sqrt(2 eps)", (0.5, 2.0), error=10)
def _(eps: float) -> Case:
    return f"eps={eps:g}, delta=1e-5", published_sigma(eps, 1e-5), _pdp_sigma(eps, 1e-5)


@equal("Corollary 5.2, delta", "delta at the printed sigma is the target", error=10)
def _() -> Iterator[Case]:
    sigma = published_sigma(2.0, 1e-5)
    yield "eps=2, delta=1e-5", 1e-5, float(ndtr(1 / (2 * sigma) - 2 * sigma))


@equal("Corollary 5.2, corrected", "over sqrt(2) eps, at any delta", product((0.5, 2.0), (1e-5, 0.4, 0.6)))
def _(eps: float, delta: float) -> Case:
    sigma = published_sigma(eps, delta) * math.sqrt(2 * eps) / (math.sqrt(2) * eps)
    return f"eps={eps:g}, delta={delta:g}", sigma, _pdp_sigma(eps, delta)


@upper("Lemma 13", "Berry-Esseen, with S > n sigma z", (1, 100), error=11)
def _(n: int) -> Case:
    # n fair steps of +-1 never add up to more than n, which is n sigma z at z = 1
    return f"{n} fair steps of +-1, z=1", UNIFORM[True] / math.sqrt(n), float(ndtr(-1.0))


def _theorem_6(*, printed: bool) -> Iterator[Case]:
    bounds = []
    for pair in (pair_of(*RARE), pair_of(*RARE[::-1])):
        at = composed([(pair, 1)])
        at = replace(at, third=raw_third_moment(pair), deviation=at.variance) if printed else at
        bounds.append(at.bracket(2, nonuniform=True).safe)
    yield "A has loss 5 with probability 1e-4, n=1, eps=2", max(bounds), RARE_DELTA


upper("Theorem 6", "delta <= Delta + beta, with z over sqrt(n) sigma^2", error=12)(partial(_theorem_6, printed=True))
upper("Theorem 6, corrected", "delta <= Delta + beta, with z over sqrt(n) sigma")(partial(_theorem_6, printed=False))


@upper("Theorem 6, step I", "|int g d(w - Phi)| <= |int d(w - Phi)|", error=13)
def _() -> Iterator[Case]:
    # w has mass 1 at eps + 5, the other distribution at eps + 0.01: their tails beyond eps are the same
    yield "masses 1 at eps + 5 and at eps + 0.01", 0.0, -math.expm1(-5.0) + math.expm1(-0.01)


@equal("Section 6.1.1", "DP-SGD's pair is q N(0) + (1-q) N(1) over N(0)", error=17)
def _() -> Iterator[Case]:
    base = GaussPair(1 / 4)
    printed, right = (math.exp(float(poisson(base, q).log_delta(0.0))) for q in (0.99, 0.01))
    yield "q=.01, sigma=4, n=1: delta at eps=0", printed, right


def _laplace_class(t: float) -> tuple[float, float]:
    """Mean and variance of the loss by quadrature over its density, with its atoms at -t and t."""
    y, weight = _quadrature(-t, t)
    mass = np.concatenate([weight * np.exp((y - t) / 2) / 4, [math.exp(-t) / 2, 0.5]])
    y = np.append(y, [-t, t])
    mean = float(mass @ y)
    return mean, float(mass @ (y - mean) ** 2)


lower("Section 6.2.1, mean", "Gaussian noise has the smaller mean", error=14)(
    lambda: ("t=0.5", 0.5**2 / 2, _laplace_class(0.5)[0])
)
lower("Section 6.2.1, variance", "Gaussian noise has the smaller variance", error=14)(
    lambda: ("t=0.5", 0.5**2, _laplace_class(0.5)[1])
)


@lower("Section 6.2.1, n = 1", "Gaussian noise has the smaller delta", (0.0, 0.3), error=14)
def _(eps: float) -> Case:
    gauss, laplace = (math.exp(float(pair.log_delta(eps))) for pair in (GaussPair(0.5), LaplacePair(0.5)))
    return f"t=0.5, n=1, eps={eps:g}", gauss, laplace


@lower("Section 6.2.1, n = 100", "Gaussian noise has the smaller delta", error=14)
def _() -> Iterator[Case]:
    gauss, laplace = (
        pld.account(Process((Step(mechanism, 100),)), tol=1e-6).at(eps=15).delta.estimate
        for mechanism in (Gauss(sigma=2), Laplace(scale=2))
    )
    yield "t=0.5, n=100, eps=15", gauss, laplace


@equal("Section 6.2.1, limit", "the classes converge as t -> 0")
def _() -> Iterator[Case]:
    t = 1e-10
    # t + e^-t - 1 by its series
    yield "mean, t=1e-10", t * t / 2, t * t / 2 - t**3 / 6


# at sigma = 1 mean 1/2, standard deviation 1 and eps 1 become 1, 2 and 2, which 1 - e^(eps - y) does not allow
equal("Section 7", "mean, sigma and eps divided by the mean give delta", error=16)(
    lambda: ("Gauss sigma=1, eps=1", math.exp(normal_log_delta(2, 1, 4)), _normal_delta(1, 0.5, 1))
)


@equal("Appendix A.3", "mean and variance of the loss of Laplace noise")
def _() -> Iterator[Case]:
    for t in (0.5, 1.0, 3.0):
        mean, variance = _laplace_class(t)
        yield f"mean, t={t:g}", math.expm1(-t) + t, mean
        yield f"variance, t={t:g}", 3 - math.exp(-t) * (2 + 4 * t) - math.exp(-2 * t), variance


@equal("Equation 28", "density e^(+|o - x0|/b)/(2b)", error=15)
def _() -> Iterator[Case]:
    # exp(+|o - x0|/b)/(2b) over the interval of length 2b about x0, whose probability is 1 - 1/e
    yield "b=1: P(|o - x0| <= 1)", math.e - 1, float(1 - math.exp(-1))


@equal("Equation 30", "loss (x0 - x1)/b at o <= x0", error=15)
def _() -> Iterator[Case]:
    density = [0.5 * math.exp(-abs(-1.0 - x)) for x in (0.0, 1.0)]
    yield "b=1, x0=0, x1=1: loss of the output -1", -1.0, math.log(density[0] / density[1])


# e^t/2 at -t, e^((y+t)/2)/4 between, 1/2 at t
equal("Appendix A.3, sum", "the printed loss distribution sums to 1", error=15)(
    lambda: ("t=1", math.e / 2 + (math.e - 1) / 2 + 0.5, 1.0)
)
equal("Appendix A.3, delta", "delta_A with the factor e^(-x0/b)", error=15)(
    lambda: ("t=1, eps=0", (1 - math.exp(0.5)) ** 2 / 2 - math.expm1(-1) / 2, -math.expm1(-0.5))
)
equal("Appendix A.4, mean", "e^z - 1 - z at z > 0", error=14)(
    lambda: ("t=0.5", math.expm1(0.5) - 0.5, _laplace_class(0.5)[0])
)
equal("Appendix A.4, variance", "3 - e^z (2 - 4z) - e^2z at z > 0", error=14)(
    lambda: ("t=2", 3 + 6 * math.exp(2) - math.exp(4), _laplace_class(2.0)[1])
)


@upper("Contribution (d)", "delta < 2^-80 at n = 128 and < 2^-150 at n = 256", ((128, 80), (256, 150)))
def _(n: int, bits: int) -> Case:
    deviation = math.sqrt(n) / 40
    at = f"sigma=40, n={n}, eps={n / 40:g}: 2^-{bits}"
    return at, 2.0**-bits, _normal_delta(n / 40, deviation**2 / 2, deviation)
