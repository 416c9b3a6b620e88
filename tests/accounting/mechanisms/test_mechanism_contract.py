"""The contract of every loss pair, sampled or not; the oracle is the definition of the hockey-stick divergence.

Every mechanism is covered: one without an example in the table below fails.
"""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import numpy as np
import pytest

import wpriv
from wpriv.core import registry
from wpriv.core.kinds import Sampling
from wpriv.core.loss_pair import LossPair
from wpriv.core.process import Process, Step
from wpriv.core.subsampled_pairs import fixed, poisson
from wpriv.errors import Unsupported

EXAMPLES = {
    "gauss": [{"sigma": 1.3}, {"sigma": 80.0}],
    "laplace": [{"scale": 0.7}, {"scale": 1e4}, {"scale": 0.05}],
    "randomized-response": [{"eps0": 1.2}, {"eps0": 0.01, "delta0": 0.2}],
    "dp": [{"eps0": 1.2, "delta0": 1e-5}, {"eps0": 0.0, "delta0": 0.01}],
    "exponential": [{"eps0": 1e-3}, {"eps0": 0.5}, {"eps0": 30.0}],
    "permute-and-flip": [{"eps0": 1e-3}, {"eps0": 0.5}, {"eps0": 30.0}],
    "noisy-max": [
        {"scale": 0.7},
        {"scale": 40.0, "distribution": "exponential"},
        {"scale": 3.0, "distribution": "gumbel", "monotone": True},
        {"scale": 3.0, "distribution": "gauss", "candidates": 9},
    ],
    "above-threshold": [{"threshold_scale": 1.0, "query_scale": 3.0}, {"threshold_scale": 50.0, "query_scale": 90.0}],
    "top-k": [{"scale": 2.0, "k": 3, "distribution": "laplace"}, {"scale": 9.0, "k": 2}],
    "gdp": [{"mu": 0.5}],
    "uniform": [{"outcomes": 10}, {"outcomes": 100_000, "sensitivity": 3}],
    "truncated-gauss": [{"sigma": 1.0, "bound": 2.5}, {"sigma": 0.2, "bound": 0.7}, {"sigma": 90.0, "bound": 400.0}],
    "truncated-laplace": [
        {"scale": 1.0, "bound": 3.0},
        {"scale": 1.0, "bound": 0.8},
        {"scale": 500.0, "bound": 4000.0},
    ],
    "discrete-gauss": [{"sigma": 0.8}, {"sigma": 12.0, "sensitivity": 3}, {"sigma": 2e4}],
    "discrete-laplace": [{"scale": 0.9}, {"scale": 7.0, "sensitivity": 5}],
    "wgrad": [{"sigma": 0.9, "bound": 1.0, "lipschitz_x": 1.0, "size_x": 8, "size_z": 10, "alpha": 0.5, "clip": 5.0}],
    "gauss-threshold": [
        {"sigma": 2.0, "threshold": 9.0},
        {"sigma": 3.0, "threshold": 14.0, "keys": 4},
        {"sigma": 3.0, "threshold": 2.0, "keys": 2},
    ],
    "laplace-threshold": [
        {"scale": 1.0, "threshold": 12.0},
        {"scale": 2.0, "threshold": 1.5},
        {"scale": 2.0, "threshold": 20.0, "keys": 3},
    ],
    "matrix-gauss": [{"sigma": 3.0, "strategy": "prefix:n=20", "separation": 7}],
    "local-gauss": [{"sigma": 2.0, "radius": 1.0}, {"sigma": 0.5, "radius": 1.0, "nonnegative": 1}],
    "local-laplace": [{"scale": 2.0, "radius": 1.0}],
    "projection": [
        {"d": 50, "k": 12, "sigma": 0.7},
        {"d": 3, "k": 1, "sigma": 2.0},
        {"d": 784, "k": 200, "sigma": 30.0},
    ],
    "histogram": [{"file": "table"}, {"file": "table", "sigma": 0.8}, {"file": "table", "sigma": 0.8, "bound": 1.0}],
}
TABLE = "outcome,p,q\n0,0.5,0.4\n1,0.3,0.35\n2,0.2,0\n3,0,0.25\n"
# mechanisms of which only bounds of the Renyi divergences are known
BOUNDED = {"zcdp": [{"rho": 2.63}, {"rho": 1e-6}], "rdp-curve": [{"file": "curve"}]}
CURVE = "order,epsilon\n16,3\n1.5,0.3\n2,0.4\n4,0.9\n"
CASES = [(name, i) for name, examples in EXAMPLES.items() for i in range(len(examples))]
ASYMMETRIC = ("histogram", "gauss-threshold", "laplace-threshold")  # fixed-size sampling needs a symmetric pair
VARIANTS = [
    (c, v) for c in CASES for v in ("as it is", "poisson", "fixed") if not (v == "fixed" and c[0] in ASYMMETRIC)
]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], LossPair]:
    file = tmp_path_factory.mktemp("histogram") / "table.csv"
    file.write_text(TABLE)
    made = {}
    for name, i in CASES:
        values = {k: str(file) if v == "table" else v for k, v in EXAMPLES[name][i].items()}
        found = registry.mechanism(name)(**values).pair()
        # of a sandwich the dominating pair is checked, whose tails and divergences belong to one distribution
        made[name, i] = (found.sandwich(1e-3) or (found, found))[1]
    return made


