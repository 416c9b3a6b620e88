"""The histogram pair: strict reading of CSV, distinguishing events, smoothing against closed forms and sums."""

from __future__ import annotations

import math
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from wpriv.accounting.mechanisms import histogram
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.accounting.mechanisms.histogram import Histogram
from wpriv.accounting.mechanisms.truncated_gauss import TruncatedGaussPair
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.errors import MissingResource, Unsupported, UsageError

EPS = np.array([0.0, 0.1, 0.5, 1.0, 2.0])


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str | bytes) -> str:
        file = tmp_path / "table.csv"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(file)

    return write


def test_a_histogram_is_its_sum_with_distinguishing_events_in_both_directions(write):
    p, q = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.4, 0.35, 0.0, 0.25])
    pair = Histogram(write("outcome,p,q\na,0.5,0.4\nb,0.3,0.35\nonly p,0.2,0\nonly q,0,0.25\n")).pair()
    assert (pair.mass_at_plus_infinity, pair.mass_at_minus_infinity) == pytest.approx((0.2, 0.25))
    for eps in (-2.0, 0.0, 0.1, 0.3, 5.0):
        assert float(np.exp(pair.log_delta(eps))) == pytest.approx(np.maximum(p - np.exp(eps) * q, 0).sum(), rel=1e-13)
        assert float(np.exp(pair.reverse().log_delta(eps))) == pytest.approx(
            np.maximum(q - np.exp(eps) * p, 0).sum(), rel=1e-13
        )


def test_samples_are_counted_into_bins_of_the_given_width(write):
    """Bins [-0.5, 0), [0, 0.5) and [0.5, 1); columns of unequal length, a byte-order mark and blank lines."""
    file = write("\ufeffp,q\n0.1,0.6\n\n0.49,0.7\n0.5,-0.1\n,0.2\n")
    table = histogram.read(file, 0.5)
    np.testing.assert_allclose(table.centres, [-0.25, 0.25, 0.75])
    np.testing.assert_allclose(table.p, [0, 2 / 3, 1 / 3])
    np.testing.assert_allclose(table.q, [0.25, 0.25, 0.5])
    pair = Histogram(file, bin_width=0.5).pair()
    assert (pair.mass_at_plus_infinity, pair.mass_at_minus_infinity) == (0.0, 0.25)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 7.0])
def test_two_points_smoothed_by_gaussian_noise_approach_the_gaussian_mechanism(write, sigma):
    file = write("outcome,p,q\n0,0,1\n1,1,0\n")
    found = np.exp(Histogram(file, sigma=sigma).pair().log_delta(EPS / sigma))
    exact = np.exp(GaussPair(1 / sigma).log_delta(EPS / sigma))
    assert np.all(found <= exact * (1 + 1e-12))
    np.testing.assert_allclose(found, exact, rtol=2e-4)


def test_two_points_smoothed_by_truncated_noise_approach_its_closed_form(write):
    pair = Histogram(write("outcome,p,q\n0,0,1\n1,1,0\n"), sigma=1.0, bound=2.0, cell=1 / 256).pair()
    closed = TruncatedGaussPair(1.0, 2.0)
    assert pair.mass_at_plus_infinity == pytest.approx(
        closed.mass_at_plus_infinity, rel=1e-12
    )  # the cells end where the noise does
    found, exact = np.exp(pair.log_delta(EPS)), np.exp(closed.log_delta(EPS))
    assert np.all(found <= exact * (1 + 1e-12))
    np.testing.assert_allclose(found, exact, rtol=2e-5)


