"""Distributions of the number K of runs of a private procedure of which only the best one is released."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from wpriv.errors import UnknownName, Unsupported, UsageError
from wpriv.numerics.arrays import Array
from wpriv.numerics.numbers import number, shown, whole

# the parameters of each distribution, in the order in which they are written
KINDS: dict[str, tuple[str, ...]] = {
    "geometric": ("mean",),
    "logarithmic": ("mean",),
    "negative-binomial": ("eta", "mean"),
    "poisson": ("mean",),
    "binomial": ("runs", "mean"),
}
# the distribution exists for every eta above -1, but near -1 its gamma is too small for a double
MAX_MEAN, MIN_ETA, MAX_ETA = 1e9, -0.9, 1e3
# beyond, the runs would take too long; ln of the probability of a number of runs, above the mean, that is never drawn
MAX_DRAWN_MEAN, LOG_NEGLIGIBLE = 500.0, -745.0
EXAMPLE = "geometric:mean=20"


class FixedRuns(Unsupported):
    """A fixed number of runs, of which the best is released; ``runs`` is None where it was not given."""

    def __init__(self, runs: int | None) -> None:
        super().__init__(
            f"a fixed number of runs has no bound below that of composition: the best of k runs may cost about as much "
            f"as the release of all k (Liu, Talwar 2019; Papernot, Steinke 2022). Draw the number of runs at random, "
            f"as in `repeats='{EXAMPLE}'`, or account for all runs, with k times as many compositions (`n`)"
        )
        self.runs = runs


@dataclass(frozen=True)
class Repeats:
    """K runs, drawn independently of the data; only the best run is released, or nothing where K = 0.

    With the generating function f(t) = E[t^K], everything is expressed in x = 1 - t, so that small x keep their digits.
    Geometric (eta = 1), logarithmic (eta = 0) and negative binomial K are at least 1; Poisson and binomial K may be 0.
    ``docs/theory/tuning.md`` has the formulas.

    Args:
        kind: one of ``KINDS``.
        mean: E[K], above 1 for the kinds with K >= 1, above 0 and at most ``runs`` otherwise.
        eta: the shape of a negative binomial K, from -0.9 to 1000.
        runs: the largest number of runs of a binomial K.
    Raises:
        UsageError: an unknown kind, or a parameter out of range.
    Source:
        Liu, Talwar (2019); Papernot, Steinke (2022), Definition 1; Koskela, Redberg, Wang (2024).
    """

    kind: str
    mean: float
    eta: float = 1.0
    runs: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"`repeats` must be one of {', '.join(KINDS)}, as in {EXAMPLE}; found {shown(self.kind)}")
        if self.kind == "binomial" and not 1 <= self.runs <= MAX_MEAN:
            ends = f"must lie between 1 and {MAX_MEAN:g}; found {self.runs}"
            raise UsageError(f"`repeats`: runs, the largest number of runs, {ends}")
        least = 0 if self.may_be_none else 1
        most = self.runs if self.kind == "binomial" else MAX_MEAN
        if not least < self.mean <= most:
            raise UsageError(
                f"`repeats`: the mean of a {self.kind} number of runs must be above {least} and at most {most:g}; "
                f"found {self.mean:g}"
            )
        object.__setattr__(self, "eta", {"geometric": 1.0, "logarithmic": 0.0}.get(self.kind, self.eta))
        if self.kind == "negative-binomial" and not MIN_ETA <= self.eta <= MAX_ETA:
            raise UsageError(f"`repeats`: eta must lie between {MIN_ETA:g} and {MAX_ETA:g}; found {self.eta:g}")
        if self.kind == "binomial" and self.mean == self.runs:
            raise FixedRuns(self.runs)

    @property
    def may_be_none(self) -> bool:
        """Tell whether K may be 0, so that nothing is released."""
        return self.kind in ("poisson", "binomial")

    @cached_property
    def gamma(self) -> float:
        """The parameter gamma in (0, 1) of a truncated negative binomial K of this mean."""
        if self.eta == 1:
            return 1 / self.mean
        low, high = math.log(1e-300), 0.0  # of ln gamma; the mean falls as gamma grows
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if _mean(middle, self.eta) > self.mean else (low, middle)
        return math.exp((low + high) / 2)

    def slope(self, x: ArrayLike) -> Array:
        """Compute f'(1 - x) for x in [0, 1]; it falls from E[K] at x = 0 and is convex."""
        x = np.asarray(x, dtype=float)
        if self.kind == "poisson":
            return np.asarray(self.mean * np.exp(-self.mean * x))
        if self.kind == "binomial":
            return np.asarray(self.mean * np.exp((self.runs - 1) * np.log1p(-self.mean / self.runs * x)))
        return np.asarray(self.mean * np.exp(-(self.eta + 1) * self._log_ratio(x)))

    def log_fall(self, x: ArrayLike) -> Array:
        """Compute -d ln f'(1 - x) / dx, which is at least 0."""
        x = np.asarray(x, dtype=float)
        if self.kind == "poisson":
            return np.full_like(x, self.mean)
        if self.kind == "binomial":
            p = self.mean / self.runs
            return np.asarray((self.runs - 1) * p / (1 - p * x))
        gamma = self.gamma
        return np.asarray((self.eta + 1) * (1 - gamma) / (gamma + (1 - gamma) * x))

    def reach(self, x: ArrayLike) -> Array:
        """Compute 1 - f(1 - x): the probability that a set, which one run hits with probability x, is hit at all."""
        x = np.asarray(x, dtype=float)
        if self.kind == "poisson":
            return np.asarray(-np.expm1(-self.mean * x))
        if self.kind == "binomial":
            return np.asarray(-np.expm1(self.runs * np.log1p(-self.mean / self.runs * x)))
        log_ratio, log_gamma = self._log_ratio(x), math.log(self.gamma)
        if abs(self.eta) < 1e-12:
            return np.asarray(np.minimum(log_ratio / -log_gamma, 1.0))
        return np.asarray(np.clip(np.expm1(-self.eta * log_ratio) / math.expm1(self.eta * log_gamma), 0.0, 1.0))

    def within(self, x: ArrayLike) -> Array:
        """Compute f(x) - f(0): the probability that there are runs, and that all hit a set that one hits with x."""
        x = np.asarray(x, dtype=float)
        if self.kind == "poisson":
            return np.asarray(-np.exp(-self.mean * (1 - x)) * np.expm1(-self.mean * x))
        if self.kind == "binomial":
            p = self.mean / self.runs
            some = -np.expm1(-self.runs * np.log1p(p * x / (1 - p)))
            return np.asarray(np.exp(self.runs * np.log1p(-p * (1 - x))) * some)
        log_rest, log_gamma = np.log1p(-(1 - self.gamma) * x), math.log(self.gamma)
        if abs(self.eta) < 1e-12:
            return np.asarray(log_rest / log_gamma)
        share = np.expm1(self.eta * log_rest) / math.expm1(self.eta * log_gamma)
        return np.asarray(share * np.exp(self.eta * (log_gamma - log_rest)))

    def pure_eps(self, eps: float) -> float:
        """The eps of the best of K runs that are each eps-DP (delta = 0); infinite where eps is.

        eps + ln f'(1 - x) - ln f'(x) at x = 1 / (1 + e^eps): Corollary 4.4 of ``docs/theory/tuning.md``.
        """
        if math.isinf(eps):
            return math.inf
        # slopes underflow where there are many runs, and their logarithms cancel at small eps; 1 - 2x has all digits
        x, gap = math.exp(-eps) / (1 + math.exp(-eps)), math.tanh(eps / 2)
        if self.kind == "poisson":
            fall = self.mean * gap
        elif self.kind == "binomial":
            fall = (self.runs - 1) * math.log1p(self.mean * gap / (self.runs - self.mean + self.mean * x))
        else:
            rest = 1 - self.gamma
            fall = (self.eta + 1) * math.log1p(rest * gap / (self.gamma + rest * x))
        return eps + fall * (1 + 1e-12)

    def draw(self, bits: Callable[[int], int] = secrets.randbits) -> int:
        """Draw a number of runs.

        Args:
            bits: returns a number of so many random bits; by default from the operating system.
        Raises:
            Unsupported: the mean exceeds 500.
        """
        if self.mean > MAX_DRAWN_MEAN:
            raise Unsupported(f"runs are drawn for means of up to {MAX_DRAWN_MEAN:g}; found {self.mean:g}")
        return self.quantile((bits(53) + 0.5) / 2**53)

    def quantile(self, share: float) -> int:
        """The smallest k with P(K <= k) >= ``share``, for a share in (0, 1)."""
        k, log_probability = self._least()
        # the least k may be so rare that its probability underflows
        below = math.exp(log_probability)
        while below < share and (ratio := self._ratio(k)) > 0 and (ratio >= 1 or log_probability > LOG_NEGLIGIBLE):
            k, log_probability = k + 1, log_probability + math.log(ratio)
            below += math.exp(log_probability)
        return k

    def _least(self) -> tuple[int, float]:
        """The smallest k that K may have, and ln of its probability; that is f'(0) where k is 1."""
        if self.kind == "poisson":
            return 0, -self.mean
        if self.kind == "binomial":
            return 0, self.runs * math.log1p(-self.mean / self.runs)
        return 1, math.log(self.mean) + (self.eta + 1) * math.log(self.gamma)

    def _ratio(self, k: int) -> float:
        """P(K = k + 1) / P(K = k)."""
        if self.kind == "poisson":
            return self.mean / (k + 1)
        if self.kind == "binomial":
            return (self.runs - k) / (k + 1) * self.mean / (self.runs - self.mean)
        return (1 - self.gamma) * (k + self.eta) / (k + 1)

    def _log_ratio(self, x: Array) -> Array:
        """Compute ln((gamma + (1 - gamma) x) / gamma)."""
        gamma = self.gamma
        return np.asarray(np.log1p((1 - gamma) / gamma * x))

    def describe(self) -> dict[str, str | float]:
        """The distribution as plain data."""
        return {"kind": self.kind, **{name: getattr(self, name) for name in KINDS[self.kind]}}

    def __str__(self) -> str:
        return f"{self.kind}:" + ",".join(f"{name}={getattr(self, name):g}" for name in KINDS[self.kind])


