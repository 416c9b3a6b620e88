"""The order of two processes: known orders, more steps are never more private, and what is refused."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wpriv
from wpriv.accounting.claims.order import privacy_order
from wpriv.accounting.claims.verify_claim import described
from wpriv.errors import Unsupported, UsageError

MIRROR = {"dominates": "dominated", "dominated": "dominates", "equal": "equal", "crosses": "crosses"}


def order(a, b, **more):
    return privacy_order(described(a).process, described(b).process, **more)


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ("gauss sigma=4", "gauss sigma=3", "dominates"),
        # mu = 1 of both
        ("gauss sigma=4 n=16", "gauss sigma=2 n=4", "equal"),
        ("gauss sigma=3 + gauss sigma=4", "gauss sigma=2.4", "equal"),  # 1/9 + 1/16 = 1/2.4^2
        ("laplace scale=1", "laplace scale=2", "dominated"),
        # Kairouz, Oh, Viswanath 2015
        ("laplace scale=1", "randomized-response eps0=1", "dominates"),
        ("randomized-response eps0=1", "dp eps0=1", "equal"),
        ("gauss sigma=1", "laplace scale=1", "crosses"),
    ],
)
def test_known_orders(a, b, verdict):
    assert order(a, b).verdict == verdict
    assert order(b, a).verdict == MIRROR[verdict]


@settings(deadline=None, max_examples=25)
@given(st.floats(0.3, 5), st.floats(0.3, 5), st.integers(1, 9), st.integers(1, 9))
def test_gaussian_processes_are_ordered_by_mu_at_every_eps(first, second, n, m):
    result = order(f"gauss sigma={first} n={n}", f"gauss sigma={second} n={m}")
    mus = math.sqrt(n) / first, math.sqrt(m) / second
    expected = "equal" if math.isclose(*mus, rel_tol=1e-12) else "dominates" if mus[0] < mus[1] else "dominated"
    assert (result.verdict, result.top) == (expected, math.inf)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["gauss sigma=2 sampling=poisson rate=0.1", "laplace scale=3"])
def test_more_steps_are_less_private_in_both_orders_of_the_neighbours(step):
    result = order(f"{step} n=1", f"{step} n=2")
    assert result.verdict == "dominates"
    assert all(part.verdict == "dominates" for part in result.orders.values())


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, pytest.param(5, marks=pytest.mark.nightly)])
def test_sampling_is_more_private_than_none(n):
    result = order(f"gauss sigma=2 n={n} sampling=poisson rate=0.2", f"gauss sigma=2 n={n}", eps=3.0)
    assert (result.verdict, result.top) == ("dominates", 3.0)


def test_different_neighbours_are_compared_with_a_warning():
    result = order("laplace scale=2 adjacency=replace-one", "laplace scale=1")
    assert result.verdict == "dominates"
    assert any("replace-one" in line for line in result.warnings)


def test_release_known_by_its_guarantee_alone_is_compared_with_a_warning():
    # a Laplace mechanism is one of the releases that are 1-DP, so that neither is more private for certain
    result = order("laplace scale=1", "dp eps0=1")
    assert result.verdict == "dominates"
    assert [line for line in result.warnings if "guarantee of dp" in line and "B may be more private" in line]
    assert not [line for line in result.warnings if "A may be" in line]


def test_several_steps_of_fixed_size_are_compared_with_a_warning():
    one, several = (f"gauss sigma=2 sampling=fixed rate=0.1 n={n}" for n in (1, 2))
    result = order(one, several)
    assert [line for line in result.warnings if "bounds" in line and "of B" in line]
    assert not [line for line in result.warnings if "of A" in line]


def test_a_process_without_a_lower_end_has_no_order():
    with pytest.raises(Unsupported):
        order("gauss sigma=1", "zcdp rho=0.5")


@pytest.mark.parametrize("more", [{"eps": 0.0}, {"eps": 1.0, "delta": 0.1}, {"delta": 1.0}, {"within": 0.0}])
def test_a_bad_range_is_refused(more):
    with pytest.raises(UsageError):
        order("gauss sigma=1", "laplace scale=1", **more)


def test_a_range_beyond_what_doubles_hold_is_refused():
    with pytest.raises(Unsupported, match="Give `eps`"):
        order("laplace scale=1", "laplace scale=2", eps=1e4)


@pytest.mark.parametrize(
    "text",
    ["", "gaus sigma=1", "gauss sigma=1 sigma=2", "gauss sigma=1 +", "gauss 'sigma=1", "gauss sigma=1 typo=3",
     "gauss sigma=1 adjacency=add-remove + gauss sigma=1 adjacency=replace-one", "no-such-recipe", "plc/fig7-dpsgd"],
)  # fmt: skip
def test_what_names_no_process_is_refused(text):
    with pytest.raises(UsageError):
        described(text)


def test_a_guarantee_and_its_words_name_the_same_process(tmp_path):
    import wpriv

    row = wpriv.budget("gauss", sigma=2, n=10, sampling="poisson", rate=0.1, eps=1, tol=1e-2)
    path = tmp_path / "guarantee.json"
    path.write_text(json.dumps(row.as_dict(), default=str))
    assert described(path).process == described("gauss sigma=2 n=10 sampling=poisson rate=0.1").process


def test_a_recipe_of_kind_budget_names_its_process(tmp_path):
    path = tmp_path / "b.yaml"
    path.write_text("kind: budget\nprocess: [{mech: laplace, scale: 2, n: 3}]\ndelta: 1e-5\n")
    assert described(path).process == described("laplace scale=2 n=3").process


@pytest.mark.parametrize(
    "text", ['{"process": []}', '{"process": [1]}', '{"process": [{"mech": "x"}]}', "{}", "[", "\0"]
)
def test_a_malformed_file_is_refused(tmp_path, text):
    path = tmp_path / "g.json"
    path.write_text(text)
    with pytest.raises(UsageError):
        described(path)


def test_processes_are_taken_as_mechanisms_and_in_words_too():
    words = wpriv.privacy_order("gauss sigma=2", "gauss sigma=1")
    assert words.verdict == wpriv.privacy_order(wpriv.Gauss(2.0), wpriv.Gauss(1.0)).verdict == "dominates"
    assert wpriv.curve("gauss sigma=2").epsilon(delta=1e-5) == wpriv.budget("gauss", sigma=2, delta=1e-5).epsilon.safe
    with pytest.raises(UsageError, match="needs a mechanism"):
        wpriv.privacy_order(3, "gauss sigma=1")
