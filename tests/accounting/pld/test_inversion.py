"""Inversion of the transform of atoms against exact sums, mpmath, and the composition on lattices."""

from __future__ import annotations

import itertools
import math
import time

import mpmath
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests import oracles
from wpriv.accounting.mechanisms.discrete_gauss import DiscreteGauss
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.accounting.mechanisms.laplace import LaplacePair
from wpriv.accounting.pld import composition, constants, inversion
from wpriv.accounting.pld.composition import Composition
from wpriv.accounting.pld.inversion import SmoothingKernel, invert_transform, significant_frequencies
from wpriv.accounting.pld.transforms import Bulk, TiltedAtoms, even_sums
from wpriv.core.subsampled_pairs import fixed, poisson
from wpriv.errors import Unsupported


def random_pmf(rng: np.random.Generator, size: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Losses and P-masses of a PMF whose Q-mass is at most one."""
    y, p = np.sort(rng.normal(0, scale, size)), rng.dirichlet(np.ones(size))
    return y + max(math.log(float(p @ np.exp(-y))), 0.0), p


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 12),
    size=st.integers(2, 4),
    log_scale=st.floats(-3, 0.3),
    share=st.floats(-2, 3),
)
@example(seed=287, n=9, size=2, log_scale=-1.0, share=0.25)  # an atom of the sum at eps
def test_the_bracket_holds_the_exact_sum_over_all_outcomes(seed, n, size, log_scale, share):
    """Oracle: the sum over the multinomial outcomes."""
    rng = np.random.default_rng(seed)
    y, p = random_pmf(rng, size, 10**log_scale)
    tilt = 1.0 / (10**log_scale * math.sqrt(n))
    atoms = TiltedAtoms.of(y, p, tilt, np.array([n]), np.zeros(1))
    spread = math.sqrt(n * float(atoms.variances[0]))
    eps = float(n * (atoms.weight @ atoms.y)[0] + share * spread)
    truth = oracles.atoms_delta([(y, p, n)], eps)
    assume(truth > 1e-6)
    mean = float(n * (atoms.weight @ atoms.y)[0])
    composed = invert_transform([atoms], tilt, eps, mean, truth, 1e-4 * spread, 1e-4)
    low, high = composed.delta(eps, -1), composed.delta(eps, +1)
    assert low <= truth * (1 + 1e-12)
    assert truth <= high * (1 + 1e-12)
    # an atom of the sum may lie at eps; smoothing then moves delta by its mass times half the kernel's mean deviation,
    # 0.09 widths, and a shift of the same order
    width = inversion._kernel(spread, tilt, 1e-4 * spread).width
    assert high - low <= 2e-3 * truth + 0.2 * width


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 700), count=st.integers(1, 40), log_t=st.floats(-6, 5))
def test_sums_of_waves_are_within_their_stated_rounding(seed, size, count, log_t):
    """Oracle: mpmath, at the first and the last frequency."""
    rng = np.random.default_rng(seed)
    y, p = rng.normal(0, 1, size), rng.dirichlet(np.ones(size))
    atoms = TiltedAtoms.of(y, p, 0.0, np.array([1]), np.zeros(1))
    spacing = 10**log_t
    transform, noise = atoms.transform(1, 1 + count, spacing)
    with mpmath.workdps(40):
        for j in {0, count - 1}:
            t = mpmath.mpf(spacing * (1 + j))
            waves = [mpmath.expj(t * mpmath.mpf(float(a))) - 1 for a in atoms.offset]
            exact = mpmath.fsum(mpmath.mpf(float(w)) * each for w, each in zip(atoms.weight[0], waves, strict=True))
            assert abs(mpmath.mpc(complex(transform[j, 0])) - exact) <= float(noise[j, 0]) * 1.01 + 1e-300


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.sampled_from([40, 400, 5000]), size=st.integers(20, 200))
def test_frequencies_left_out_add_no_more_than_is_said(seed, n, size):
    """Oracle: the product at every frequency."""
    rng = np.random.default_rng(seed)
    y, p = random_pmf(rng, size, 0.01)
    tilt = 1.0
    atoms = TiltedAtoms.of(y, p, tilt, np.array([n]), np.zeros(1))
    spread = math.sqrt(n * float(atoms.variances[0]))
    kernel, spacing = SmoothingKernel(0.01 * spread), 2 * math.pi / (20 * spread)
    count = math.ceil(kernel.edge / spacing)
    chosen = significant_frequencies([atoms], tilt, spread, spacing, count, kernel, 1e-8, 10**9, None)
    t = spacing * np.arange(count)
    size_of = np.abs(1 + even_sums(atoms.offset, atoms.weight, 0.0, spacing, count)[:, 0]) ** n
    s = tilt + 1j * t
    smooth = np.abs(kernel.transform(s))
    omitted = np.ones(count, dtype=bool)
    for first, last in chosen.runs:
        omitted[first:last] = False
    terms = size_of * smooth * spacing / math.pi
    assert float((terms / np.abs(s * (s + 1)))[omitted].sum()) <= chosen.omitted_value * (1 + 1e-9) + 1e-300
    assert float((terms * smooth)[omitted].sum()) <= chosen.omitted_density * (1 + 1e-9) + 1e-300
    assert chosen.omitted_value <= 1e-8


@pytest.mark.parametrize(("n", "jump", "share"), [(20, 0.06, 0.19), (30, 0.3, 0.1)])
def test_frequencies_left_out_add_no_more_than_is_said_where_small_losses_alone_are_subtracted(n, jump, share):
    """Oracle: both products at every frequency. Near some, a large loss cancels the small ones in one of the two."""
    rng = np.random.default_rng(3)
    y = np.append(np.sort(rng.normal(0, 0.01, 400)), jump)
    weight = np.append((1 - share) * rng.dirichlet(np.full(400, 20.0)), share)
    atoms = TiltedAtoms(y, weight[None], np.zeros(1), np.zeros(1), np.array([n]), np.zeros(1))
    spread, bulk, kernel = math.sqrt(n * float(atoms.variances[0])), Bulk(0.04), SmoothingKernel(0.003)
    spacing = 2 * math.pi / (40 * spread)
    t = spacing * np.arange(math.ceil(kernel.edge / spacing))
    waves = np.exp(1j * t[:, None] * y)
    difference = np.abs((waves @ weight) ** n - (waves @ np.where(y <= bulk.end, weight, 0.0)) ** n)
    smooth = np.abs(kernel.transform(1.0 + 1j * t))
    terms = difference * smooth * spacing / math.pi
    for allowance in (1e-8, 1e-4):
        chosen = significant_frequencies([atoms], 1.0, spread, spacing, t.size, kernel, allowance, 10**9, bulk)
        omitted = np.ones(t.size, dtype=bool)
        for first, last in chosen.runs:
            omitted[first:last] = False
        assert omitted.any()
        assert float((terms / np.abs((1.0 + 1j * t) * (2.0 + 1j * t)))[omitted].sum()) <= chosen.omitted_value
        assert float((terms * smooth)[omitted].sum()) <= chosen.omitted_density


def test_too_many_frequencies_are_refused():
    atoms = TiltedAtoms.of(np.array([-1.0, 1.0]), np.array([0.3, 0.7]), 1.0, np.array([3]), np.zeros(1))
    with pytest.raises(Unsupported):
        significant_frequencies([atoms], 1.0, 1.0, 1e-3, 10**6, SmoothingKernel(1e-3), 1e-12, 10, None)


JOBS = st.sampled_from(
    [
        lambda q, sigma: poisson(GaussPair(1 / sigma), q),
        lambda q, sigma: poisson(GaussPair(1 / sigma), q).reverse(),
        lambda q, sigma: fixed(GaussPair(1 / sigma), q),
        lambda q, sigma: poisson(LaplacePair(1 / sigma), q),
        lambda q, sigma: poisson(DiscreteGauss(sigma=sigma).pair(), q),
        lambda q, sigma: DiscreteGauss(sigma=10 * sigma).pair(),
    ]
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@example(
    make=lambda q, sigma: poisson(DiscreteGauss(sigma=1.0).pair(), 1e-4), log_q=-4, log_sigma=0, log_n=5, log_delta=-10
)
@given(
    make=JOBS,
    log_q=st.floats(-4, -0.3),
    log_sigma=st.floats(-0.2, 1),
    log_n=st.floats(0, 14),
    log_delta=st.floats(-25, -0.5),
)
def test_the_ways_to_compose_never_exclude_each_other(make, log_q, log_sigma, log_n, log_delta):
    run = [(make(10**log_q, 10**log_sigma), int(2**log_n))]
    ends = []
    for method in composition.METHODS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(composition, "METHODS", (method,))
            try:
                ends.append(Composition(run).epsilon(10**log_delta, 1e-3))
            except Unsupported:
                assume(False)
    (low, high), (lower, upper) = ends
    assert low <= upper * (1 + 1e-9)
    assert lower <= high * (1 + 1e-9)


@pytest.mark.parametrize(
    ("sigma", "q", "n", "delta"), [(1.0, 1e-3, 10**4, 1e-5), (1.5, 1e-3, 50000, 1e-10), (1.517, 0.001457, 43510, 1e-13)]
)
@pytest.mark.parametrize("order", ["remove", "add"])
def test_sampled_discrete_gauss_is_as_narrow_as_gauss(sigma, q, n, delta, order):
    """Oracle: inversion of the exact moments, summed over the noise from its definition (tests/oracles.py)."""
    pair = poisson(DiscreteGauss(sigma=sigma).pair(), q)
    k = np.arange(-60, 61)
    noise = np.exp(-((k / sigma) ** 2) / 2)
    noise /= noise.sum()
    loss = np.log1p(q * np.expm1((2 * k - 1) / (2 * sigma**2)))
    power = loss if order == "remove" else -loss
    base = noise * np.exp(loss) if order == "remove" else noise

    def log_m(s):
        # where the largest losses overflow at a trial tilt, the moment is infinite
        with np.errstate(over="ignore", invalid="ignore"):
            value = np.log1p(np.expm1(np.multiply.outer(s, power)) @ base)
        return np.where(np.isnan(value), 1e300, value)

    low, high = Composition([(pair if order == "remove" else pair.reverse(), n)]).epsilon(delta, 1e-6)
    assert high - low <= 1e-6 * high
    assert oracles.contour_delta([(log_m, n)], low) >= delta * (1 - 1e-8)
    assert oracles.contour_delta([(log_m, n)], high) <= delta * (1 + 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("target", [{"delta": 1e-9}, {"eps": 0.9}])
def test_a_question_that_takes_too_much_work_gets_the_best_bracket_so_far(target, monkeypatch):
    from wpriv import budget

    asked = {"mech": "gauss", "sigma": 0.5, "rate": 1e-5, "n": 1000, "sampling": "poisson", **target}
    monkeypatch.setattr(constants, "QUESTION_WORK", 0.0)
    found = budget(**asked)
    bracket = found.epsilon if "delta" in target else found.delta
    assert 0 <= bracket.lower < bracket.upper < math.inf
    assert any("`tol=" in line or "no answer" in line for line in found.warnings)


@pytest.mark.slow
def test_the_bracket_of_a_wide_question_does_not_depend_on_the_speed_of_the_machine(monkeypatch):
    monkeypatch.setattr(constants, "QUESTION_WORK", 1e8)
    brackets = set()
    # the clock of a fast machine stands still, that of a slow one jumps at each look
    for seconds in (0.0, 1000.0):
        for name in ("process_time", "perf_counter", "monotonic", "time"):
            monkeypatch.setattr(time, name, itertools.count(0.0, seconds).__next__)
        asked = Composition([(poisson(GaussPair(2.0), 1e-5), 1000)])
        brackets.add(asked.delta(0.9, 1e-9))
        assert asked._out_of_work()
    assert len(brackets) == 1


def test_a_question_after_others_have_taken_all_the_work_is_still_answered(monkeypatch):
    """Oracle: inversion of the exact moments."""
    log_m = oracles.poisson_gauss(0.01, 0.25, "remove")
    asked = Composition([(poisson(GaussPair(0.25), 0.01), 65536)])
    asked.epsilon(1e-4, 1e-3)
    monkeypatch.setattr(constants, "MIN_QUESTION_WORK", 0.0)
    asked.work_left = -1.0
    low, high = asked.epsilon(1e-9, 1e-6)
    assert 0 < low <= high < math.inf
    assert oracles.contour_delta([(log_m, 65536)], low) >= 1e-9 * (1 - 1e-8)
    assert oracles.contour_delta([(log_m, 65536)], high) <= 1e-9 * (1 + 1e-8)


def test_gaps_between_runs_of_frequencies_are_filled_where_they_are_short():
    t = np.array([1.0, 2.0, 3.0, 4.0, 400.0, 401.0])
    runs = inversion._runs(t, np.array([True, False, True, False, True]), 1.0)
    # the gap from 2 to 3 is filled, the one from 4 to 400 is not
    assert runs == [(0, 4), (400, 401)]