def parse(text: str | Repeats) -> Repeats:
    """Read ``geometric:mean=20``, ``poisson:mean=20``, ``negative-binomial:eta=0.5,mean=20`` and the like.

    Raises:
        UsageError: the text is none of these, or a value is out of range. Unsupported: a fixed number of runs.
    """
    if isinstance(text, Repeats):
        return text
    if not isinstance(text, str):
        raise UsageError(f"`repeats` is written as {EXAMPLE}; found {shown(text)}")
    kind, _, rest = text.strip().lower().replace("_", "-").partition(":")
    parts = [part.partition("=") for part in rest.split(",") if part]
    given = {key.strip(): (value if equals else key).strip() for key, equals, value in parts}
    if kind.isdigit() or kind == "fixed":
        count = kind if kind.isdigit() else next(iter(given.values() or given), "")
        raise FixedRuns(int(count) if count.isdigit() and 0 < int(count) <= MAX_MEAN else None)
    if kind not in KINDS:
        raise UnknownName("distribution of repeats", kind, list(KINDS))
    return from_parameters(kind, given)


def from_parameters(kind: str, given: Mapping[str, object]) -> Repeats:
    """A distribution from its parameters by name, as numbers or text."""
    names = KINDS[kind]
    for name in given:
        if name not in names:
            raise UsageError(f"`repeats`: {kind} has no parameter {name[:60]!r}. Its parameters: {', '.join(names)}")
    for name in names:
        if given.get(name) in (None, ""):
            raise UsageError(f"`repeats`: {kind} needs {name}, as in {kind}:{','.join(f'{n}=...' for n in names)}")
    runs = whole(given["runs"], "`repeats`: runs") if "runs" in names else 0
    others = {name: number(given[name], f"`repeats`: {name}") for name in names if name != "runs"}
    return Repeats(kind, runs=runs, **others)


def _mean(log_gamma: float, eta: float) -> float:
    """E[K] = eta (1 - gamma) / (gamma (1 - gamma^eta)); (1/gamma - 1) / ln(1/gamma) at eta = 0."""
    share = -math.expm1(log_gamma)
    if share == 0:
        return 1.0
    fall = -log_gamma if abs(eta) < 1e-12 else -math.expm1(min(eta * log_gamma, 700.0)) / eta
    return math.exp(min(-log_gamma + math.log(share / fall), 700.0))
