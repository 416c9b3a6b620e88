"""The best adaptive analyst against a filter, by dynamic programming over all that it may choose and see.

The mechanisms are symmetric pairs on a lattice of losses, P(L = kh) in proportion to e^(kh/2) g(|k|), so that Q is P
reversed and every sum of losses lies on the lattice too: nothing is discretised, and all that is left is rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.process import Process, Step
from wpriv.ledger.charges import Unit, units_of
from wpriv.ledger.filters import gaussian_budget

Array = NDArray[np.float64]


@dataclass(frozen=True)
class OnLattice(Mechanism):
    """Losses ``spacing`` times the whole numbers from -k to k, with these probabilities under P."""

    release = Release.DP
    name = "on-lattice"
    spacing: float = 1.0
    masses: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        """No parameter is a user's."""

    @property
    def reach(self) -> int:
        return len(self.masses) // 2

    @cached_property
    def losses(self) -> Array:
        return self.spacing * np.arange(-self.reach, self.reach + 1)

    def pair(self) -> LossPair:
        held = np.array(self.masses) > 0
        return AtomicPair(self.losses[held], np.log(np.array(self.masses)[held]), symmetric=True)

    def unit(self) -> Unit:
        ((unit, _),) = units_of(Process((Step(self),)))
        return unit


def of_shape(spacing: float, shape: Array) -> OnLattice:
    """The mechanism whose P-mass at k is in proportion to e^(k spacing / 2) times ``shape`` at |k|."""
    k = np.arange(-(len(shape) - 1), len(shape))
    mass = np.exp(k * spacing / 2) * shape[np.abs(k)]
    return OnLattice(spacing, tuple((mass / mass.sum()).tolist()))


def response(spacing: float, eps: float) -> OnLattice:
    """Randomised response."""
    return lottery(spacing, eps, 1.0)


def lottery(spacing: float, eps: float, chance: float) -> OnLattice:
    """With a public chance a randomised response, else nothing."""
    reach = round(eps / spacing)
    answer = np.array(of_shape(spacing, np.eye(reach + 1)[-1]).masses) * chance
    answer[reach] += 1 - chance
    return OnLattice(spacing, tuple(answer.tolist()))


def normal(spacing: float, mu: float, reach: int) -> OnLattice:
    """About Gaussian noise of this mu."""
    return of_shape(spacing, np.exp(-((np.arange(reach + 1) * spacing) ** 2) / (2 * mu * mu)))


@dataclass(frozen=True)
class Game:
    """What the analyst may choose from, at most so many times, and the limit."""

    eps: float
    delta: float
    rounds: int
    menu: tuple[OnLattice, ...]

    @cached_property
    def reach(self) -> int:
        return max(each.reach for each in self.menu) * self.rounds

    @cached_property
    def end(self) -> Array:
        """What the analyst has at the end, for every loss: (1 - e^(eps - loss))_+."""
        loss = self.menu[0].spacing * np.arange(-self.reach, self.reach + 1)
        return np.maximum(-np.expm1(np.minimum(self.eps - loss, 0.0)), 0.0)

    def composed(self, counts: tuple[int, ...]) -> Array:
        """P-masses of the sum of the losses of a fixed list."""
        mass = np.zeros(2 * self.reach + 1)
        mass[self.reach] = 1.0
        for each, count in zip(self.menu, counts, strict=True):
            for _ in range(count):
                mass = np.convolve(mass, each.masses, "same")
        return mass

    def reached(self, start: Hashable, step: Callable[[Hashable, int], Hashable | None]) -> float:
        """The largest delta at eps over all analysts, in multiples of the limit's.

        Args:
            step: the filter: its state after a release of the menu, or None where that is refused.
        """
        known: dict[tuple[Hashable, int], Array] = {}

        def value(state: Hashable, left: int) -> Array:
            if (state, left) not in known:
                best = self.end
                for index, each in enumerate(self.menu if left else ()):
                    after = step(state, index)
                    if after is not None:
                        further = np.pad(value(after, left - 1), each.reach, mode="edge")
                        best = np.maximum(best, np.convolve(further, each.masses[::-1], "valid"))
                known[state, left] = best
            return known[state, left]

        return float(value(start, self.rounds)[self.reach]) / self.delta


def normal_profile(square: float, eps: float) -> float:
    """delta(eps) of Gaussian noise of mu^2 = ``square``."""
    mu = math.sqrt(square)
    return float(ndtr(mu / 2 - eps / mu) - math.exp(eps) * ndtr(-mu / 2 - eps / mu))


def log_constant(lam: float) -> float:
    """ln of lam^lam / (1 + lam)^(1 + lam)."""
    return lam * math.log(lam) - (1 + lam) * math.log1p(lam)


def tight_lottery(spacing: float, order: float, eps: float, room: float, near: float) -> OnLattice | None:
    """The lottery at the loss nearest to ``near`` whose moment of an order is all of ``room``, if there is one."""
    lam, reach = order - 1, round(near / spacing)
    x = reach * spacing
    if room <= 0 or reach < 1:
        return None
    moment = (math.exp(order * x) + math.exp(-lam * x)) / (1 + math.exp(x))
    chance = math.expm1(room) / (moment - 1) * (1 - 1e-8)
    return lottery(spacing, x, chance) if chance < 1 else None


def breaker_of_best_orders(spacing: float = 0.01, eps: float = 1.0, delta: float = 1e-6) -> tuple[OnLattice, ...]:
    """Gaussian noise of a tenth of T, then lotteries tight at orders that the loss so far may have made the best."""
    mu = math.sqrt(0.1 * gaussian_budget(eps, delta))
    first = normal(spacing, mu, int(9 * mu / spacing))
    menu = [first]
    mass, loss = np.array(first.masses), first.losses
    for lam in np.geomspace(6, 500, 40):
        spent = math.log(float(np.exp(lam * loss) @ mass))
        tilted = np.exp(lam * loss) * mass
        near = eps + math.log1p(1 / lam) - float(tilted @ loss) / float(tilted.sum())
        room = lam * eps + math.log(delta) - log_constant(lam) - spent
        lot = tight_lottery(spacing, 1 + lam, eps, room, near)
        menu += [] if lot is None else [lot]
    return tuple(menu)


def tight_at_one_order(order: float, spacing: float = 0.01, eps: float = 1.0, delta: float = 1e-6) -> OnLattice:
    """The lottery that takes the whole budget of an order, where its conversion is tight."""
    lam = order - 1
    room = lam * eps + math.log(delta) - log_constant(lam)
    lot = tight_lottery(spacing, order, eps, room, eps + math.log1p(1 / lam))
    assert lot is not None
    return lot
