"""Upper bounds on membership inference, from a guarantee or from a privacy curve.

The bounds of a curve are those of the trade-off functions of both orders of the neighbours; see
``wpriv/core/membership.py``. docs/guides/what-eps-means.md has the proofs of those of a guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri, rel_entr

from wpriv.accounting import evaluate
from wpriv.accounting.mechanisms.dp import Dp, group_bound
from wpriv.accounting.mechanisms.gdp import Gdp
from wpriv.accounting.mechanisms.zcdp import Zcdp, group_xi
from wpriv.core.guarantee import RIGOROUS, Curve, Guarantee
from wpriv.core.mechanism import Mechanism
from wpriv.core.membership import MAX_WORK, Membership
from wpriv.core.process import Process, Step
from wpriv.core.trade_off import DEFAULT_FPR, GaussianMu
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.numbers import echo, finite_number, raised, rounded, short

RATES = (1e-3, 1e-2)
# the widest relative brackets of the points that bounds are derived from
WIDEST_TOL = 1e-3
# the most work for them beside an eps of pure DP, which itself takes none
PURE_WORK = 0.3e9


def chance_of_right_guess(row: Guarantee) -> dict[str, object] | None:
    """Return the chance of a right guess that Yang et al. (2024) derive from an eps, and what the notion really bounds.

    The neighbours are equally likely. 1/(1 + e^-eps) is the bound of pure DP. (eps, delta)-BDP bounds the mean over
    records by (e^eps + delta)/(1 + e^eps). WDP bounds nothing: a value released without noise has a finite WDP eps.
    None for notions to which the paper does not apply it.
    """
    eps, delta = row.epsilon.safe, row.delta.safe
    chance = 1 / (1 + math.exp(-min(eps, 700.0)))
    mean = min(1.0, chance + delta * math.exp(-min(eps, 700.0)) * chance)
    bounds = {
        "wdp": (
            1.0,
            "a wdp eps does not bound the chance of a right guess: a release without noise has a finite one too",
        ),
        "bdp": (mean, "(e^eps + delta)/(1 + e^eps), on average over records distributed like the observed pairs"),
    }
    if row.notion not in bounds:
        return None
    bound, why = bounds[row.notion]
    return {"paper": chance, "bound": bound, "why": why}


def attack_bounds(
    curve: Curve,
    rates: tuple[float, ...] = RATES,
    *,
    from_above: bool = False,
    largest: float = math.inf,
    work: float = MAX_WORK,
) -> dict[str, Any] | None:
    """Bound the advantage (largest TPR - FPR) and the TPR at each false-positive rate from both sides.

    The advantage is delta(0), the total variation distance. The rates are those of the better test of either order of
    the neighbours.

    Args:
        curve: a curve of notion approximate-dp and claim exact or certified; None is returned for any other.
        from_above: admit curves of claim upper-bound, whose lower bounds are the trivial ones.
        largest: the largest privacy loss, which bounds the rates where a curve takes too much work.
        work: the most work for points of the curve, in the units of ``counted_work``.
    Source: Dong, Roth, Su (2019), Proposition 2.12 (f-DP and its dual); Wasserman and Zhou (2010).
    """
    claims = RIGOROUS if from_above else ("exact", "certified")
    if curve.notion != "approximate-dp" or curve.claim not in claims:
        return None
    membership, pure = Membership(curve, work=work), Pair(largest, 0.0).attacks(rates)
    low, high = membership.advantage()
    rows = [
        {"fpr": point.fpr, "tpr_lower": point.tpr_lower, "tpr_upper": min(point.tpr_upper, pure.tpr[point.fpr])}
        for point in membership.error_rates(rates)
    ]
    return {"advantage_lower": low, "advantage_upper": min(high, pure.advantage), "tpr_at_fpr": rows}


# Figures of membership inference beside a guarantee: mu of Gaussian DP, and points of the trade-off curve.

# relative width of the deltas from which mu and the trade-off curve are made: many points, each needing fewer digits
POINT_TOL = 1e-4
CURVE_POINTS = 37


def membership(process: Process, accountant: str, tol: float | None = None) -> Membership:
    """Bounds on membership inference by one accountant; Unsupported without proven bounds of (eps, delta)-DP."""
    return Membership(evaluate.curve(process, accountant, POINT_TOL if tol is None else max(tol, POINT_TOL)))


def mu(process: Process, accountant: str, fpr: float | None = None, tol: float | None = None) -> GaussianMu:
    """mu of Gaussian DP for all tests with both error rates at least ``fpr`` (default 1e-9).

    Raises:
        UsageError: ``fpr`` is outside (0, 1/2].
        Unsupported: as ``membership``; or no finite mu holds.
    """
    result = membership(process, accountant, tol).mu(DEFAULT_FPR if fpr is None else fpr)
    if math.isinf(result.upper):
        raise Unsupported(
            f"no finite mu was proven by {accountant} for every false-positive rate of at least {result.fpr:g}: some "
            f"test may have no error at all there; mu is at least {result.lower:.6g}. Add noise, or run fewer steps"
        )
    return result


def with_mu(row: Guarantee, value: GaussianMu, *, alone: bool) -> Guarantee:
    """The guarantee with mu beside it; with ``alone``, mu is what was asked, and the claim is that of mu."""
    revealed = evaluate.infinity_mass(row.process)
    if revealed > 0:
        note = (
            f"the distinguishing events, of {evaluate.mass_text(revealed, 3)}, give a record away without a false "
            f"positive: mu grows without bound as the smallest false-positive rate falls"
        )
        row = evaluate.with_warnings(row, [note])
    row = row.with_extra(
        mu=value.upper,
        mu_lower=value.lower,
        mu_upper=value.upper,
        mu_fpr=0.0 if value.exact else value.fpr,
        mu_regret=value.regret,
        mu_orders=[{"order": name, "mu_lower": low, "mu_upper": high} for name, low, high in value.orders],
    )
    if not alone:
        return row
    inexact = row.claim == "exact" and not value.exact
    return replace(row, claim="certified" if inexact else row.claim).with_extra(asked="mu")


def with_true_positive_rate(row: Guarantee, curve: Curve, fpr: float, tol: float, work: float) -> Guarantee:
    """The guarantee of the true-positive rate at ``fpr``, certified from both sides, under ``extra["attack"]``."""
    bounds = Membership(curve, work=work)
    (point,) = bounds.error_rates([fpr], tol)
    low, high = bounds.advantage()
    rates = {"fpr": fpr, "tpr_lower": point.tpr_lower, "tpr_upper": point.tpr_upper}
    attack = {"advantage_lower": low, "advantage_upper": high, "tpr_at_fpr": [rates]}
    claim = "certified" if row.claim == "exact" else row.claim
    return replace(row, claim=claim).with_extra(asked="tpr", attack=attack)


def point_row(bounds: Membership, fpr: float) -> dict[str, object]:
    """The best attack at one false-positive rate, and mu for tests with both error rates at least that (up to 1/2).

    Columns: ``fnr_lower``, ``fnr_upper``, ``tpr_lower``, ``tpr_upper``, ``mu_lower``, ``mu_upper`` and ``mu_regret``.
    """
    (point,) = bounds.error_rates([fpr], POINT_TOL * 10)
    value = bounds.mu(fpr) if fpr <= 0.5 else None
    rates = {key: getattr(point, key) for key in ("fnr_lower", "fnr_upper", "tpr_lower", "tpr_upper")}
    finite = value is not None and math.isfinite(value.upper)
    return {
        **rates,
        "mu_lower": None if value is None else value.lower,
        "mu_upper": value.upper if value is not None and finite else None,
        "mu_regret": value.regret if value is not None and finite else None,
    }


def trade_off_rows(
    process: Process, accountant: str, fpr: float | None = None, tol: float | None = None
) -> list[dict[str, object]]:
    """Points of the trade-off curve at false-positive rates from ``fpr`` (default 1e-9) to 1, equally spaced in ln FPR.

    Each row has ``fpr``; ``fnr_lower`` and ``fnr_upper`` of the best test of either order of the neighbours; the same
    for each order where they differ, as ``remove_fnr_lower``; ``guess``, the false-negative rate 1 - FPR of a test
    that only guesses; and ``gauss``, that of mu-GDP at the upper end of mu for this smallest rate (none where it
    is infinite), with ``mu_lower``, ``mu_upper`` and ``mu_regret``.

    Raises:
        UsageError: ``fpr`` is outside (0, 1/2]. Unsupported: as ``membership``.
    """
    lowest = DEFAULT_FPR if fpr is None else finite_number(fpr, "`fpr`")
    bounds = membership(process, accountant, tol)
    value = bounds.mu(lowest)
    grid = np.geomspace(lowest, 1.0, CURVE_POINTS)
    rates = [lowest, *(rounded(float(rate), up=True, digits=4) for rate in grid[1:-1]), 1.0]
    orders = {
        name: bounds.order_rates(order, rates) for name, order in zip(bounds.names, bounds.trade_offs, strict=True)
    }
    about = {"mu_lower": value.lower, "mu_upper": value.upper, "mu_regret": value.regret}
    rows = []
    for index, rate in enumerate(rates):
        points = {name.replace(" ", "_").lower(): curve[index] for name, curve in orders.items()}
        row = {"fpr": rate}
        row |= {end: min(getattr(point, end) for point in points.values()) for end in ("fnr_lower", "fnr_upper")}
        if len(points) > 1:
            for name, point in points.items():
                row |= {f"{name}_fnr_lower": point.fnr_lower, f"{name}_fnr_upper": point.fnr_upper}
        gauss = float(ndtr(-ndtri(rate) - value.upper)) if math.isfinite(value.upper) else None
        rows.append({**row, "guess": 1 - rate, "gauss": gauss, **about})
    return rows


# What is known of a release: a pair of eps and delta, mu of Gaussian DP, rho of zero-concentrated DP, or the process
# itself; ``str`` names it. Each bounds the tests of all attackers, is known for groups of people, each of whom is a
# record, and for several such releases. It has a ``pair`` of eps and delta, of which eps may be infinite, and a privacy
# ``curve``, None where that says no more than the pair.

# relative errors of the closed forms below lie far under it
ROUNDING = 1e-12
# several roundings of a double near 1
UNIT = 1e-15
# relative width of the points of a privacy curve: four digits of a bound
CURVE_TOL = 1e-4
# orders at which the Renyi divergences of two outcomes are compared with rho, beside the order 1
ORDERS = 1 + np.geomspace(1e-3, 1e5, 800)
BISECTIONS = 60
NOTHING = "no guarantee: delta is 1"


@dataclass(frozen=True)
class Attacks:
    """Upper bounds for every attacker, who may know all other records.

    Args:
        advantage: the largest true-positive less false-positive rate of any test.
        tpr: the largest true-positive rate at each false-positive rate that was asked.
        claim: exact (some release with this guarantee allows as much), certified or upper-bound.
        source: the theorem, or the accountant.
    """

    advantage: float
    tpr: dict[float, float]
    claim: str
    source: str

    @property
    def right_guess(self) -> float:
        """The largest probability of a right guess where both answers are equally likely beforehand."""
        guess = (1 + self.advantage) / 2
        return guess if 2 * guess - 1 >= self.advantage else math.nextafter(guess, 1.0)


@dataclass(frozen=True)
class Pair:
    """(eps, delta)-DP of each of some ``releases``, for both orders of the neighbours."""

    eps: float
    delta: float
    releases: int = 1

    def __str__(self) -> str:
        eps, delta = map(_short, self.pair())
        return f"({eps}, {delta})-DP" if float(delta) not in (0, 1) else f"pure {eps}-DP" if delta == "0" else NOTHING

    def attacks(self, fprs: Sequence[float]) -> Attacks:
        """The trade-off region of Kairouz, Oh and Viswanath (2015); for several releases that of their composition."""
        if self.releases > 1:
            try:
                return _of_curve(evaluate.curve(_process(Dp(self.eps, self.delta), self.releases), "pld"), fprs)
            except Unsupported:  # some release reveals the record, almost certainly
                return Pair(*self.pair()).attacks(fprs)
        grown, margin = math.exp(min(self.eps, 700.0)), 1 + ROUNDING if self.eps else 1.0
        advantage = math.tanh(self.eps / 2) + 2 * self.delta / (grown + 1)
        rates = {fpr: min(1.0, margin * most_true_positives(self.eps, self.delta, fpr)) for fpr in fprs}
        return Attacks(min(1.0, advantage * margin), rates, "exact", "Kairouz, Oh, Viswanath 2015")

    def pair(self) -> tuple[float, float]:
        if self.releases == 1:
            return self.eps, self.delta
        # no release fails with probability (1 - delta)^k; then the losses add up
        delta = -math.expm1(self.releases * math.log1p(-self.delta)) if self.delta else 0.0
        return self.releases * self.eps, min(raised(delta), 1.0)

    def curve(self) -> Curve | None:
        return None

    def grouped(self, people: int) -> Pair:
        return Pair(*group_bound(self.eps, self.delta, people))

    def repeated(self, releases: int) -> Pair:
        return replace(self, releases=releases)


def most_true_positives(eps: float, delta: float, fpr: float) -> float:
    """Bound the true-positive rate of every test with some false-positive rate, under (eps, delta)-DP.

    Both orders of the neighbours bound it: TPR <= e^eps FPR + delta, and 1 - FPR <= e^eps (1 - TPR) + delta.

    Args:
        eps, delta: of the guarantee, which holds for both orders. fpr: in [0, 1].
    Returns:
        The smaller of both bounds, in [0, 1]; attained by a mechanism with this very guarantee.
    Source: Kairouz, Oh, Viswanath (2015), Theorem 2.1 and Section 2.

    >>> most_true_positives(0.0, 0.1, 0.01)
    0.11
    """
    first = math.exp(min(eps, 700.0)) * fpr + delta
    # 1 - e^-eps (1 - fpr - delta), which keeps its digits where it is small
    second = math.exp(-eps) * (fpr + delta) - math.expm1(-eps)
    return min(1.0, first, second)


@dataclass(frozen=True)
class Mu:
    """mu-Gaussian DP, mu above 0; ``delta`` is that of its pair."""

    mu: float
    delta: float

    def __str__(self) -> str:
        return f"{_short(self.mu)}-GDP"

    def attacks(self, fprs: Sequence[float]) -> Attacks:
        """Tests between N(0, 1) and N(mu, 1): Dong, Roth, Su (2022), Definition 2.6."""
        rates = {fpr: min(1.0, (1 + ROUNDING) * float(ndtr(ndtri(fpr) + self.mu))) for fpr in fprs}
        advantage = min(1.0, (1 + ROUNDING) * math.erf(self.mu / math.sqrt(8)))
        return Attacks(advantage, rates, "exact", "Dong, Roth, Su 2022")

    def pair(self) -> tuple[float, float]:
        return self.curve().epsilon(delta=self.delta), self.delta

    def curve(self) -> Curve:
        return evaluate.curve(_process(Gdp(self.mu)), "pld")

    def grouped(self, people: int) -> Mu:
        return replace(self, mu=people * self.mu)

    def repeated(self, releases: int) -> Mu:
        return replace(self, mu=raised(math.sqrt(releases) * self.mu))


@dataclass(frozen=True)
class Rho:
    """(xi, rho)-zCDP, rho above 0; ``delta`` is that of its pair."""

    rho: float
    delta: float
    xi: float = 0.0

    def __str__(self) -> str:
        return f"({_short(self.xi)}, {_short(self.rho)})-zCDP" if self.xi else f"{_short(self.rho)}-zCDP"

    def attacks(self, fprs: Sequence[float]) -> Attacks:
        """The rates of two-outcome tests whose Renyi divergences are at most xi + rho alpha at every order, both ways.

        Source: Data processing (van Erven, Harremoes 2014, Theorem 9) for the two outcomes of a test, as in Balle,
            Barthe, Gaboardi, Hsu, Sato (2020). The best sum of errors is at TPR = 1 - FPR, since the region of allowed
            rates is convex and symmetric.
        """
        tpr = self._most(lambda tpr: (tpr, 1 - tpr), 0.5)

        def largest(fpr: float) -> float:
            return self._most(lambda tpr: (tpr, fpr), fpr)

        # the second by Pinsker's inequality, which keeps its digits where rho is tiny
        advantage = min(2 * tpr - 1, math.sqrt((self.xi + self.rho) / 2) * (1 + ROUNDING))
        rates = {fpr: min(largest(fpr), fpr + advantage) for fpr in fprs}
        return Attacks(advantage, rates, "upper-bound", "Balle, Barthe, Gaboardi, Hsu, Sato 2020")

    def _most(self, rates: Callable[[float], tuple[float, float]], low: float) -> float:
        """The largest TPR from ``low`` on whose test is allowed, rounded up; divergences grow with it."""
        high = 1.0
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._allows(*rates(middle)) else (low, middle)
        return high

    def _allows(self, tpr: float, fpr: float) -> bool:
        for p, q in ((tpr, fpr), (fpr, tpr)):
            with np.errstate(divide="ignore"):
                in_p, in_q = np.log([p, 1 - p]), np.log([q, 1 - q])
            parts = ORDERS[:, None] * in_p, (1 - ORDERS[:, None]) * in_q
            outcomes = parts[0] + parts[1]
            # of the sums, and of the logarithms
            rounding = np.where(np.isfinite(outcomes), np.abs(parts[0]) + np.abs(parts[1]), 0.0).max(axis=1) * UNIT
            with np.errstate(over="ignore"):  # a bound of infinity allows everything
                allowed = (ORDERS - 1) * (self.xi + ORDERS * self.rho) * (1 + ROUNDING) + rounding + UNIT
            if np.any(np.logaddexp.reduce(outcomes, axis=1) > allowed):
                return False
            if rel_entr(p, q) + rel_entr(1 - p, 1 - q) > (self.xi + self.rho) * (1 + ROUNDING) + UNIT:
                return False
        return True

    def pair(self) -> tuple[float, float]:
        return self.curve().epsilon(delta=self.delta), self.delta

    def curve(self) -> Curve:
        return evaluate.curve(_process(Zcdp(self.rho, self.xi)), "rdp")

    def grouped(self, people: int) -> Rho:
        return replace(self, rho=people**2 * self.rho, xi=group_xi(self.xi, people))

    def repeated(self, releases: int) -> Rho:
        return replace(self, rho=releases * self.rho, xi=releases * self.xi)


@dataclass(frozen=True)
class Ran:
    """A process that ran, by its certified privacy curve, and a pair of eps and delta that holds for it."""

    process: Process
    eps: float
    delta: float

    def __str__(self) -> str:
        if math.isinf(self.eps):
            return f"no finite eps at delta {_short(self.delta)}"
        return f"({_short(self.eps)}, {_short(self.delta)})-DP"

    def attacks(self, fprs: Sequence[float]) -> Attacks:
        """From the whole curve; and from its pair and the largest loss, where the work for the curve was too much."""
        bounds = _of_curve(self.curve(), fprs)
        largest = evaluate.largest_loss(self.process)
        pairs = [Pair(self.eps, self.delta).attacks(fprs), Pair(largest, 0.0).attacks(fprs)]
        rates = {fpr: min([most, *(pair.tpr[fpr] for pair in pairs)]) for fpr, most in bounds.tpr.items()}
        return replace(bounds, advantage=min([bounds.advantage, *(pair.advantage for pair in pairs)]), tpr=rates)

    def pair(self) -> tuple[float, float]:
        return self.eps, self.delta

    def curve(self) -> Curve:
        return curve_of(self.process)

    def grouped(self, people: int) -> Known:
        """By the pairs of groups where the mechanisms have such, else by the bound on its pair of eps and delta."""
        try:
            return ran(replace(self.process, group=people * self.process.group), self.delta)
        except (Unsupported, UsageError):
            return Pair(*self.pair()).grouped(people)

    def repeated(self, releases: int) -> Known:
        if any(step.observed is not None for step in self.process.steps):
            return Pair(*self.pair()).repeated(releases)
        steps = tuple(replace(step, n=releases * step.n) for step in self.process.steps)
        return ran(self.process.with_steps(steps), self.delta)


Known = Pair | Mu | Rho | Ran


def ran(process: Process, delta: float) -> Ran:
    """A process, and the eps that it has at one delta; at delta = 0 eps is the largest privacy loss.

    Raises:
        Unsupported: no accountant has proven bounds; or delta is 0, and no finite eps holds there.
    """
    curve = curve_of(process, evaluate.answer_tol(process))
    eps = curve.epsilon(delta=delta) if delta else evaluate.ask(curve, delta=0.0).epsilon.safe
    return Ran(process, eps, delta)


def curve_of(process: Process, tol: float = CURVE_TOL) -> Curve:
    """The curve by the first accountant with proven bounds that does not refuse; else Unsupported, as of pld."""
    refusals = []
    for name in evaluate.PROVING:
        try:
            return evaluate.curve(process, name, max(tol, evaluate.answer_tol(process)))
        except Unsupported as error:
            refusals.append(error)
    raise refusals[0]


def _of_curve(curve: Curve, fprs: Sequence[float]) -> Attacks:
    bounds = Membership(curve)
    rates = {point.fpr: point.tpr_upper for point in bounds.error_rates(fprs)} if fprs else {}
    return Attacks(bounds.advantage()[1], rates, curve.claim, curve.accountant)


def _short(value: float) -> str:
    """A number with its own digits where they are few, else rounded up."""
    return short(value if len(echo(value)) <= 8 else rounded(value, up=True))


def _process(mechanism: Mechanism, n: int = 1) -> Process:
    return Process((Step(mechanism, n),))
