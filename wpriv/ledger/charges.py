"""Charges: certified upper bounds of what one release takes from the accounts of a filter.

The charge of residue (T5 of docs/theory/ledger.md) is the least c for which the profile of the pair beside Gaussian
noise of the floor f is at most that of Gaussian noise of f + c, plus kappa c, at every eps >= 0 and in both orders of
the neighbours. It is decided on a grid: as functions of e^eps both sides are convex, and their difference on a cell
exceeds its larger end by at most an eighth of the cell's squared width times the excess of one curvature over the
other, which is bounded on the cell. Equal steps of one release have a joint charge, that of the sum of their losses.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from wpriv.accounting import evaluate
from wpriv.accounting.pld.discretize import cell_masses, discretize_pessimistic
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.kinds import PASSES
from wpriv.core.loss_moments import log_moment, loss_class
from wpriv.core.loss_pair import LossPair, gaussian_mu
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError
from wpriv.ledger.filters import Filter
from wpriv.numerics.arrays import Array
from wpriv.numerics.numbers import decimal, text

# relative error of a moment and of a product, and of a charge as far as bisection goes
MOMENT_ERROR, ROUNDING, WIDTH = Fraction(1, 10**10), Fraction(1, 10**15), 1e-5
UNBOUNDED = 10**9
# absolute error of Phi(x) - e^z Phi(x - mu), in multiples of Phi(x), with all roundings of a sum of them
PROFILE_ERROR = 4e-14
# nodes: those within the bulk, a twentieth of a deviation apart, and a ratio of neighbours beyond
BULK, SPACING, RATIO, LEAST_LOSS, MAX_LOSS = 6.0, 20.0, 1.03, 1e-9, 700.0
BULK_SHARE = 0.1  # of delta(0) is left about a deviation on
# P-mass of the omitted losses, as a share of A: no more than some units of the account
OMITTED = 1e-14
CELLS, ROUNDS, MAX_CELLS, CURVED, SCAN = 128, 14, 40_000, 2.5e-4, 32
SANDWICH = 1e-3  # width of a pair that is only known between two others
ROUNDED = 1e-13  # relative error of a curvature
LEAST_COST = 1e-60
# sums of losses: nodes a deviation and in all, relative errors of a mass and of an operation, and the most losses
FINE, MOST_NODES, MASS_ERROR, ROUNDOFF, MOST_LOSSES = 64.0, 6000, 1e-14, 1.2e-16, 10**7


@dataclass(frozen=True)
class Unit:
    """The release that a step repeats: one of its mechanism, or one pass where passes take each record once.

    Args:
        key: canonical JSON of it and of its neighbours, by which its charges are kept. process: it alone.
    """

    key: str
    process: Process


Units = list[tuple[Unit, int]]


def units_of(process: Process) -> Units:
    """The units of a process with their numbers, equal ones added up.

    Raises:
        UsageError: steps with observed pair distances. Unsupported: a release that hides nothing.
    """
    if any(step.observed is not None for step in process.steps):
        raise UsageError("a ledger holds guarantees for every data set; leave out `observed`")
    if evaluate.infinity_mass(process) >= 1:
        raise Unsupported("a release that hides nothing cannot be paid from any limit; give it noise")
    counts: dict[Unit, int] = {}
    for step in process.steps:
        alone = process.with_steps((Step(step.mechanism, step.unit, step.sampling),))
        about = {"adjacency": process.adjacency, "group": process.group, "records": process.records}
        unit = Unit(json.dumps({**alone.steps[0].describe(), **about}, sort_keys=True), alone)
        counts[unit] = counts.get(unit, 0) + step.releases
    return list(counts.items())


def is_joint(unit: Unit, by: Filter) -> bool:
    """Whether several units in one release cost a filter less than one by one."""
    return by.kind == "residue" and not _is_gaussian(unit)


@lru_cache(maxsize=1024)
def _is_gaussian(unit: Unit) -> bool:
    """Whether a unit is plain Gaussian noise, or one without a pair, which no joint charge is known of either."""
    if unit.process.steps[0].mechanism.renyi_bound() is not None:
        return True
    return all(gaussian_mu(run[0][0]) is not None for run in unit.process.directions())


def of_unit(unit: Unit, by: Filter, tier: int, count: int = 1) -> tuple[Fraction, ...]:
    """The charge of some units in one release to each account of a filter, at the floor of a tier, from above.

    Raises:
        Unsupported: the filter has no charge for the mechanism.
    """
    about = unit.process.steps[0].mechanism.describe()
    name = about["mech"]
    if by.kind in ("rdp", "rho"):
        if (kind := unit.process.steps[0].sampling.kind) in PASSES:
            raise Unsupported(f"rule {by.kind} has no proven bound for passes of {kind} sampling. Use rule residue")
        pairs = [run[0][0] for run in unit.process.renyi_directions()]
    elif unit.process.steps[0].mechanism.renyi_bound() is not None:
        raise Unsupported(
            f"rule {by.kind} needs the distribution of the privacy loss, and of {name} only Renyi divergences are "
            f"known. Use rule rdp with a limit in eps and delta"
        )
    else:
        pairs = [run[0][0] for run in unit.process.directions()]
    mass = max(max(pair.mass_at_plus_infinity, pair.mass_at_minus_infinity) for pair in pairs)
    leak = _typed(mass, about.get("delta0"))
    if leak > 0 and dict(by.accounts).get("A") == 0:
        raise Unsupported(
            f"{name} may reveal a record with probability {text(mass, up=True)}, and no part of delta is set aside for "
            f"that. Give `leaks` at the start, such as a fiftieth of delta"
        )
    if by.kind == "rdp":
        lam = np.array([by.order - 1])
        moments = [float(log_moment(pair, lam, finite=True)[0]) / lam[0] for pair in pairs]
        return (count * _above(max(moments)) * (1 + MOMENT_ERROR), count * leak)
    if by.kind == "basic":
        tops = [pair.support[1] if pair.largest is None else pair.largest for pair in pairs]
        if not all(math.isfinite(top) for top in tops):
            raise Unsupported(
                f"rule basic adds up (eps, delta) of each release, and the loss of {name} has no bound. Use rule "
                f"residue, or spend it as a guarantee: dp eps0=0.5 delta0=1e-7"
            )
        return (count * max(top if isinstance(top, Fraction) else decimal(top) for top in tops), count * leak)
    mus = [gaussian_mu(pair) for pair in pairs]
    square = max(mu * mu for mu in mus if mu is not None) if all(mu is not None for mu in mus) else None
    if by.kind == "rho":
        lines = [pair.zcdp_line() for pair in pairs]
        rhos = [None if line is None or line[0] > 0 else line[1] for line in lines]
        if leak > 0 or any(rho is None for rho in rhos):
            raise Unsupported(f"no rho of zCDP is known for {name}, and the limit is one of rho. Give eps and delta")
        if square is not None:
            return (count * _square(square, about) / 2,)
        return (count * max(_typed(rho, about.get("rho")) for rho in rhos if rho is not None),)
    if square is not None:
        return (count * _square(square, about), Fraction(0))[: len(by.accounts)]
    if by.kind == "gauss":
        raise Unsupported(f"rule gauss holds for plain Gaussian noise alone; found {name}. Use rule residue")
    cost, beyond = residue_charge(unit, by, tier, count)
    omitted = max(beyond - count * mass, 0.0)
    return (_above(cost), _above(by.kappa) * _above(cost) + count * leak + _above(omitted))


def _typed(x: float, parameter: object) -> Fraction:
    """A number from above, or the decimal of the parameter that it was computed from."""
    given = decimal(parameter) if isinstance(parameter, float) else Fraction(0)
    return given if abs(given - decimal(x)) <= decimal(x) / 10**14 else _above(x)


def _square(x: float, about: Mapping[str, object]) -> Fraction:
    """mu^2 of Gaussian noise from above, exact where it is that of the parameters as they are written."""
    mu, sigma, sensitivity = about.get("mu"), about.get("sigma"), about.get("sensitivity")
    exact = Fraction(0)
    if isinstance(mu, float):
        exact = decimal(mu) ** 2
    elif isinstance(sigma, float) and isinstance(sensitivity, float):
        exact = (decimal(sensitivity) / decimal(sigma)) ** 2
    return exact if abs(exact - decimal(x)) <= decimal(x) / 10**14 else _above(x)


def _above(x: float) -> Fraction:
    """A computed number with its rounding added; far more than any account holds in the place of infinity."""
    return decimal(max(x, 0.0)) * (1 + ROUNDING) if x < UNBOUNDED else Fraction(UNBOUNDED)


@dataclass(frozen=True)
class Atoms:
    """A discrete pair that dominates: its finite losses, their P-masses, and the P-mass of infinite ones."""

    losses: Array
    masses: Array
    infinity: float

    def times(self, count: int, omitted: float) -> Atoms:
        """The sum of so many independent losses, from above, by squaring on even losses.

        Sums of a P-mass of at most ``omitted`` become infinite at every squaring.
        """
        mean = float(self.masses @ self.losses)
        deviation = math.sqrt(max(float(self.masses @ (self.losses - mean) ** 2), 0.0))
        if deviation <= 1e-9 * abs(mean) or self.losses.size < 2:  # one finite loss
            return Atoms(count * self.losses[-1:], np.array([1.0]), min(count * self.infinity, 1.0))
        total = Sums.of(self.losses, self.masses, deviation)
        for bit in f"{count:b}"[1:]:
            total = total.plus(total, omitted)
            if bit == "1":
                total = total.plus(Sums.of(self.losses, self.masses, deviation, total.spacing), omitted)
        masses = total.masses * (1 + total.rounding)
        return Atoms(total.losses, masses, min(count * self.infinity + total.infinity, 1.0))


@dataclass(frozen=True)
class Sums:
    """P-masses of losses that are whole multiples of a spacing, from ``first`` on.

    Args:
        infinity: the P-mass that became infinite. rounding: bounds the relative error of every mass.
    """

    spacing: float
    first: int
    masses: Array
    infinity: float = 0.0
    rounding: float = MASS_ERROR

    @property
    def losses(self) -> Array:
        return np.asarray(self.spacing * np.arange(self.first, self.first + self.masses.size))

    @classmethod
    def of(cls, losses: Array, masses: Array, deviation: float, spacing: float = 0.0) -> Sums:
        """Split each loss between the two multiples about it, which keeps its P-mass and its Q-mass (T5 needs both)."""
        top = max(abs(float(losses[0])), abs(float(losses[-1])))
        if not spacing:
            cells = max(math.ceil(top / max(deviation / FINE, 2 * top / MOST_NODES)), 1)
            spacing = top / cells  # the largest loss is a multiple
        at = losses / spacing
        below = np.floor(at)
        share = np.clip(np.expm1((below - at) * spacing) / math.expm1(-spacing), 0.0, 1.0)
        index, first = (below - below[0]).astype(int), int(below[0])
        size = int(index[-1]) + 2
        held = np.bincount(index, masses * (1 - share), size) + np.bincount(index + 1, masses * share, size)
        return cls(spacing, first, np.asarray(held, dtype=np.float64))

    def plus(self, other: Sums, omitted: float) -> Sums:
        """The sum with independent losses on the same multiples."""
        masses = np.convolve(self.masses, other.masses)
        steps = min(self.masses.size, other.masses.size) + 12
        rounding = self.rounding + other.rounding + 1.01 * steps * ROUNDOFF
        beyond = np.cumsum(masses[::-1])[::-1]
        end = int(np.searchsorted(-beyond, -omitted))
        # losses below the least one that is kept move up to it
        start = int(np.searchsorted(np.cumsum(masses[:end]), omitted))
        kept = masses[start:end].copy()
        kept[0] += masses[:start].sum()
        infinity = self.infinity + other.infinity + float(masses[end:].sum()) * (1 + rounding)
        total = Sums(self.spacing, self.first + other.first + start, kept, infinity, rounding)
        return total.coarser() if total.is_fine() else total

    def is_fine(self) -> bool:
        """Whether twice the spacing is still fine, or there are too many multiples."""
        mean = float(self.masses @ self.losses)
        deviation = math.sqrt(float(self.masses @ (self.losses - mean) ** 2))
        return self.spacing * 2 * FINE < deviation or self.masses.size > MOST_NODES

    def coarser(self) -> Sums:
        """The same on twice the spacing: every other loss is split between its neighbours."""
        share = -math.expm1(-self.spacing) / -math.expm1(-2 * self.spacing)
        odd = self.first % 2
        masses = np.concatenate([np.zeros(odd), self.masses])
        masses = np.concatenate([masses, np.zeros(1 - masses.size % 2)])
        even = masses[::2].copy()
        even[:-1] += (1 - share) * masses[1::2]
        even[1:] += share * masses[1::2]
        return Sums(2 * self.spacing, (self.first - odd) // 2, even, self.infinity, self.rounding + 4 * ROUNDOFF)


def atoms(pair: LossPair, omitted: float) -> Atoms:
    """Discretise a pair from above; losses of a P-mass of at most ``omitted`` become infinite."""
    between = pair.sandwich(SANDWICH)
    pair = pair if between is None else between[1]
    infinity = max(float(pair.mass_at_plus_infinity), 0.0)
    if isinstance(pair, AtomicPair):
        return Atoms(pair.losses, np.exp(pair.log_p), infinity + math.exp(pair.log_beyond))
    tops, deviation = [], 0.0
    for end, side in ((pair.support[1], pair), (-pair.support[0], pair.reverse())):
        scan = np.concatenate([[0.0], np.geomspace(LEAST_LOSS, MAX_LOSS, 400)])
        beyond = np.exp(side.log_delta(scan)) - side.mass_at_plus_infinity
        few = np.flatnonzero(beyond <= omitted)
        tops.append(min(end, float(scan[few[0]]) if few.size else MAX_LOSS))
        deviation = max(deviation, float(scan[np.argmax(beyond <= BULK_SHARE * beyond[0])]))
    if deviation <= LEAST_LOSS:  # one finite loss, but for rounding, or very small ones
        moments = loss_class(pair)
        deviation = math.sqrt(moments.variance)
        if deviation <= 1e-12 * abs(moments.mean):
            return Atoms(np.array([pair.support[1]]), np.array([1 - infinity]), infinity)
    high, low = tops
    bulk = np.arange(-BULK * SPACING, BULK * SPACING + 1) * (deviation / SPACING)
    far = np.exp(np.arange(0.0, math.log(MAX_LOSS / (BULK * deviation)), math.log(RATIO))) * BULK * deviation
    few_atoms = pair.atoms if pair.atoms.size < 2000 else np.empty(0)
    nodes = np.unique(np.concatenate([bulk, far, -far, few_atoms, [-low, high]]))
    nodes = nodes[(nodes >= -low) & (nodes <= high)]
    keep = np.concatenate([[True], np.diff(nodes) > 1e-9 * deviation]) | np.isin(nodes, few_atoms)
    mass, beyond = discretize_pessimistic(cell_masses(pair, nodes[keep]), infinity)
    return Atoms(nodes[keep], np.ravel(mass), float(np.ravel(beyond)[0]))


@lru_cache(maxsize=256)
def _both(unit: Unit, omitted: float, count: int = 1) -> tuple[Atoms, ...]:
    """The atoms of some units in both orders of the neighbours, or in one where both agree."""
    if count > 1:
        return tuple(each.times(count, omitted) for each in _both(unit, omitted))
    return tuple(atoms(run[0][0], omitted) for run in unit.process.directions())


def residue_charge(unit: Unit, by: Filter, tier: int, count: int = 1) -> tuple[float, float]:
    """The charge of some units to T at the floor of a tier, from above and to 1e-3 relative; and the mass charged to A.

    The charge is infinite where nothing up to 64 T suffices.

    Raises:
        Unsupported: without a part of delta for them (kappa = 0), losses without a bound.
    """
    budget, leaks = by.accounts[0][1], by.accounts[1][1]
    if by.kappa == 0 and any(run[0][0].support[1] == math.inf for run in unit.process.directions()):
        raise Unsupported(
            f"without a part of delta for heavy tails the losses of {unit.process.steps[0].mechanism.name} need a "
            f"bound, or have to be those of plain Gaussian noise. Give `leaks` at the start"
        )

    def charge(number: int) -> tuple[float, float]:
        cost, orders = 0.0, _both(unit, OMITTED * leaks, number)
        for each in orders:
            cost = max(cost, Comparison(each, by.floor(tier), by.kappa).charge(64 * budget, cost))
        return cost, max(each.infinity for each in orders)

    one = charge(1)
    linear = count * one[0], count * one[1]
    return linear if count == 1 or count > MOST_LOSSES else min(charge(count), linear)


def profile(t: float, eps: Array) -> tuple[Array, Array]:
    """The profile of Gaussian noise of mu^2 = t at any eps, and a bound on its error."""
    if t == 0:
        return -np.expm1(np.minimum(eps, 0.0)), np.zeros_like(eps)
    mu = math.sqrt(t)
    upper = ndtr(mu / 2 - eps / mu)
    value = upper - np.exp(np.minimum(eps, MAX_LOSS)) * ndtr(-mu / 2 - eps / mu)
    return np.maximum(value, 0.0), PROFILE_ERROR * upper


def _density(t: float, eps: Array) -> Array:
    """The second derivative of the profile in e^eps, times e^eps: a normal density."""
    mu = math.sqrt(t)
    return np.exp(-0.5 * ((eps + t / 2) / mu) ** 2) / (mu * math.sqrt(2 * math.pi))


class Comparison:
    """One order of the neighbours beside Gaussian noise of a floor, on a grid of eps that grows where it is needed."""

    def __init__(self, of: Atoms, floor: float, kappa: float):
        self.of, self.floor, self.kappa = of, floor, kappa
        self.guess = max(float(of.masses @ of.losses**2), 1e-300)
        self.eps = np.linspace(0.0, self._end(), CELLS + 1)
        if floor == 0 and of.losses.size < 20_000:
            inside = of.losses[(of.losses > 0) & (of.losses < self.eps[-1])]
            self.eps = np.unique(np.concatenate([self.eps, inside]))
        self.rows = self._rows(self.eps)

    def charge(self, most: float, known: float = 0.0) -> float:
        """The least c that is shown to suffice, or infinity beyond ``most``; ``known`` if that suffices."""
        if not np.any(self.of.losses):
            return 0.0
        if known > 0 and (math.isinf(known) or self._holds(known, curved=True)):
            return known
        low = _least(lambda c: self._holds(c, curved=False), self.guess, most)
        for _ in range(ROUNDS):
            if math.isinf(low):
                return low
            enough = low * (1 + CURVED)
            split = self._excess(enough, curved=True) > 0
            if not np.any(split):
                return enough
            if self.eps.size > MAX_CELLS:
                break
            middle = ((self.eps[1:] + self.eps[:-1]) / 2)[split]
            order = np.argsort(np.concatenate([self.eps, middle]), kind="stable")
            self.rows = np.concatenate([self.rows, self._rows(middle)], axis=1)[:, order]
            self.eps = np.concatenate([self.eps, middle])[order]
            low = _least(lambda c: self._holds(c, curved=False), low, most)
        return _least(lambda c: self._holds(c, curved=True), low * (1 + CURVED), most)

    def _end(self) -> float:
        """An eps beyond which the left side is at most kappa times a small charge, or 0 for bounded losses."""
        top = float(self.of.losses[-1])
        if self.floor == 0 and self.kappa == 0:
            return max(top, 0.0)
        scan = np.linspace(0.0, max(top, 0.0) + 40 * math.sqrt(self.floor + self.guess), SCAN)
        few = np.flatnonzero(self._rows(scan)[0] <= self.kappa * self.guess / 16)
        return float(scan[few[0] if few.size else -1])

    def _rows(self, eps: Array) -> Array:
        """At [k] eps: the left side from above, its curvature in e^eps, and the mean loss by the parts of that."""
        distance = eps[:, None] - self.of.losses
        value, error = profile(self.floor, distance)
        left = (value + error) @ self.of.masses
        if self.floor == 0:
            return np.stack([left, np.zeros_like(left), np.zeros_like(left)])
        parts = _density(self.floor, distance) * (self.of.masses * np.exp(-self.of.losses))
        bend = parts.sum(axis=1)
        mean = np.where(bend > 0, parts @ self.of.losses / np.where(bend > 0, bend, 1.0), 0.0)
        return np.stack([left, bend * np.exp(-eps), mean])

    def _excess(self, c: float, *, curved: bool) -> Array:
        """A bound of the left side less the right one on each cell."""
        right, error = profile(self.floor + c, self.eps)
        gap = self.rows[0] - (right - error) - self.kappa * c
        cells: Array = np.maximum(gap[:-1], gap[1:])
        if not curved:
            return cells
        width, low = np.diff(self.eps), self.eps[:-1]
        total = self.floor + c
        # for eps >= 0 the curvature of the right side falls; its logarithm exceeds the chord by s (width - s) / 2 total
        # at a distance s, and at the floor 0 the left side is straight
        most, bow = _density(total, low) * np.exp(-low), np.exp(width**2 / (8 * total))
        least = self.rows[1, :-1] * (1 - ROUNDED)
        if self.floor > 0:
            # the logarithm of each part exceeds its chord by at least as much; by Jensen their sum is at least the
            # chord with the mean slope, here less the slope on the right
            left = (self.rows[2, :-1] - low - width / 2) / self.floor
            slope = width * (left + (low + width / 2) / total)
            least = least * np.exp(np.minimum(slope, 0.0))
        cells += bow * np.maximum(most - least, 0.0) * (np.exp(low) * np.expm1(width)) ** 2 / 8
        return cells

    def _holds(self, c: float, *, curved: bool) -> bool:
        # behind the last cell the left side falls
        beyond = self.rows[0, -1] <= self.kappa * c
        return bool(beyond and np.all(self._excess(c, curved=curved) <= 0))


def _least(holds: Callable[[float], bool], guess: float, most: float) -> float:
    """The least c, to 1e-5 relative from above, for which a monotone statement holds; infinity beyond ``most``."""
    low = high = guess
    factor = 1 + 10 * WIDTH
    if holds(guess):
        while holds(low / factor):
            low, factor = low / factor, factor**2
            if low < LEAST_COST:  # what is left out of the finite losses is charged as infinite ones
                return low
        high, low = low, low / factor
    else:
        while not holds(high * factor):
            high, factor = high * factor, factor**2
            if high > most:
                return math.inf
        low, high = high, high * factor
    while high > low * (1 + WIDTH):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
