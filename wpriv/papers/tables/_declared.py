"""The tables that are small enough to share a module, one class each; see ``wpriv/papers/tables``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any, ClassVar

import numpy as np
from scipy.special import betaln

from wpriv.accounting.accountants import gdp_clt, pld
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.core.kinds import Sampling
from wpriv.core.parameters import PluginClass, parameter
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics import conversions
from wpriv.numerics.arrays import Array
from wpriv.numerics.root_finding import smallest_meeting
from wpriv.papers import projected_length
from wpriv.papers.mechanisms.wgrad import penalised_gradient, wasserstein_gradient
from wpriv.papers.tables._claims_wdp import TABLE_2

Rows = list[dict[str, Any]]
DIAMETER = 2.0
PAPER = (25, 30, 35, 41, 1268)  # the eps of Gaussian noise in Reshetova, Chen, Ozgur (2023)
TOL = 1e-4
# the claim of each tail bound w, as a statement about P(H > w) <= p
CLAIMS = {**dict.fromkeys(projected_length.WIDTHS, "upper-bound"), "clt": "approximate", "quantile": "exact"}
INPUTS = ("M(x0)", "M(x1)")
CASES = {"as published": "paper", "corrected": "tight"}
MAX_RECORDS = 10**6


@dataclass(frozen=True)
class _Table(PluginClass):
    """Base of the tables; ``SHOWN`` is by default the labels and columns, with the claim of a row behind them."""

    LABELS: ClassVar[tuple[str, ...]] = ("case",)
    COLUMNS: ClassVar[tuple[str, ...]]
    SHOWN: ClassVar[tuple[str, ...]]
    WHOLE: ClassVar[bool] = False
    CLAIM: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.SHOWN = (*cls.LABELS, *cls.COLUMNS, *(["claim"] if cls.CLAIM else []))


@dataclass(frozen=True)
class AttackChances(_Table):
    """The chance of a successful attack that a published eps stands for, beside the chance that is printed with it.

    Every printed chance is held against 1 / (1 + e^-eps), from which the paper says that it is computed. The formula is
    the chance to guess between two equally likely neighbours under pure eps-DP; for an eps of Wasserstein DP it means
    nothing.

    Source: Yang, Qi, Zhou (2024), Table 2.
    """

    name = "attack-chances"
    LABELS = ("data", "framework")
    COLUMNS = ("eps_printed", "printed", "computed", "difference")
    WHOLE = True

    def rows(self) -> Rows:
        """Return one row for each of the twelve printed chances: eps and chance as printed, and the chance computed."""
        results = []
        for place, (eps, printed) in TABLE_2.items():
            computed = 1 / (1 + math.exp(-eps))
            values = (*place.split(", "), eps, printed, computed, printed - computed)
            results.append(dict(zip(self.SHOWN, values, strict=True)))
        return results


@dataclass(frozen=True)
class GaussFormulas(_Table):
    """Sigma of Gaussian noise on data in a ball, by formulas in use and by the exact profile, with its exact eps.

    For local differential privacy, in which any two inputs are neighbours and the sensitivity is the diameter of the
    ball.
    """

    name = "gauss-formulas"
    COLUMNS = ("sigma", "ratio", "epsilon")
    CLAIM = True
    target: float = parameter("target eps", exclusive_minimum=0)
    delta: float = parameter("target delta, below 1/2", exclusive_minimum=0)

    def rows(self) -> Rows:
        """Return, for each formula, sigma at radius 1, its ratio to the exact one, and its exact eps at delta.

        A formula used outside its proof, or with the radius instead of the diameter, is no guarantee: claim
        ``as-published``. Rows at the eps of the paper are ``marked``.
        """
        eps, delta = self.target, self.delta
        exact, zhao = conversions.exact(eps, delta), conversions.zhao(eps, delta)
        classical = "upper-bound" if eps <= 1 else "as-published"
        cases = (
            ("exact", exact, "exact"),
            ("equation (4)", zhao, "upper-bound"),
            ("classical", conversions.classical(eps, delta), classical),
            ("equation (4) at the radius, Corollary 2", zhao / 2, "as-published"),
        )
        return [
            {
                "case": case,
                "sigma": sigma * DIAMETER,
                "ratio": sigma / exact,
                "epsilon": conversions.epsilon(sigma, delta),
                "claim": claim,
                "marked": int(eps in PAPER and case.startswith("equation")),
            }
            for case, sigma, claim in cases
        ]


@dataclass(frozen=True)
class LimitError(_Table):
    """The error of the central limit of Gaussian DP: certified eps at the noise that the limit gives for a target eps.

    The limit is that of ``gdp-clt``, by the formula of fixed-size sampling (uniform) and by that of Poisson sampling,
    the default of Opacus. The process has fixed-size sampling without replacement in both cases, as in
    Rodriguez-Vitores, Lalanne, Loubes (2025), Section 5.3.
    """

    name = "limit-error"
    COLUMNS = ("multiplier", "epsilon_lower", "epsilon_upper", "ratio")
    CLAIM = True
    target: float = parameter("target eps of the limit", exclusive_minimum=0)
    rate: float = parameter("largest share of a group in a batch", exclusive_minimum=0)
    steps: int = parameter("number of steps T", minimum=1)
    delta: float = parameter("delta of the target and of the certified eps", exclusive_minimum=0)

    def rows(self) -> Rows:
        """Return, for both formulas, the noise multiplier, its certified bracket of eps, and upper end / target."""

        def process(multiplier: float) -> Process:
            return Process((Step(Gauss(multiplier), self.steps, Sampling("fixed", self.rate)),))

        table = []
        for formula in ("uniform", "poisson"):

            def excess(multiplier: float, formula: str = formula) -> float:
                try:
                    limit = gdp_clt.account(process(multiplier), formula=formula)
                except Unsupported:  # mu of the limit overflows: far too little noise
                    return math.inf
                return limit.at(delta=self.delta).epsilon.estimate - self.target

            guess = 1 + self.rate * self.steps**0.5 / self.target
            multiplier = smallest_meeting(excess, guess=guess, low=1e-3, rtol=1e-9)
            eps = pld.account(process(multiplier), tol=TOL).at(delta=self.delta).epsilon
            table.append(
                {
                    "case": f"noise by the {formula} limit",
                    "multiplier": multiplier,
                    "claim": "certified",
                    "epsilon_lower": eps.lower,
                    "epsilon_upper": eps.upper,
                    "ratio": eps.safe / self.target,
                }
            )
        return table


@dataclass(frozen=True)
class ProjectionLaw(_Table):
    """The distribution of the squared projected length H: sample, density, normal approximation, and tail bounds.

    H is the sum of k independent Beta(1/2, (d-1)/2) variables: the squared length of a unit vector of R^d under k
    random projections. Its tail bounds determine the privacy of a release.
    """

    name = "projection-law"
    LABELS = ("part", "name")
    COLUMNS = ("x", "density", "drawn", "normal")
    CLAIM = True
    d: int = parameter("dimension of the space", default=784, minimum=2)
    k: int = parameter("number of random directions: 1, or at least 30", default=200, minimum=1)
    draws: int = parameter("values of H drawn for the histogram", default=10_000, minimum=1)
    bins: int = parameter("bins of the histogram", default=100, minimum=1)
    delta: float = parameter("probability p that H exceeds the marked bounds", default=1e-5, exclusive_minimum=0)
    seed: int = parameter("seed of the draws", default=0, minimum=0)

    def rows(self) -> Rows:
        """Return one row for each bin and one for each bound.

        A bin (``part`` = bin) has its middle ``x`` and the drawn, exact and normal densities; a bound (``part`` =
        bound) has w.
        """
        d, k = self.d, self.k
        min_k = projected_length.MIN_INVERTED
        if 1 < k < min_k or self.delta >= 1:
            raise UsageError(
                f"projection-law wants k = 1 or k >= {min_k}, and delta below 1; found k = {k}, delta = {self.delta:g}"
            )
        rng = np.random.default_rng(self.seed)
        drawn = np.array([rng.beta(0.5, (d - 1) / 2, k).sum() for _ in range(self.draws)])
        heights, edges = np.histogram(drawn, self.bins, density=True)
        middle, spread = (edges[1:] + edges[:-1]) / 2, math.sqrt(k * projected_length.variance(d))
        normal = np.exp(-(((middle - k / d) / spread) ** 2) / 2) / (spread * math.sqrt(2 * math.pi))
        if k == 1:
            exact = np.exp(-0.5 * np.log(middle) + (d - 3) / 2 * np.log1p(-middle) - betaln(0.5, (d - 1) / 2))
        else:
            exact = projected_length.density(k, d, middle)
        bins = [
            {"part": "bin", "name": None, "x": x, "density": e, "drawn": h, "normal": n, "claim": "exact"}
            for x, e, h, n in zip(middle.tolist(), exact.tolist(), heights.tolist(), normal.tolist(), strict=True)
        ]
        log_inverse = -math.log(self.delta)
        empty = {"density": None, "drawn": None, "normal": None}
        return bins + [
            {"part": "bound", "name": name, "x": width(k, d, log_inverse), **empty, "claim": CLAIMS[name]}
            for name, width in projected_length.WIDTHS.items()
        ]


@dataclass(frozen=True)
class SlicedDistance(_Table):
    """Sliced distances with and without noise between Gaussians of distant means: samples beside the closed form.

    Rakotomamonjy and Ralaivola (2021), Section 6.1 and Figure 2: N(0, I) against N(c 1, I) in d dimensions.
    """

    name = "sliced-distance"
    COLUMNS = ("distance", "spread")
    CLAIM = True
    c: float = parameter("every coordinate of the second mean; the first is 0", default=0.5)
    sigma: float = parameter("standard deviation of the noise on every projection", default=1.0, exclusive_minimum=0.0)
    d: int = parameter("dimensions", default=5, minimum=1)
    records: int = parameter("records drawn from each distribution", default=1000, minimum=1)
    k: int = parameter("directions", default=200, minimum=1)
    draws: int = parameter("number of independent repetitions", default=5, minimum=2)
    seed: int = parameter("seed of the draws, which are the same at every c and sigma", default=0, minimum=0)

    def rows(self) -> Rows:
        """Return SW_2 of samples without and with noise (mean and standard deviation over the draws), and its limit."""
        distances = zip(*(_sampled_distances(self, draw) for draw in range(self.draws)), strict=True)
        inputs = {"c": self.c, "sigma": self.sigma, "records": self.records}
        sampled = [
            {**inputs, "case": case, "distance": mean(values), "spread": stdev(values), "claim": "approximate"}
            for case, values in zip(("SWD", "DP-SWD"), distances, strict=True)
        ]
        # u.m has the mean square |m|^2 / d = c^2 over directions u, and both projections the variance 1 + sigma^2
        limit = abs(self.c)
        return [*sampled, {**inputs, "case": "closed form", "distance": limit, "spread": 0.0, "claim": "exact"}]


def _sampled_distances(params: SlicedDistance, draw: int) -> tuple[float, float]:
    """Return SW_2 without and with noise, on the same samples and directions."""
    import torch

    from wpriv.transport import sliced

    # a known seed is safe, since the data are synthetic, and makes the result reproducible
    generator = torch.Generator().manual_seed(params.seed * 1_000_003 + draw)
    x, y = torch.randn(2, params.records, params.d, generator=generator, dtype=torch.float64)
    y += params.c
    directions = sliced.random_directions(params.d, params.k, generator, dtype=torch.float64)
    plain = sliced.wasserstein(x, y, directions=directions)
    noisy = sliced.wasserstein(x, y, directions=directions, sigma=params.sigma, generator=generator)
    return math.sqrt(float(plain)), math.sqrt(float(noisy))


@dataclass(frozen=True)
class UniformOutputs(_Table):
    """The two output distributions of uniform noise on consecutive integers, for inputs one sensitivity apart.

    Where both are positive they are equal, so that the privacy loss is 0 there; every other outcome identifies its
    input.

    Source: Sommer, Meiser, Mohammadi (2019), Figure 3, left, and Example 2 (corrected: ten outcomes of probability
        1/10).
    """

    name = "uniform-outputs"
    LABELS = ("case", "outcome")
    COLUMNS = ("probability",)
    outcomes: int = parameter("number of values of the noise, all equally likely", default=10, minimum=2)
    sensitivity: int = parameter("distance of the two inputs", default=1, minimum=1)
    least: int = parameter("smallest outcome of the first input", default=-5)

    def rows(self) -> Rows:
        """Return one row for each input and outcome, with its probability."""
        if self.sensitivity >= self.outcomes:
            raise UsageError(
                f"uniform-outputs: outcomes must exceed sensitivity, else the inputs have no outcome in common; found "
                f"outcomes {self.outcomes} and sensitivity {self.sensitivity}"
            )
        shown = range(self.least, self.least + self.outcomes + self.sensitivity)
        starts = (self.least, self.least + self.sensitivity)
        return [
            {"case": case, "outcome": x, "probability": float(start <= x < start + self.outcomes) / self.outcomes}
            for case, start in zip(INPUTS, starts, strict=True)
            for x in shown
        ]


@dataclass(frozen=True)
class WgradSensitivity(_Table):
    """The sensitivity of a Wasserstein gradient, alone or as the penalty of a loss: as published and corrected.

    Rodriguez-Vitores, Lalanne, Loubes (2025), Theorems 4.1 and 6.1; for the formulas and their assumptions see
    ``papers/mechanisms/wgrad.py``.
    """

    name = "wgrad-sensitivity"
    COLUMNS = ("sensitivity",)
    CLAIM = True
    bound: float = parameter("M, the bound of clipped scores", exclusive_minimum=0)
    lipschitz_x: float = parameter("L1, the bound of clipped gradients of X's scores", minimum=0)
    lipschitz_z: float = parameter("L2, the same for Z's scores; 0 if they are not trained", minimum=0)
    size_x: int = parameter("records of X in the batch (of its smallest group, if there are labels)", minimum=1)
    size_z: int = parameter("records of Z in the batch (likewise)", minimum=1)
    alpha: float = parameter("weight of the Wasserstein term, 0 to 1", default=1.0, minimum=0)
    clip: float = parameter("C, the bound of clipped gradients of the loss", default=0.0, minimum=0)
    labels: int = parameter("number of labels, each with its own Wasserstein term", default=1, minimum=1)
    size: int = parameter("records in the batch; 0 means those of X and Z", default=0, minimum=0)

    def rows(self) -> Rows:
        """Return both sensitivities, upper bounds in the units of the gradient."""
        table = []
        for case, formula in CASES.items():
            sizes = (self.size_x, self.size_z)
            penalty = wasserstein_gradient(self.bound, self.lipschitz_x, self.lipschitz_z, *sizes, formula=formula)
            total = penalised_gradient(self.alpha, self.clip, self.size or sum(sizes), penalty, self.labels)
            table.append({"case": case, "sensitivity": total, "claim": "upper-bound"})
        return table


@dataclass(frozen=True)
class WpGradient(_Table):
    """The gradient of W_p between a sample shifted by theta and a fixed one, before and after one record is replaced.

    The samples are those of Rodriguez-Vitores, Lalanne, Loubes (2025), Appendix D: x_i = i/n, with one record replaced
    (i-1)/n, and z_i = (2i-1)/(2n). The slope of W_p at theta = 0 changes from +1 to -1 at every n, so that noise which
    decreases with n cannot hide a record; the slope of W_p^p changes by 2p (2n)^(1-p), which decreases like 1/n only
    for p >= 2. The table is computed from the samples, not from these formulas.
    """

    name = "wp-gradient"
    COLUMNS = ("value", "value_replaced", "slope", "slope_replaced", "sensitivity")
    order: float = parameter("p of W_p", minimum=1)
    records: int = parameter("n, the size of all three samples", minimum=1)
    theta: float = parameter("shift of the trained sample", default=0.0)

    def rows(self) -> Rows:
        """Value and slope (none at a kink) of W_p and W_p^p at theta, change of slope, and a bound for W_2^2."""
        p, n = self.order, self.records
        if n > MAX_RECORDS:
            raise UsageError(f"wp-gradient: records may be at most {MAX_RECORDS:,}; found {n:,}")
        i = np.arange(1.0, n + 1)
        # the samples are sorted, so that records are matched by rank
        gaps = [x + self.theta - (2 * i - 1) / (2 * n) for x in (i / n, (i - 1) / n)]
        table = []
        for case, root in (("W_p", True), ("W_p^p", False)):
            (value, slope), (other, other_slope) = (_loss(gap, p, root=root) for gap in gaps)
            row = {
                "case": case,
                "order": p,
                "value": value,
                "value_replaced": other,
                "slope": slope,
                "slope_replaced": other_slope,
                "sensitivity": None if slope is None or other_slope is None else abs(slope - other_slope),
                "claim": "exact",
            }
            table.append(row)
        if p == 2 and self.theta == 0:  # scores and sample lie in [0, 1], and the gradient of the score is 1
            bound = {"case": "bound on W_2^2", "order": p, "sensitivity": wasserstein_gradient(1, 1, 0, n)}
            table.append(dict.fromkeys(self.COLUMNS) | bound | {"claim": "upper-bound"})
        return table


def _loss(gap: Array, p: float, *, root: bool) -> tuple[float, float | None]:
    """Return W_p^p = mean |gap|^p, or its p-th root, and its slope under a common shift of all gaps.

    The slope is None at a kink: if p = 1 and some gap is 0, or for the root if all gaps are 0.
    """
    size = np.abs(gap)
    largest = float(size.max())
    kink = size.min() < 1e-12 if p == 1 else root and largest < 1e-12
    if root and not kink and largest > 0:
        # in units of the largest gap, so that high powers of small gaps do not vanish
        share = size / largest
        mean = float(np.mean(share**p))
        return largest * mean ** (1 / p), float(np.mean(np.sign(gap) * share ** (p - 1))) * mean ** (1 / p - 1)
    power = float(np.mean(size**p))
    slope = None if kink else float(p * np.mean(np.sign(gap) * size ** (p - 1)))
    return (power ** (1 / p) if root else power), slope


DECLARED = {
    table.name: table
    for table in (
        *(AttackChances, GaussFormulas, LimitError, ProjectionLaw),
        *(SlicedDistance, UniformOutputs, WgradSensitivity, WpGradient),
    )
}
