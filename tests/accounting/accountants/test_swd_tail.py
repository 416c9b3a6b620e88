"""The published accountant of projections: tail bounds, Proposition 2 (golden values), the noise of Table 4."""

from __future__ import annotations

import math

import pytest

from wpriv.accounting.accountants import pld
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError
from wpriv.papers import projected_length
from wpriv.papers.accountants import swd_tail
from wpriv.papers.mechanisms.projection import Projection

ONE = Process((Step(Projection(d=784, k=200, sigma=4.74)),))


@pytest.mark.parametrize(
    ("bound", "k", "d", "log_inverse", "value"),
    [
        (projected_length.bernstein, 200, 784, math.log(1e5), 8.0525632266096231303208298168225),
        (projected_length.bernstein_root, 200, 784, math.log(1e5), 7.9225426308940797649744243821273),
        (projected_length.clt, 200, 784, math.log(1e5), 0.36369244663715413616067761452265),
        (projected_length.bernstein, 2000, 8192, math.log(1e50), 77.114107121852948663737001523703),
        (projected_length.bernstein_root, 2000, 8192, math.log(1e50), 76.987786585279002981396268822661),
        (projected_length.clt, 2000, 8192, math.log(1e50), 0.35941092319760123635396277162854),
    ],
)
def test_the_tail_bounds_are_the_golden_ones(bound, k, d, log_inverse, value):
    """Golden 001-wbern-*, 001-wroot-*, 001-wclt-*: closed forms in mpmath."""
    assert bound(k, d, log_inverse) == pytest.approx(value, rel=1e-12)


def test_proposition_2_at_its_best_order_is_the_golden_eps():
    """Golden 001-prop2-1; and delta at that eps is the delta it came from."""
    curve = swd_tail.account(ONE)
    assert curve.claim == "upper-bound"
    assert curve.at(delta=1e-5).epsilon.safe == pytest.approx(3.2318590348013219257533547794787, rel=1e-12)
    assert curve.at(eps=3.2318590348013219).delta.safe == pytest.approx(1e-5, rel=1e-6)


@pytest.mark.parametrize(
    ("d", "k", "records", "batch", "epochs", "delta", "sigmas"),
    [
        (784, 200, 10000, 128, 100, 1e-5, (4.386, 4.793, 0.911)),
        (784, 200, 7438, 128, 100, 1e-5, (4.986, 5.448, 1.036)),
        (100, 1000, 55387, 128, 50, 1e-6, (3.142, 6.513, 2.333)),
        (50, 100, 497, 32, 50, 1e-3, (5.646, 8.343, 3.372)),
        (784, 1000, 60000, 100, 100, 1e-5, (2.150, 2.954, 0.853)),
        (8192, 2000, 162000, 256, 100, 1e-6, (2.214, 2.408, 0.373)),
    ],
)
def test_the_noise_of_table_4_has_eps_10(d, k, records, batch, epochs, delta, sigmas):
    """Oracle: the sigmas that the authors' program, the paper's formula and the CLT give at eps 10, to 3 digits."""
    n, sampling = (records // batch + 1) * epochs, Sampling("fixed", batch / records)
    for sigma, w in zip(sigmas, ("bernstein", "bernstein-code", "clt"), strict=True):
        curve = swd_tail.account(Process((Step(Projection(d=d, k=k, sigma=sigma), n, sampling),)), w=w)
        assert curve.claim == "as-published"
        assert curve.at(delta=delta).epsilon.safe == pytest.approx(10, rel=1e-2)


def test_the_claim_depends_on_the_tail_bound_and_the_charge():
    many = Process((Step(Projection(d=784, k=200, sigma=4.74), 10),))
    assert swd_tail.account(ONE, w="clt").claim == "approximate"
    assert swd_tail.account(many).claim == "as-published"
    assert swd_tail.account(many, charge="every").claim == "upper-bound"
    assert swd_tail.account(many, charge="every").epsilon(delta=1e-5) > swd_tail.account(many).epsilon(delta=1e-5)
    assert swd_tail.account(many, w="clt").claim == "as-published"


@pytest.mark.parametrize("w", ["bernstein", "bernstein-code", "root", "quantile"])
def test_a_rigorous_tail_bound_lies_above_the_certified_eps(w):
    certified = pld.account(ONE).at(delta=1e-5).epsilon
    assert swd_tail.account(ONE, w=w).at(delta=1e-5).epsilon.safe > certified.upper


def test_other_mechanisms_and_unknown_options_are_refused():
    with pytest.raises(Unsupported, match="gauss"):
        swd_tail.account(Process((Step(Gauss(1.0)),)))
    with pytest.raises(UsageError, match="bernstein-code"):
        swd_tail.account(ONE, w="hoeffding")
    with pytest.raises(UsageError, match="once, every"):
        swd_tail.account(ONE, charge="never")