@pytest.fixture(params=VARIANTS, ids=lambda p: f"{p[0][0]}-{p[0][1]}-{p[1]}")
def pair(request: pytest.FixtureRequest, pairs: dict[tuple[str, int], LossPair]) -> LossPair:
    case, variant = request.param
    sample = {"as it is": lambda base, _: base, "poisson": poisson, "fixed": fixed}[variant]
    assert pairs[case].symmetric == (case[0] not in ASYMMETRIC)
    return sample(pairs[case], 0.3)


def grid(pair: LossPair) -> np.ndarray:
    """Losses over the support and beyond it, and on both sides of every atom (of at most a hundred)."""
    reach = min(max(abs(v) for v in pair.support), 60.0) or 1.0
    if not np.isfinite(pair.support[1]):  # unbounded: reach as far as the loss is at all likely
        ladder = np.geomspace(1e-6, 60.0, 200)
        reach = ladder[np.searchsorted(-pair.tails(ladder).sf_q, 200.0).clip(0, 199)]
    atoms = pair.atoms[:: max(1, pair.atoms.size // 100)]
    around = np.concatenate([np.nextafter(atoms, -np.inf), atoms, np.nextafter(atoms, np.inf)])
    return np.unique(np.concatenate([np.linspace(-1.2 * reach, 1.2 * reach, 201), around, [0.0]]))


def both_orders(pair: LossPair) -> list[LossPair]:
    return [pair, pair.reverse()]


def test_every_mechanism_file_has_an_example():
    homes = [Path(wpriv.__file__).parent.joinpath(*folder.split(".")) for folder in registry.FOLDERS["mechanisms"]]
    files = {f.stem.replace("_", "-") for home in homes for f in home.rglob("*.py") if not f.stem.startswith("_")}
    assert files == set(registry.names("mechanisms"))
    examples = set(EXAMPLES) | set(BOUNDED)
    assert files <= examples, f"no example for {sorted(files - examples)}"
    assert len(files) >= 18


@pytest.mark.parametrize(("name", "values"), [(name, values) for name in BOUNDED for values in BOUNDED[name]])
def test_a_bound_of_the_divergences_is_one_that_a_pair_can_have(name, values, tmp_path):
    """(alpha - 1) D_alpha is convex in alpha and 0 at alpha = 1; D_alpha does not fall (van Erven, Harremoes 2014)."""
    file = tmp_path / "curve.csv"
    file.write_text(CURVE)
    mechanism = registry.mechanism(name)(**{k: str(file) if v == "curve" else v for k, v in values.items()})
    with pytest.raises(Unsupported, match="rdp"):
        mechanism.pair()
    with pytest.raises(Unsupported, match="do not determine those"):
        Process((Step(mechanism, 1, Sampling("poisson", 0.1)),))
    bound = mechanism.renyi_bound()
    assert bound == mechanism.renyi_bound()
    assert bound.symmetric
    orders = np.linspace(1.001, 16, 2000)
    divergence = bound.renyi(orders)
    scaled = np.concatenate([[0.0], (orders - 1) * divergence])
    slopes = np.diff(scaled) / np.diff(np.concatenate([[1.0], orders]))
    assert np.all(divergence >= 0)
    assert np.all(np.diff(divergence) >= -1e-12)
    assert np.all(np.diff(slopes) >= -1e-9)


@pytest.mark.parametrize(
    ("name", "values"),
    [(n, e) for n in ("gauss", "laplace", "truncated-gauss", "truncated-laplace") for e in EXAMPLES[n]],
)
def test_pairs_with_equal_parameters_are_equal(name, values):
    one, two = (registry.mechanism(name)(**values).pair() for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    assert one != registry.mechanism(name)(**values, sensitivity=1.01).pair()


@pytest.mark.parametrize("name", sorted({**EXAMPLES, **BOUNDED}))
def test_a_mechanism_names_its_source_and_a_noise_field_it_has(name):
    cls = registry.mechanism(name)
    assert cls.source
    fields = dataclasses.fields(cls)
    assert cls.noise is None or cls.noise in [f.name for f in fields]
    assert all(f.metadata.get("help") for f in fields)


def test_tails_sum_to_one_and_are_monotone(pair):
    for p in both_orders(pair):
        eps = grid(p)
        tails = p.tails(eps)
        assert np.all(np.isfinite(eps))
        for above, below in ((tails.sf_p, tails.cdf_p), (tails.sf_q, tails.cdf_q)):
            np.testing.assert_allclose(np.exp(above) + np.exp(below), 1.0, rtol=0, atol=2e-13)
            assert np.all(above[1:] <= above[:-1] * (1 - 1e-13))
            assert np.all(below[:-1] <= below[1:] * (1 - 1e-13))


def test_tails_beyond_the_support_are_the_masses_at_infinity(pair):
    for p in both_orders(pair):
        ends = p.tails(np.array([-np.inf, np.inf]))
        np.testing.assert_allclose(np.exp(ends.sf_p), [1.0, p.mass_at_plus_infinity], rtol=1e-12, atol=1e-300)
        np.testing.assert_allclose(np.exp(ends.cdf_q), [p.mass_at_minus_infinity, 1.0], rtol=1e-12, atol=1e-300)
        inside = [v for v in p.support if np.isfinite(v)]
        if inside:
            edge = p.tails(np.array([np.nextafter(p.support[0], -np.inf), p.support[1]]))
            np.testing.assert_allclose(np.exp(edge.sf_p), [1.0, p.mass_at_plus_infinity], rtol=1e-12, atol=1e-13)
            np.testing.assert_allclose(np.exp(edge.cdf_q), [p.mass_at_minus_infinity, 1.0], rtol=1e-12, atol=1e-13)
        assert np.all((p.atoms >= p.support[0]) & (p.atoms <= p.support[1]))
        assert np.all(np.diff(p.atoms) >= 0)


@pytest.mark.slow
def test_the_profile_is_convex_decreasing_and_between_its_bounds(pair):
    for p in both_orders(pair):
        eps = grid(p)
        f = np.exp(p.log_delta(eps))
        assert np.all(np.isfinite(f))
        assert np.all(f <= 1)
        assert np.all(f >= np.maximum(p.mass_at_plus_infinity, -np.expm1(eps)) * (1 - 1e-12))
        assert np.all(np.diff(f) <= 1e-14)
        wide = np.linspace(eps[0], eps[-1], 101)
        chord = np.exp(p.log_delta(wide))
        assert np.all(np.diff(np.diff(chord) / np.diff(np.exp(wide))) >= -1e-13 / np.diff(np.exp(wide))[1:])
        np.testing.assert_allclose(
            np.exp(p.log_delta(np.array([-np.inf, -800.0, np.inf]))), [1.0, 1.0, p.mass_at_plus_infinity], rtol=1e-12
        )


@pytest.mark.slow
def test_the_profile_is_the_tails_and_its_slope_is_the_tail_of_q(pair):
    for p in both_orders(pair):
        eps = grid(p)
        f, tails = np.exp(p.log_delta(eps)), p.tails(eps)
        np.testing.assert_allclose(f, np.exp(tails.sf_p) - np.exp(eps + tails.sf_q), rtol=0, atol=1e-12)
        width = np.exp(eps[:-1]) * np.expm1(np.diff(eps))
        fall, noise = -np.diff(f), 1e-14 + 1e-12 * width
        assert np.all(fall <= np.exp(tails.sf_q[:-1]) * width + noise)
        assert np.all(fall >= np.exp(tails.sf_q[1:]) * width - noise)


def test_every_cell_has_a_likelihood_ratio_between_its_losses(pair):
    """P(a < L <= b) lies between e^a and e^b times Q(a < L <= b): the loss is what it says."""
    for p in both_orders(pair):
        eps = grid(p)
        tails = p.tails(eps)
        p_mass, q_mass = -np.diff(np.exp(tails.sf_p)), -np.diff(np.exp(tails.sf_q))
        noise = 1e-13 * (1 + np.exp(np.clip(eps, -700, 700)))
        assert np.all(p_mass >= np.exp(eps[:-1]) * q_mass - noise[1:])
        assert np.all(p_mass <= np.exp(eps[1:]) * q_mass + noise[1:])


def test_atoms_carry_their_mass_on_the_lower_side(pair):
    for p in both_orders(pair):
        atoms = p.atoms[:: max(1, p.atoms.size // 100)]
        at, before = p.tails(atoms), p.tails(np.nextafter(atoms, -np.inf))
        p_mass, q_mass = np.exp(before.sf_p) - np.exp(at.sf_p), np.exp(before.sf_q) - np.exp(at.sf_q)
        heavy = (p_mass > 1e-3) & (q_mass > 1e-3)
        np.testing.assert_allclose(np.log(p_mass[heavy] / q_mass[heavy]), atoms[heavy], atol=1e-9)


@pytest.mark.slow
def test_reversing_mirrors_the_profile_and_is_an_involution(pair):
    """H_t(Q||P) = 1 - t + t H_{1/t}(P||Q)."""
    eps = grid(pair)
    reverse = pair.reverse()
    expected = -np.expm1(eps) + np.exp(eps + pair.log_delta(-eps))
    np.testing.assert_allclose(np.exp(reverse.log_delta(eps)), expected, rtol=1e-11, atol=1e-13 * np.exp(max(eps)))
    for again, tail in zip(reverse.reverse().tails(eps), pair.tails(eps), strict=True):
        np.testing.assert_allclose(again, tail, rtol=1e-13, atol=1e-13)
    if pair.symmetric:
        np.testing.assert_allclose(np.exp(pair.log_delta(eps)), expected, rtol=1e-11, atol=1e-13 * np.exp(max(eps)))
        assert pair.mass_at_plus_infinity == pair.mass_at_minus_infinity
        assert pair.support[0] == -pair.support[1]


@pytest.mark.slow
def test_renyi_lies_between_the_sums_over_cells(pair):
    """E_P[e^{sL}] between the sums of P(a < L <= b) e^{sa} and e^{sb}; skipped where the pair offers no closed form."""
    orders = np.array([1.01, 1.5, 2.0, 4.0])
    found = pair.renyi(orders)
    if found is None:
        return
    if pair.mass_at_plus_infinity:
        assert np.all(found == np.inf)
        return
    low, high = np.clip(pair.support, -60.0, 60.0)
    eps = np.unique(np.concatenate([np.linspace(low - 1e-9, high, 200_001), pair.atoms]))
    tails = pair.tails(eps)
    mass = np.where(eps[1:] < 0, np.diff(np.exp(tails.cdf_p)), -np.diff(np.exp(tails.sf_p)))
    for alpha, value in zip(orders, found, strict=True):
        s, target = alpha - 1, np.expm1((alpha - 1) * value)
        low, high = float(mass @ np.expm1(s * eps[:-1])), float(mass @ np.expm1(s * eps[1:]))
        slack = 1e-12 + 1e-12 * abs(high)
        assert low - slack <= target <= high + slack


@pytest.mark.parametrize("name", registry.names("mechanisms"))
def test_help_says_what_each_parameter_is_and_what_is_refused(name):
    cls = registry.mechanism(name)
    text = inspect.getdoc(cls)
    arguments = text.partition("\nArgs:\n")[2].partition("\nRaises:\n")
    assert "UsageError" in arguments[2]
    for each in dataclasses.fields(cls):
        assert f"    {each.name}: {each.metadata['help']}" in arguments[0]
