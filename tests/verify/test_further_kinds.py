"""Every kind of step that the verifier covers: figures of sums over grids are proved, changed numbers are refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from flint import ctx

from tests import nightly
from wpriv import FixedSize, Gauss, Poisson, Process, Step, budget
from wpriv.accounting import certificates
from wpriv.core.kinds import Allocation, Sampling
from wpriv.errors import Unsupported
from wpriv.verify import allocation, certificate, lattice, pairs, prove

Z = np.arange(-12, 16, 0.0005)


def density(mean: float) -> np.ndarray:
    return np.exp(-((Z - mean) ** 2) / 2) / np.sqrt(2 * np.pi) * 0.0005


def group_delta(eps: float) -> float:
    """Three records at rate 0.1, sigma 1: the mixture of N(j, 1) against N(0, 1), in the worse order."""
    person = sum(w * density(j) for j, w in enumerate([0.729, 0.243, 0.027, 0.001]))
    orders = (person, density(0)), (density(0), person)
    return max(float(np.maximum(p - np.exp(eps) * q, 0).sum()) for p, q in orders)


def replaced_delta(eps: float) -> float:
    """One record of norm 1/2 replaced at rate 0.3, sigma 1/2."""
    p, q = (0.7 * density(0) + 0.3 * density(mean) for mean in (1, -1))
    return float(np.maximum(p - np.exp(eps) * q, 0).sum())


def batch_delta(eps: float) -> float:
    """Ten records at rate 0.1, of which at most nine are kept, sigma 1; a batch is cut with probability 1e-9."""
    orders = (0.9 * density(0) + 0.1 * density(1), density(0)), (density(0), 0.9 * density(0) + 0.1 * density(1))
    return max(float(np.maximum(p - np.exp(eps) * q, 0).sum()) for p, q in orders)


def answers(content: dict, thorough: bool = True) -> list[str]:
    return [proof.verdict for proof in prove.verify(certificate.read(json.dumps(content)), thorough)]


GAUSS = {"mech": "gauss", "sigma": 1.0, "sensitivity": 1.0, "n": 1, "sampling": "poisson"}
KINDS = {
    "group": (group_delta, {**GAUSS, "rate": 0.1}, {"group": 3}),
    "replaced": (
        replaced_delta,
        {**GAUSS, "sensitivity": 2.0, "rate": 0.3},
        {"adjacency": "replace-one", "premises": [certificate.HALF]},
    ),
    "largest batch": (batch_delta, {**GAUSS, "rate": 0.1, "max_batch": 9}, {"records": 10}),
}


def content_of(kind: str, eps: float, low: float, high: float, **change: float) -> dict:
    _, step, keys = KINDS[kind]
    return {
        **{"schema": "wpriv.certificate/1", "notion": "approximate-dp", "asked": "delta", "adjacency": "add-remove"},
        **{"epsilon_lower": eps, "epsilon_upper": eps, "delta_lower": low, "delta_upper": high},
        **{"process": [{**step, **change}], **keys},
    }


@pytest.mark.parametrize("eps", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_one_step_is_bracketed_around_a_sum_over_a_grid(kind, eps):
    truth = KINDS[kind][0](eps)
    low, high = truth * (1 - 1e-5), truth * (1 + 1e-5)
    assert answers(content_of(kind, eps, low, high)) == ["proved", "proved"]
    assert answers(content_of(kind, eps, high, high))[1] == "refuted"
    assert answers(content_of(kind, eps, low, low))[0] == "refuted"


SMALL = {
    "none": Process((Step(Gauss(2.0), 3),)),
    "poisson": Process((Step(Gauss(1.0), 3, Poisson(0.2)),)),
    "fixed": Process((Step(Gauss(1.0), 3, FixedSize(0.2)),)),
    "group": Process((Step(Gauss(2.0), 3, Poisson(0.2)),), group=2),
    "replaced": Process((Step(Gauss(1.0), 3, Poisson(0.2)),), adjacency="replace-one"),
    "largest batch": Process((Step(Gauss(1.0), 3, Sampling("poisson", 0.2, 80)),), records=200),
    "allocation": Process((Step(Gauss(1.0), 10, Allocation(0.2)),)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", nightly.sharded(SMALL, 3))
def test_every_number_that_is_changed_to_the_unsafe_side_is_refused(kind, monkeypatch):
    """Numbers are changed by about one unit of their second digit, ends by a hundredth, and passes to whole passes."""
    monkeypatch.setattr(allocation, "WORK", 10**5)
    content = certificates.of_guarantee(budget(SMALL[kind], delta=1e-3, tol=1e-4), 1e-3)
    assert answers(content) == ["proved", "proved"]
    step = content["process"][0]
    changes = [{"sigma": step["sigma"] - 0.1}, {"sensitivity": 1.1}, {"n": 15 if kind == "allocation" else 4}]
    changes += [{"rate": 0.5 if kind == "allocation" else 0.22}] if step["sampling"] != "none" else []
    for change in changes:
        assert answers({**content, "process": [{**step, **change}]})[0] == "refuted", change
    low, high = content["epsilon_lower"], content["epsilon_upper"]
    assert answers({**content, "epsilon_lower": low * 0.98, "epsilon_upper": low * 0.99})[0] == "refuted"
    assert answers({**content, "epsilon_lower": high * 1.01, "epsilon_upper": high * 1.02})[1] == "refuted"
    # the ends of several batches of a fixed size, of which the lower one is that of two data sets, lie apart
    less, more = (5e-4, 2e-3) if kind == "fixed" else (9.5e-4, 1.05e-3)
    assert answers({**content, "delta_lower": less, "delta_upper": less})[0] == "refuted"
    assert answers({**content, "delta_lower": more, "delta_upper": more})[1] == "refuted"
    if kind == "group":
        assert answers({**content, "group": 3})[0] == "refuted"


def test_the_pairs_of_a_small_largest_batch_enclose_poisson_sampling():
    """Where batches are often cut: from above that of two records, from below that of a lower rate."""
    claim = certificate.read(json.dumps(content_of("largest batch", 0.5, 0.01, 0.1, max_batch=2)))
    above, below = (float(prove.closed_form(prove.composed(claim, side), pairs.arb("0.5"))) for side in (True, False))
    assert below < 0.9 * batch_delta(0.5) < 1.1 * batch_delta(0.5) < above


@pytest.mark.parametrize("width", [0.5, 0.05, 0.004])
@pytest.mark.parametrize("rate", [0.9, 0.1, 1e-4])
def test_the_lattice_encloses_the_masses_and_affinities_of_a_pair(rate, width):
    """Masses add up to 1, and to divide outcomes lowers the sum of sqrt(pq), to merge them raises it."""
    base = pairs.base_pair("laplace", {"scale": pairs.Fraction(2), "sensitivity": pairs.Fraction(1)})
    pair, h = pairs.poisson(base, pairs.ball(pairs.Fraction(rate))), pairs.arb(width)

    def sums(cut: lattice.Outcomes, masses: list) -> tuple[float, float]:
        rows = [(float(cut.offset + (cut.first + j) * h), float(mass)) for j, mass in enumerate(masses)]
        return math.fsum(p for _, p in rows), math.fsum(p * math.exp(-loss / 2) for loss, p in rows)

    above = lattice.outcomes(pair, h, 1e-30, lattice.heaviest(pair))
    masses, infinite = lattice.dominating(above)
    mass, affinity = sums(above, masses)
    below, merged = lattice.best_dominated(pair, h, 1e-30)
    least, largest = sums(below, merged)
    middle = math.fsum(math.sqrt(max(float(p * q), 0)) for p, q in above.masses)
    assert mass + float(infinite) == pytest.approx(1, abs=1e-12)
    assert least == pytest.approx(1, abs=1e-12)
    assert affinity <= largest
    assert affinity <= middle + 1e-12


BASES = {
    "laplace": {"scale": "2", "sensitivity": "1"},
    "gauss": {"sigma": "1", "sensitivity": "1"},
    "discrete-laplace": {"scale": "3", "sensitivity": "2"},
    "randomized-response": {"eps0": "0.5", "delta0": "0.001"},
}


def step_pair(mech: str, sampled: bool) -> pairs.Pair:
    ctx.prec = pairs.BITS
    base = pairs.base_pair(mech, {name: pairs.Fraction(value) for name, value in BASES[mech].items()})
    return pairs.poisson(base, pairs.ball(pairs.Fraction(1, 5))) if sampled else base


def profile_of(cut: lattice.Outcomes, masses: list, x: float) -> float:
    points = [float(cut.offset + (cut.first + j) * cut.h) for j in range(len(masses))]
    return math.fsum(float(p) * -math.expm1(x - loss) for p, loss in zip(masses, points, strict=True) if loss > x)


@pytest.mark.parametrize("width", [0.3, 0.07, 0.01])
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("mech", BASES)
def test_the_profiles_of_both_lattices_enclose_that_of_the_step(mech, sampled, width):
    """At losses between and at the points, in both orders; the profile of one step is in closed form."""
    one = step_pair(mech, sampled)
    for pair in (one, one.reversed()):
        cut = lattice.outcomes(pair, pairs.arb(width), 1e-25, lattice.heaviest(pair))
        masses, infinite = lattice.dominating(cut)
        below, merged = lattice.best_dominated(pair, pairs.arb(width), 1e-25)
        for k in range(-20, 60):
            x = k * 0.037
            truth = float(prove.closed_form([(pair, 1)], pairs.arb(x)))
            above = profile_of(cut, masses, x) + float(infinite + pair.infinite)
            assert profile_of(below, merged, x) + float(pair.infinite) <= truth + 1e-14
            assert truth <= above + 1e-14


@pytest.mark.parametrize("order", [0, 1])
def test_the_errors_of_the_lattice_decrease_with_the_square_of_its_spacing(order):
    one = step_pair("gauss", True)
    pair = one.reversed() if order else one
    truth, errors = float(prove.closed_form([(pair, 1)], pairs.arb(0.1))), []
    for width in (0.04, 0.008):
        cut = lattice.outcomes(pair, pairs.arb(width), 1e-25, pairs.ZERO)
        below, merged = lattice.best_dominated(pair, pairs.arb(width), 1e-25)
        masses, _ = lattice.dominating(cut)
        errors.append((profile_of(cut, masses, 0.1) - truth, truth - profile_of(below, merged, 0.1)))
    for coarse, fine in zip(*errors, strict=True):
        assert 0 < fine < coarse / 10


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"process": [{**GAUSS, "n": 10, "sampling": "shuffle", "rate": 0.1}]}, "shuffle"),
        ({"process": [{**GAUSS, "n": 10, "sampling": "allocation", "rate": 0.1}], "group": 2}, "allocation"),
        ({"process": [{**GAUSS, "rate": 0.1}], "group": 30}, "30 records"),
        ({"process": [{**GAUSS, "rate": 0.1}], "adjacency": "replace-one", "group": 2}, "replace-one"),
        ({"process": [{**GAUSS, "rate": 0.1, "max_batch": 5}]}, "largest batch"),
        ({"process": [{**GAUSS, "rate": 0.1, "sampling": "fixed"}], "adjacency": "replace-one", "group": 2}, "fixed"),
        ({"process": [{"mech": "dp", "eps0": 1, "delta0": 0, "n": 1, "sampling": "none"}], "group": 2}, "2 records"),
    ],
)
def test_what_is_not_proved_is_refused_with_what_to_do(change, word):
    with pytest.raises(Unsupported, match="without a certificate") as error:
        certificate.read(json.dumps({**content_of("group", 1.0, 0.1, 0.2), "group": 1, **change}))
    assert word in str(error.value)


@pytest.mark.slow
def test_a_mix_of_forty_kinds_of_steps_is_proved_and_a_wrong_end_refused():
    """Gaussian noise of sigma 2.00, 2.01, ... under Poisson sampling; the figure is that of the accountant."""
    steps = tuple(Step(Gauss(2 + i / 100), 3, Poisson(0.02)) for i in range(40))
    content = certificates.of_guarantee(budget(Process(steps), delta=1e-5), 1e-3)
    assert len(content["process"]) == 40
    low = content["epsilon_lower"]
    wrong = {**content, "epsilon_lower": low * 0.98, "epsilon_upper": low * 0.99}
    claim, other = (certificate.read(json.dumps(each)) for each in (content, wrong))
    job = prove.Job(claim)
    assert [proof.verdict for proof in job.proofs(claim, thorough=False)] == ["proved", "proved"]
    assert job.proofs(other, thorough=False)[0].verdict != "proved"
