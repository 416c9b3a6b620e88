"""The composed loss of everything that ran, as a state to which each release is added once.

It is that of ``pld`` by transforms (docs/theory/certified-pld.md) on contours that are fixed before the first release:
on each, the transform of a sum of losses is a product, so that a release adds its logarithms to sums, and an answer is
one inversion whatever the number of releases. Each contour gives a valid bracket, of which the best is taken. The state
is a figure beside the ledger, and decides nothing.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, field

import numpy as np

from wpriv.accounting import evaluate
from wpriv.accounting.pld import constants
from wpriv.accounting.pld.discretize import cell_masses, discretize_optimistic, discretize_pessimistic
from wpriv.accounting.pld.inversion import SmoothingKernel, TransformComposition, beyond_edge
from wpriv.accounting.pld.transforms import PowerProduct, TiltedAtoms
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import LossPair
from wpriv.core.process import Process
from wpriv.numerics.arrays import Array

TILTS = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
FREQUENCIES, REACH, NODES, MAX_LOSS = 1024, 60.0, 160, 60.0
# real tilts at which the moments bound the wrap-around of every contour
MOMENTS = np.geomspace(0.05, 3000, 48)
BULK, OMITTED = 1e-4, 1e-7  # P-mass beyond the even nodes, and beyond all of them as a share of delta
KEPT = 4.0  # contours of a larger multiple of the best tilt are dropped, as that only falls
WIDTH = 1e-7  # of eps, to which a bracket is inverted


@dataclass(frozen=True)
class Atoms:
    """A pair on common losses [m]: P-masses [2, m] and of infinite losses [2], pessimistic and optimistic."""

    losses: Array
    masses: Array
    infinity: Array

    @classmethod
    def of(cls, pair: LossPair, omitted: float) -> Atoms:
        """Discretise a pair; losses of a P-mass of at most ``omitted`` become infinite or vanish."""
        infinity = float(pair.mass_at_plus_infinity)
        if isinstance(pair, AtomicPair):
            beyond = np.array([math.exp(pair.log_beyond), 0.0])
            return cls(pair.losses, np.tile(np.exp(pair.log_p), (2, 1)), infinity + beyond)
        nodes = _nodes(pair, omitted)
        cells = cell_masses(pair, nodes)
        upper, beyond = discretize_pessimistic(cells, infinity)
        masses = np.stack([np.ravel(upper), np.ravel(discretize_optimistic(cells, infinity))])
        return cls(nodes, masses, np.array([float(np.ravel(beyond)[0]), infinity]))

    def log_moments(self) -> Array:
        """ln E[e^{bL}] of the finite losses at ``MOMENTS``, of the side where it is larger."""
        exponent = MOMENTS[:, None] * self.losses
        top = exponent.max(axis=1)
        return np.asarray(top + np.log((np.exp(exponent - top[:, None]) @ self.masses.T).max(axis=1)))


def _nodes(pair: LossPair, omitted: float) -> Array:
    """Losses, even over the bulk and geometric beyond it, with the atoms of a pair of few."""
    ends = []
    for end, side in ((pair.support[1], pair), (-pair.support[0], pair.reverse())):
        if math.isfinite(end):
            ends.append((end, end))
            continue
        scan = np.geomspace(1e-6, MAX_LOSS, 180)
        logs = -side.log_delta(scan)
        at = [min(int(np.searchsorted(logs, -math.log(mass))), scan.size - 1) for mass in (BULK, omitted)]
        ends.append((float(scan[at[0]]), float(scan[at[1]])))
    (high, top), (low, bottom) = ends
    parts = [np.linspace(-low, high, NODES)]
    parts += [np.geomspace(high, top, NODES // 4)[1:]] if top > high else []
    parts += [-np.geomspace(low, bottom, NODES // 4)[1:]] if bottom > low else []
    if 0 < pair.atoms.size < 50:
        return np.unique(np.concatenate([*parts, pair.atoms]))
    nodes = np.unique(np.concatenate(parts))
    return np.asarray(nodes[np.concatenate([[True], np.diff(nodes) > 1e-3 * (high + low) / NODES])])


@dataclass
class Contour:
    """Sums over releases on one contour, of the pessimistic and of the optimistic side.

    Args:
        tilt: of the contour. period: in eps, of the trapezoidal rule.
    """

    tilt: float
    period: float
    powers: list[PowerProduct] = field(default_factory=lambda: [PowerProduct.one(FREQUENCIES) for _ in range(2)])
    # ln E[e^{cL}], the bound of its rounding, and the centres of the losses, [2] each
    norm: Array = field(default_factory=lambda: np.zeros(2))
    noise: Array = field(default_factory=lambda: np.zeros(2))
    centre: Array = field(default_factory=lambda: np.zeros(2))

    @property
    def spacing(self) -> float:
        return 2 * math.pi / self.period

    def add(self, atoms: Atoms, n: int) -> None:
        """Add a release n times."""
        tilted = TiltedAtoms.of(atoms.losses, atoms.masses, self.tilt, np.array([n, n]), atoms.infinity)
        values, errors = tilted.transform(0, FREQUENCIES, self.spacing)
        for side in range(2):
            column = slice(side, side + 1)
            self.powers[side] = self.powers[side].times(values[:, column], errors[:, column], tilted.counts[column])
        self.norm = self.norm + n * tilted.log_norm
        self.noise = self.noise + n * tilted.noise
        self.centre = self.centre + n * tilted.centre

    def composition(self, side: int, log_moments: Array, log_finite: float) -> TransformComposition:
        """The composed loss of one side, to be evaluated at any eps."""
        kernel, unit = SmoothingKernel(constants.KERNEL_SHAPE / (FREQUENCIES * self.spacing)), constants.UNIT_ROUNDOFF
        value, error = self.powers[side].value()
        t: Array = np.arange(FREQUENCIES, dtype=np.float64) * self.spacing
        s = self.tilt + 1j * t
        smooth = kernel.transform(s)
        weight = np.where(t == 0, 0.5, 1.0) * (self.spacing / math.pi)
        payoff, squared = weight * smooth / (s * (s + 1)), weight * smooth**2
        relative = math.expm1(min(float(self.noise[side]), 700.0)) + 40 * unit
        beyond = beyond_edge(kernel, self.tilt, FREQUENCIES, self.spacing)
        slack, density_slack = (
            float(np.abs(factor) @ error) + float(np.abs(factor * value).sum()) * relative + rest
            for factor, rest in zip((payoff, squared), beyond, strict=True)
        )
        return TransformComposition(
            tilt=self.tilt,
            centre=self.centre[side] + kernel.shift,
            log_scale=self.norm[side] - self.tilt * self.centre[side],
            t=t,
            value=payoff * value,
            density=squared * value,
            slack=slack,
            density_slack=density_slack,
            gap_factor=kernel.gap_factor(),
            wraps=self._wraps(kernel, log_moments),
            mass_at_plus_infinity=-math.expm1(log_finite),
            cells=0,
            least_eps=-math.inf,
        )

    def _wraps(self, kernel: SmoothingKernel, log_moments: Array) -> Array:
        """[2, 2n] tilts and logarithms that bound the wrap-around: those above the tilt of the contour first."""
        logs = log_moments + kernel.log_moment(MOMENTS) + MOMENTS * kernel.shift + 1e-9
        decay = np.maximum(np.abs(MOMENTS - self.tilt) * self.period, 1e-300)
        logs = logs - decay - np.log(-np.expm1(-decay))
        above = self.tilt < MOMENTS
        size = int(max(above.sum(), (~above).sum()))
        rows = np.stack([np.zeros((2, size)), np.full((2, size), 1e4)])
        for row, chosen in enumerate((above, ~above)):
            rows[0, row, : chosen.sum()] = MOMENTS[chosen]
            rows[1, row, : chosen.sum()] = logs[chosen]
        return np.asarray(rows.reshape(2, -1))


class GrowingPlan:
    """The certified bracket of everything added so far, if all of it had been fixed before the first release.

    Args:
        eps: of the limit, about which answers are narrow. delta: the least one that is asked about.
    """

    def __init__(self, eps: float, delta: float):
        self.eps, self.delta_asked = eps, delta
        period = 2 * (eps + 4.0)
        # in both orders of the neighbours
        self.sides = [[Contour(tilt, min(REACH / tilt, period)) for tilt in TILTS] for _ in range(2)]
        self.log_moments, self.log_finite = np.zeros((2, MOMENTS.size)), np.zeros((2, 2))
        self.attained = True

    def add(self, process: Process, times: int = 1) -> None:
        """Add the releases of a process, several times.

        Raises:
            Unsupported: a mechanism without the distribution of its privacy loss.
        """
        self.attained = self.attained and not evaluate.is_bound_only(process)
        runs = process.directions()
        for order, contours in enumerate(self.sides):
            for pair, count in runs[min(order, len(runs) - 1)]:
                n = count * times
                atoms = Atoms.of(pair, OMITTED * self.delta_asked)
                self.log_moments[order] += n * atoms.log_moments()
                self.log_finite[order] += n * np.log1p(-atoms.infinity)
                for contour in contours:
                    contour.add(atoms, n)

    def delta(self, eps: float) -> tuple[float, float]:
        """Both ends of delta at eps, over both orders of the neighbours; the lower one is 0 where pairs only bound."""
        sides = self._compositions()
        return _least(sides, eps), _most(sides, eps)

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Both ends of eps at delta; the upper one is inf beyond three times that of the limit."""
        sides = self._compositions()
        ends = []
        for bound in (_least, _most):
            low, high = 0.0, 3 * self.eps
            if bound is _most and bound(sides, high) > delta:
                ends.append(math.inf)
                continue
            while high - low > WIDTH * high and high > 1e-9:
                middle = (low + high) / 2
                low, high = (middle, high) if bound(sides, middle) > delta else (low, middle)
            ends.append(low if bound is _least else high)
        return ends[0], ends[1]

    def drop(self, eps: float) -> None:
        """Forget contours of far more than the tilt that is best at eps: the best one falls as releases are added."""
        for order, contours in enumerate(self.sides):
            ends = [self._composition(order, each, 0).delta(eps, 1) for each in contours]
            best = contours[int(np.argmin(ends))].tilt
            self.sides[order] = [each for each in contours if each.tilt <= KEPT * best]

    def state(self) -> bytes:
        """Everything that was added, as ``of_state`` reads it."""
        rows = {"moments": self.log_moments, "finite": self.log_finite, "attained": np.array(self.attained)}
        for order, contours in enumerate(self.sides):
            rows[f"tilts{order}"] = np.array([each.tilt for each in contours])
            rows[f"sums{order}"] = np.array([[each.norm, each.noise, each.centre] for each in contours])
            powers = [[[each.log, each.phase, each.noise] for each in contour.powers] for contour in contours]
            rows[f"powers{order}"] = np.array(powers)
        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, **rows)
        return stream.getvalue()

    @classmethod
    def of_state(cls, state: bytes, eps: float, delta: float) -> GrowingPlan:
        """The plan for the same limit whose ``state`` this is."""
        plan, rows = cls(eps, delta), np.load(io.BytesIO(state), allow_pickle=False)
        plan.log_moments, plan.log_finite, plan.attained = rows["moments"], rows["finite"], bool(rows["attained"])
        for order, contours in enumerate(plan.sides):
            by_tilt, kept = {each.tilt: each for each in contours}, []
            stored = zip(rows[f"tilts{order}"], rows[f"sums{order}"], rows[f"powers{order}"], strict=True)
            for tilt, sums, powers in stored:
                contour = by_tilt[float(tilt)]
                contour.norm, contour.noise, contour.centre = sums
                contour.powers = [PowerProduct(*power) for power in powers]
                kept.append(contour)
            plan.sides[order] = kept
        return plan

    def _composition(self, order: int, contour: Contour, side: int) -> TransformComposition:
        return contour.composition(side, self.log_moments[order], float(self.log_finite[order, side]))

    def _compositions(self) -> Sides:
        """By order of the neighbours and contour, the pessimistic and the optimistic composition."""
        return [
            [
                (self._composition(order, each, 0), self._composition(order, each, 1) if self.attained else None)
                for each in contours
            ]
            for order, contours in enumerate(self.sides)
        ]


Sides = list[list[tuple[TransformComposition, TransformComposition | None]]]


def _most(sides: Sides, eps: float) -> float:
    return max(min(upper.delta(eps, 1) for upper, _ in contours) for contours in sides)


def _least(sides: Sides, eps: float) -> float:
    return max(lower.delta(eps, -1) if lower else 0.0 for contours in sides for _, lower in contours)
