"""No analyst gets past a filter on offer, and one does past the others: dynamic programming over all choices."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from scipy.special import logsumexp

from tests.ledger.adversary import (
    Game,
    breaker_of_best_orders,
    log_constant,
    lottery,
    normal,
    normal_profile,
    response,
    tight_at_one_order,
)
from wpriv.errors import Unsupported
from wpriv.ledger import charges, filters
from wpriv.ledger.filters import TOO_MUCH, UNITS, Filter, Limit, gaussian_budget
from wpriv.ledger.scopes import Booking, Books, Gate, Place, Refusal, Tree

AT_MOST = 1 + 1e-9
PLACE = Place("all")


@functools.cache
def game(name: str) -> Game:
    """The games of the table, by their letters."""
    if name == "A":
        return Game(1.0, 0.01, 2, (lottery(0.5, 1, 0.05), lottery(0.5, 1.5, 0.03), response(0.5, 0.5)))
    if name == "B":
        return Game(1.0, 1e-6, 8, (response(0.05, 0.15), normal(0.05, 0.082, 11)))
    if name == "C":
        menu = normal(0.2, 0.176, 6), response(0.2, 0.2), lottery(0.2, 1.8, 0.00168)
        return Game(1.0, 1e-3, 6, menu)
    if name == "D":
        menu = response(0.05, 0.2), normal(0.05, 0.079, 9), lottery(0.05, 0.75, 3.8e-5)
        return Game(1.0, 1e-6, 12, menu)
    if name == "E":
        return Game(1.0, 1e-6, 2, breaker_of_best_orders())
    if name == "F":
        (by,) = filters.of_limit(Limit(1.0, 1e-6), "rdp")
        return Game(1.0, 1e-6, 1, (tight_at_one_order(by.order),))
    mu = math.sqrt(gaussian_budget(1.0, 0.98e-6) * 0.995 / 12)
    return Game(1.0, 1e-6, 14, (normal(0.02, mu, 40),))


def reached(play: Game, by: tuple[Filter, ...]) -> float:
    """What the best analyst reaches against the books of a ledger with these filters, in multiples of delta."""
    tree = Tree((("all", ""),), (), (Gate("all", Limit(play.eps, play.delta), by),), "add-remove")
    units = [each.unit() for each in play.menu]

    @functools.cache
    def amounts(item: int, number: int, tier: int) -> tuple[int, ...]:
        try:
            return by[number].units(charges.of_unit(units[item], by[number], tier))
        except Unsupported:
            return (TOO_MUCH,) * len(by[number].accounts)

    def step(state: tuple[tuple[int, ...], ...], item: int) -> tuple[tuple[int, ...], ...] | None:
        books = Books(tree)
        for number, booked in enumerate(state):
            if not booked:
                books.closed.add((0, number))
            else:
                books.book(Booking("", 0, number, 0, booked), PLACE)
        changes = books.admit("new", PLACE, lambda _, gate, number, tier: amounts(item, number, tier))
        if isinstance(changes, Refusal):
            return None
        books.take(changes, "new", PLACE, reserved=False)
        return tuple(
            () if (0, number) in books.closed else tuple(books.total(0, number, k) for k in range(len(each.accounts)))
            for number, each in enumerate(by)
        )

    return play.reached(tuple((0,) * len(each.accounts) for each in by), step)


@pytest.mark.parametrize("rule", filters.RULES)
@pytest.mark.parametrize("name", list("ABCDEFG"))
def test_no_analyst_gets_past_a_rule_on_offer(name, rule):
    play = game(name)
    assert reached(play, filters.of_limit(Limit(play.eps, play.delta), rule)) <= AT_MOST


@pytest.mark.parametrize(("name", "delta"), [("A", 1.812), ("B", 2.266), ("C", 2.374), ("D", 4.300)])
def test_the_composed_loss_of_what_was_spent_is_no_filter(name, delta):
    play = game(name)
    zero = (0,) * len(play.menu)

    @functools.cache
    def fits(counts):
        return float(play.composed(counts) @ play.end) <= play.delta

    def step(counts, item):
        after = tuple(n + (k == item) for k, n in enumerate(counts))
        return after if fits(after) else None

    assert play.reached(zero, step) == pytest.approx(delta, abs=5e-4)


def test_some_order_without_shares_is_no_filter_and_with_shares_it_is():
    play = game("E")
    lam = np.unique(np.append(np.geomspace(0.5, 800, 600), filters.of_limit(Limit(1, 1e-6), "rdp")[0].order - 1))
    moments = [logsumexp(np.outer(lam, each.losses), b=np.array(each.masses), axis=1) for each in play.menu]
    room = np.log(play.delta) + lam * play.eps - np.array([log_constant(x) for x in lam])

    def reach(shares):
        def step(items, item):
            after = tuple(sorted((*items, item)))
            used = sum(moments[k] for k in after)
            return after if np.any(used <= room + np.log(shares)) else None

        return play.reached((), step)

    assert reach(np.ones(lam.size)) == pytest.approx(1.408, abs=5e-4)
    assert reach(np.full(lam.size, 1 / lam.size)) <= AT_MOST


def test_a_budget_nine_percent_too_large_is_caught():
    play = game("G")
    budget = gaussian_budget(1.0, 0.98e-6)
    kappa = 0.02e-6 / budget
    right = Filter("residue", (("T", budget), ("A", 0.02e-6)), kappa)
    mutant = Filter("residue", (("T", budget * 1.09), ("A", 0.02e-6 * 1.09)), kappa)
    assert reached(play, (right,)) == pytest.approx(0.919, abs=2e-3)
    assert reached(play, (mutant,)) == pytest.approx(2.050, abs=2e-3)


@pytest.mark.parametrize("enlarged", [1.0, 1.09])
def test_gaussian_noise_takes_all_of_the_budget_of_rule_gauss_and_no_more(enlarged):
    """Noise on a fine lattice stands for Gaussian noise, charged by its mu^2; the profile of the sum is the oracle."""
    budget = gaussian_budget(1.0, 1e-6)
    square = budget * (1 - 1e-12) / 12
    play = Game(1.0, 1e-6, 14, (normal(0.005, math.sqrt(square), 160),))
    most = int(budget * enlarged / square)
    reach = play.reached(0, lambda count, _: count + 1 if count < most else None)
    assert reach == pytest.approx(normal_profile(square * most, 1.0) / 1e-6, rel=2e-3)
    assert (reach <= AT_MOST) == (enlarged == 1.0)


def test_the_lottery_that_is_tight_at_the_order_takes_all_of_delta():
    assert reached(game("F"), filters.of_limit(Limit(1.0, 1e-6), "rdp")) == pytest.approx(0.997, abs=1e-3)


def test_a_plain_recursion_over_single_losses_agrees():
    play = Game(1.0, 0.01, 2, game("A").menu)

    def value(counts, loss, left):
        best = max(-math.expm1(min(play.eps - loss, 0.0)), 0.0)
        for item, each in enumerate(play.menu if left else ()):
            if counts + item < 3:
                rows = zip(each.losses, each.masses, strict=True)
                best = max(best, sum(p * value(counts + item, loss + x, left - 1) for x, p in rows if p))
        return best

    by_arrays = play.reached(0, lambda state, item: state + item if state + item < 3 else None)
    assert by_arrays == pytest.approx(value(0, 0.0, 2) / play.delta, rel=1e-13)


def test_all_units_are_whole():
    (by,) = filters.of_limit(Limit(1.0, 1e-6), "residue")
    assert by.floors == (*(UNITS // 2**k for k in range(1, 7)), 0)
    assert all(isinstance(amount, int) for amount in by.units(charges.of_unit(game("A").menu[2].unit(), by, 0)))