@pytest.mark.parametrize(
    ("sigma", "bound", "cell"), [(0.7, 0.0, 0.0), (0.7, 1.1, 0.05), (50.0, 0.9, 0.02), (0.05, 0.0, 0.3)]
)
def test_smoothing_sums_the_probability_of_every_cell_over_the_outcomes(write, sigma, bound, cell):
    """Normal probabilities of the cells, outcome by outcome, for outcomes that lie on no lattice."""
    outcomes, p, q = np.array([0.0, 0.31, 1.007, 2.5]), np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.4, 0.3, 0.3, 0.0])
    rows = "".join(f"{x},{a},{b}\n" for x, a, b in zip(outcomes, p, q, strict=True))
    mechanism = Histogram(write("outcome,p,q\n" + rows), sigma=sigma, bound=bound, cell=cell)
    width, reach = cell or sigma / 64, bound or 38 * sigma
    edges = (np.arange(-math.ceil(reach / width) - 2, math.ceil((2.5 + reach) / width) + 3)) * width

    def chance(x: float) -> np.ndarray:
        u = np.clip(edges - x, -reach, reach) / sigma
        mass = np.where(u[:-1] > 0, ndtr(-u[:-1]) - ndtr(-u[1:]), ndtr(u[1:]) - ndtr(u[:-1]))
        return mass / (1 - 2 * ndtr(-reach / sigma))

    kernels = np.array([chance(x) for x in outcomes])
    a, b = p @ kernels, q @ kernels
    for eps in (-1.0, 0.0, 0.5, 2.0):
        expected = np.maximum(a - np.exp(eps) * b, 0).sum()
        assert float(np.exp(mechanism.pair().log_delta(eps))) == pytest.approx(expected, rel=1e-10)


@pytest.mark.slow
@given(st.floats(-0.5, 0.5), st.floats(0.02, 3.0), st.one_of(st.just(0.0), st.floats(0.5, 8.0)))
@example(0.5, 1 / 3, 0.5)
@settings(max_examples=30, deadline=None)
def test_the_kernel_is_accurate_to_its_far_tail(offset, cell, bound):
    """Cell chances of N(0, 1), cut at the bound, against 400-digit normal probabilities."""
    mechanism = Histogram("unread.csv", sigma=1.0, bound=bound, cell=cell)
    reach = bound or 37.0
    half = math.ceil(reach / cell) + 1
    kernel = mechanism._kernel(half, offset, cell)
    assert math.fsum(kernel) == pytest.approx(1.0, abs=1e-14)
    with mp.workdps(400):
        total = mp.erf(mp.mpf(reach) / mp.sqrt(2)) if bound else mp.mpf(1)
        for i in {half, half + half // 3, half // 2, 1}:
            low, high = ((mp.mpf(i - half + side) - mp.mpf(offset)) * mp.mpf(cell) for side in (0, 1))
            if bound:
                # an edge within 1e-8 cells of an end of the noise is that end
                ends = (mp.sign(v) * bound if abs(abs(v) - bound) < 1e-8 * cell else v for v in (low, high))
                low, high = (min(max(v, -mp.mpf(bound)), mp.mpf(bound)) for v in ends)
            exact = (mp.ncdf(high) - mp.ncdf(low)) / total
            assert kernel[i] == pytest.approx(float(exact), rel=1e-9, abs=1e-295)


def test_unbounded_noise_leaves_no_distinguishing_event_within_its_reach(write):
    shifted = Histogram(write("outcome,p,q\n0,0.5,0.4\n1,0.5,0.4\n3,0,0.2\n"), sigma=1.0).pair()
    assert shifted.mass_at_plus_infinity == shifted.mass_at_minus_infinity == 0.0
    apart = Histogram(write("outcome,p,q\n0,0.9,1\n90,0.1,0\n"), sigma=1.0).pair()
    assert apart.mass_at_plus_infinity == pytest.approx(0.1, rel=1e-12)


def test_wide_noise_with_a_narrow_bound_is_uniform_noise(write):
    """sigma 1000 times the bound: a flat density, so interior cells have no loss and the end cells an infinite one."""
    pair = Histogram(write("outcome,p,q\n0,0,1\n1,1,0\n"), sigma=5000.0, bound=5.0).pair()
    assert np.abs(pair.losses[1:-1]).max() < 1e-6
    assert pair.mass_at_plus_infinity == pytest.approx(1 / 10, rel=1e-6)


def test_a_histogram_has_two_directions_and_cannot_be_sampled(write):
    mechanism = Histogram(write("outcome,p,q\n0,0.5,0.4\n1,0.5,0.6\n"))
    process = Process((Step(mechanism, 3),))
    assert process.adjacency == "given-pair"
    assert len(process.directions()) == 2
    with pytest.raises(Unsupported, match="histogram"):
        Process((Step(mechanism, 3, Sampling("poisson", 0.1)),), "given-pair")


def test_a_changed_file_is_read_again(write):
    file = write("outcome,p,q\n0,0.5,0.4\n1,0.5,0.6\n")
    assert Histogram(file).pair().support[1] < 0.3
    write("outcome,p,q\n0,0.75,0.25\n1,0.25,0.75\n9,0,0\n")
    assert Histogram(file).pair().support[1] == pytest.approx(math.log(3))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "header"),
        ("\n\n", "header"),
        ("outcome,p,q\n", ":1:"),
        ("0,0.5,0.5\n1,0.5,0.5\n", ":1: .*header"),
        ("outcome,q,p\n0,1,1\n", ":1: .*header"),
        ("outcome,p,q,r\n0,1,1,1\n", ":1: .*header"),
        ("outcome,p,q\n0,1\n", ":2: 3 .* 2"),
        ("outcome,p,q\n0,0.5,1\n\n1,nan,0\n", ":4: .*'nan'"),
        ("outcome,p,q\n0,inf,1\n", ":2: "),
        ("outcome,p,q\n0,,1\n", ":2: .*''"),
        ("outcome,p,q\n0,0x1,1\n", ":2: "),
        ("outcome,p,q\n0,1_0,1\n", ":2: "),
        ("outcome,p,q\n0,1.5,1\n1,-0.5,0\n", ":2: .*1.5"),
        ("outcome,p,q\n0,1,1\n1,-1e-20,0\n", ":3: "),
        ("outcome,p,q\n0,0.5,1\n1,0.4999,0\n", "column p .*1e-09.*0.9999"),
        ("outcome,p,q\n0,0,1\n1,0,0\n", "column p"),
        ("outcome,p,q\nx,0.5,1\ny,0.25,0\nx,0.25,0\n", ":4: .*'x'.*line 2"),
        ("p,q\n0.1,0.2\n", "bin_width"),
        (b"\x00\x01\x02" * 50, "table.csv"),
        (b"\xff\xfe\x00outcome", "table.csv"),
        ('outcome,p,q\n"0,1,1\n', ":2: "),
        ("outcome,p,q\n" + "9" * 200_000 + ",1,1\n", ":2: "),
    ],
)
def test_a_bad_table_is_refused_with_its_line(write, text, shown):
    with pytest.raises(UsageError, match=shown) as error:
        Histogram(write(text)).pair()
    assert "table.csv" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "values", "shown"),
    [
        ("outcome,p,q\n0,1,1\n", {"bin_width": 0.1}, "bin_width"),
        ("p,q\n", {"bin_width": 0.1}, "column p"),
        ("p,q\n1,\n2,\n", {"bin_width": 0.1}, "column q"),
        ("p,q\n1,x\n", {"bin_width": 0.1}, ":2: "),
        ("p,q\n1e300,1\n", {"bin_width": 1e-10}, "bin_width 1e-10"),
        ("outcome,p,q\nyes,0.5,1\nno,0.5,0\n", {"sigma": 1.0}, ":2: .*'yes'"),
        ("outcome,p,q\n0,0.5,1\n1e9,0.5,0\n", {"sigma": 1.0}, "sigma or `cell="),
        ("outcome,p,q\n-1e308,0.5,1\n1e308,0.5,0\n", {"sigma": 1e-300}, "sigma or `cell="),
    ],
)
def test_a_table_that_does_not_fit_its_parameters_is_refused(write, text, values, shown):
    with pytest.raises(UsageError, match=shown):
        Histogram(write(text), **values).pair()


@pytest.mark.parametrize(
    "values",
    [{"bound": 1.0}, {"cell": 0.1}, {"sigma": -1.0}, {"sigma": math.nan}, {"sigma": 1e301}, {"bin_width": -1.0}],
)
def test_parameters_out_of_range_are_refused(values):
    with pytest.raises(UsageError, match=r"^histogram: "):
        Histogram("any.csv", **values)


def test_an_unreadable_file_is_a_missing_resource(tmp_path):
    with pytest.raises(MissingResource, match="absent"):
        Histogram(str(tmp_path / "absent.csv")).pair()
    with pytest.raises(MissingResource, match="'file'"):
        Histogram(str(tmp_path)).pair()
    with pytest.raises(UsageError, match="file"):
        Histogram("a\0b").pair()
    with pytest.raises(UsageError, match="file"):
        Histogram("")


def test_a_table_of_more_than_100_mb_is_refused_unread(tmp_path):
    file = tmp_path / "big.csv"
    with file.open("wb") as stream:
        stream.truncate(101 * 2**20)  # sparse: takes no room on disk
    with pytest.raises(UsageError, match=r"100 MB.*101 MB"):
        Histogram(str(file)).pair()
