"""Answers of accountants: a privacy curve, and one point of it with its provenance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from wpriv._version import __version__
from wpriv.core.loss_pair import Bounds, LossPair, log_profile_ends
from wpriv.core.membership import ErrorRates, Membership
from wpriv.core.process import Process
from wpriv.core.trade_off import DEFAULT_FPR, GaussianMu
from wpriv.errors import Unsupported, UsageError
from wpriv.files.shown import Shown, html_of, latex, latex_row
from wpriv.numerics.bracket import TINY, Bracket
from wpriv.numerics.numbers import finite_number, short, text
from wpriv.numerics.root_finding import smallest_meeting

CLAIMS = {
    "exact": "a closed form, right to rounding",
    "certified": "a rigorous bracket [lower, upper]; the printed number is its safe end",
    "upper-bound": "rigorous from above only",
    "approximate": "a limit or an estimate, which may be on the unsafe side; shown with a warning",
    "as-published": "the formula of a paper as printed, which is no (eps, delta)-DP guarantee",
}
# the claim of an audit (wpriv/training/audit): a lower bound of eps at a stated confidence; no ``Guarantee`` has it
STATISTICAL = "statistical"
# the claims on which a guarantee of (eps, delta)-DP may rest
RIGOROUS = ("exact", "certified", "upper-bound")
# claims as an answer says them
CLAIM_WORDS = {
    "upper-bound": "upper bound",
    "approximate": "APPROXIMATE, not a guarantee",
    "as-published": "as published, not an (eps, delta) guarantee",
}
# the order of the neighbours, by what a false positive of an attack is there
ORDERS = {
    "remove": "where a false positive is a non-member flagged as a member (order remove)",
    "add": "where a false positive is a member flagged as a non-member (order add)",
}
# rounding of ln delta of a pair in closed form, relative to 1 + |ln delta|: ten times the largest that was seen
ROUNDING = 1e-13
# brackets wider than this, relative to eps or delta and for eps below 1 absolute, are no longer called exact
WIDTH_OF_EXACT = 1e-9
# relative width from which on a headline has both ends of a bracket
WIDE = 1e-3
SCHEMA = "wpriv.guarantee/1"
# of a Bracket, in the order of its fields
ENDS = ("estimate", "lower", "upper")
# delta at an eps, in one order of the neighbours; the second argument is a relative width that suffices, 0 by default
OrderDelta = Callable[..., Bracket]


@dataclass(frozen=True, repr=False)
class Guarantee(Shown):
    """One point of a privacy curve: eps and delta with their bounds, the kind of claim, the process and the source.

    ``float(guarantee)`` is the end of the answer that may be promised (of eps where delta was given, of delta where eps
    was); ``float(guarantee.epsilon)`` and ``float(guarantee.delta)`` are those of both. ``str(guarantee)`` is a
    sentence, ``guarantee.headline()`` its beginning, ``guarantee.facts()`` the rest of what the command line prints.

    Args:
        notion: approximate-dp, probabilistic-dp, rdp, wdp or bdp.
        claim: exact, certified, upper-bound, approximate or as-published.
        accountant: the name of the accountant.
        epsilon: eps with both ends.
        delta: delta with both ends.
        process: what the guarantee is about.
        source: paper and theorem.
        warnings: what has to be said beside the figures.
        extra: further keys of ``as_dict``, such as ``reading``, ``attack`` or ``calibrated``.
    """

    notion: str
    claim: str
    accountant: str
    epsilon: Bracket
    delta: Bracket
    process: Process
    source: str
    warnings: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of the command line (schema ``wpriv.guarantee/1``), with infinities still floats."""
        steps = ((index, step.mechanism.computed()) for index, step in enumerate(self.process.steps))
        computed = [{"step": index, **figures} for index, figures in steps if figures]
        return {
            "schema": SCHEMA,
            "notion": self.notion,
            "claim": self.claim,
            "accountant": self.accountant,
            **self.epsilon.as_dict("epsilon"),
            **self.delta.as_dict("delta"),
            "adjacency": self.process.adjacency,
            "group": self.process.group,
            **({"records": self.process.records} if self.process.records else {}),
            "process": self.process.describe(),
            "premises": [premise.sentence for premise in self.process.premises()],
            **({"computed": computed} if computed else {}),
            "source": self.source,
            "warnings": list(self.warnings),
            "version": __version__,
            **self.extra,
        }

    @classmethod
    def of_dict(cls, stated: Mapping[str, Any], process: Process) -> Guarantee:
        """The guarantee of which ``as_dict`` is this, about a process that is known."""
        epsilon, delta = (Bracket(*(stated[f"{name}_{end}"] for end in ENDS)) for name in ("epsilon", "delta"))
        kind, source, warnings = (stated["notion"], stated["claim"]), stated["source"], tuple(stated["warnings"])
        guarantee = cls(*kind, stated["accountant"], epsilon, delta, process, source, warnings)
        known = guarantee.as_dict().keys() | {"computed"}
        return guarantee.with_extra(**{key: value for key, value in stated.items() if key not in known})

    def with_extra(self, **extra: Any) -> Guarantee:
        return replace(self, extra={**self.extra, **extra})

    def __float__(self) -> float:
        return self.answered()[1].safe

    def sentence(self) -> str:
        runs = f", {best}" if (best := self._best_of_runs()) else ""
        return f"{self.headline()} by {self.accountant}: {self.process}{runs}"

    def answered(self) -> tuple[str, Bracket]:
        """The name and the bracket of the computed quantity: eps, delta, mu or TPR."""
        asked = self.extra.get("asked")
        if asked == "mu":
            return "mu", _mu_of(self.extra)
        if asked == "tpr":
            (point,) = self.extra["attack"]["tpr_at_fpr"]
            return "TPR", Bracket(point["tpr_upper"], point["tpr_lower"], point["tpr_upper"])
        return ("delta", self.delta) if asked == "delta" else ("eps", self.epsilon)

    def at_words(self) -> str:
        """Where the answer holds: ``delta 1e-5``, ``eps 3``, ``FPR 0.01``, or the rates of the attacks for mu."""
        name, _ = self.answered()
        if "order" in self.extra:
            return ""
        if name == "mu":
            return range_words(self.extra["mu_fpr"])
        if name == "TPR":
            return f"FPR {short(self.extra['attack']['tpr_at_fpr'][0]['fpr'])}"
        return f"eps {short(self.epsilon.safe)}" if name == "delta" else f"delta {short(self.delta.safe)}"

    def headline(self, limit: float | None = None) -> str:
        """The answer with its claim: ``eps = 2.30077 (certified, delta 1e-4)``, rounded up; with its bracket if wide.

        Args:
            limit: a bound on eps; eps gets as many digits as show on which side of it eps lies.
        """
        name, bracket = self.answered()
        name = f"Renyi divergence of order {short(self.extra['order'])}" if "order" in self.extra else name
        # a number too small for a double is known as a bound only, whatever the claim
        sign = "<=" if bracket.safe == TINY else "="
        value = text(bracket.safe, up=True, limit=limit)
        notion = "" if self.notion == "approximate-dp" or "order" in self.extra else self.notion
        words = [CLAIM_WORDS.get(self.claim, self.claim), notion, self.at_words()]
        is_wide = bracket.safe > TINY and bracket.safe - (bracket.lower or 0.0) > WIDE * bracket.safe
        between = f"in {bracket.text(limit)}" if self.claim == "certified" and is_wide else ""
        if calibrated := self.extra.get("calibrated"):
            words.insert(2, f"{name} {between or (value if sign == '=' else f'{sign} {value}')}")
            name, sign, value = calibrated["parameter"], "=", f"{calibrated['value']:.13g}"
        elif between:
            words[0] += f" {between}"
        return f"{name} {sign} {value} ({', '.join(filter(None, words))})"

    def facts(self, limit: float | None = None) -> list[tuple[str, str]]:
        """Return the process, neighbours, bracket, accountant, source and notes, each with its label."""
        rows = self.process.facts()
        if best := self._best_of_runs():
            rows.append(("runs", best))
        name, bracket = self.answered()
        if self.claim == "certified" or (self.claim == "upper-bound" and bracket.lower):
            rows.append(("bracket", f"{name} in {bracket.text(limit)}"))
        elif self.claim == "upper-bound":
            rows.append(("bracket", "no lower bound"))
        rows += [("accountant", self.accountant), ("source", self.source)]
        rows += [("read as", note) for note in self.extra.get("reading", [])]
        return rows + self._distance_to_best() + self._mu()

    def _best_of_runs(self) -> str:
        chosen = self.extra.get("repeats")
        return f"the best of K runs, K {chosen['kind']} with mean {chosen['mean']:g}" if chosen else ""

    def attacks(self) -> list[tuple[str, str, str]]:
        """The best membership attack: its advantage and true-positive rates, each with a lower and an upper end.

        The lower ends are empty where none is known: of the best of several runs, chosen by a given score.
        """
        attack = self.extra.get("attack")
        if attack is None:
            return []
        ends = [("advantage (TPR minus FPR)", attack["advantage_lower"], attack["advantage_upper"])]
        ends += [(f"TPR at FPR {short(p['fpr'])}", p["tpr_lower"], p["tpr_upper"]) for p in attack["tpr_at_fpr"]]
        from_above = "repeats" in self.extra
        return [(name, "" if from_above else text(low, up=False), text(high, up=True)) for name, low, high in ends]

    def _distance_to_best(self) -> list[tuple[str, str]]:
        """The nearest value that misses the target, and the relative distance of the calibrated one from it."""
        calibrated = self.extra.get("calibrated")
        if not calibrated or self.extra.get("room", {}).get("accountant"):
            return []
        best = "most" if "most" in calibrated else "least"
        if not (calibrated["misses"] and calibrated["within"]):
            known = {True: "the next larger value misses the target", False: "a larger value may meet the target too"}
            return [(best, known[calibrated["most"]])] if "most" in calibrated else []
        within = text(calibrated["within"], up=True, digits=2)
        misses = f"{calibrated['misses']:.13g} misses the target"
        return [(best, f"{misses}; {calibrated['value']:.13g} is within {within} (relative) of the {best}")]

    def _mu(self) -> list[tuple[str, str]]:
        """mu of Gaussian DP, where it is not the answer, and that of each order of the neighbours."""
        if "mu" not in self.extra:
            return []
        rows = [] if self.extra["asked"] == "mu" else [(self.extra, range_words(self.extra["mu_fpr"]))]
        orders = self.extra["mu_orders"]
        rows += [(each, ORDERS.get(each["order"], each["order"])) for each in (orders if len(orders) > 1 else [])]
        bound = text(self.extra["mu_regret"], up=True, digits=2)
        regret = f"at most {bound}, by which mu understates both error rates of the best attack"
        words = [("mu", f"{_mu_of(each).text()}, {words}") for each, words in rows]
        return [*words, ("regret", regret if self.extra["mu_regret"] else "0, the trade-off curve is that of mu")]

    def to_latex(self) -> str:
        """A row of a LaTeX table, escaped: process, accountant, claim, and the answer with where it holds."""
        name, bracket = self.answered()
        answer = f"{name} = {text(bracket.safe, up=True)}"
        cells = [str(self.process), self.accountant, self.claim, answer, self.at_words()]
        return latex_row(cells)

    def _repr_html_(self) -> str:
        attacks = [(name, f"[{low}, {high}]" if low else f"at most {high}") for name, low, high in self.attacks()]
        return html_of(self.headline(), [*self.facts(), *attacks, *self.warned()])

    def _repr_latex_(self) -> str:
        return latex(self.headline())


def _mu_of(keys: Mapping[str, Any]) -> Bracket:
    return Bracket(keys["mu_upper"], keys["mu_lower"], keys["mu_upper"])


def range_words(fpr: float) -> str:
    """The attacks for which mu holds: those whose error rates are at least ``fpr``, all of them where it is 0."""
    return f"at every FPR >= {short(fpr)} with FNR >= {short(fpr)}" if fpr else "at every FPR"


@dataclass(frozen=True, repr=False)
class Curve(Shown):
    """The privacy curve of a process by one accountant: delta at every eps, and eps at every delta.

    ``curve.epsilon(delta=...)`` and ``curve.delta(eps=...)`` are plain numbers on the safe side; ``curve.at(...)`` is a
    ``Guarantee`` with both ends, its claim and its source.

    Args:
        process: the process that the curve is about.
        accountant: the name of the accountant.
        notion: approximate-dp, probabilistic-dp, rdp, wdp or bdp.
        claim: exact, certified, upper-bound, approximate or as-published.
        source: paper and theorem.
        delta_bracket: maps eps >= 0 to a Bracket of delta.
        epsilon_bracket: maps delta in (0, 1) to a Bracket of eps >= 0.
        pure_epsilon: the Bracket of eps at delta = 0, which is the largest privacy loss; None where the accountant has
            no answer.
        warnings: what every answer must say beside it.
        tol: relative width asked of a bracket, where a wider one gets a warning.
        orders: the delta of each order of the neighbours alone, as in ``Process.directions``, at an eps and a
            relative width that suffices; empty where the accountant knows only the worse of both.
        order: of a Renyi divergence, which is the same at every delta; None for curves of eps and delta.
    """

    process: Process
    accountant: str
    notion: str
    claim: str
    source: str
    delta_bracket: Callable[[float], Bracket]
    epsilon_bracket: Callable[[float], Bracket]
    warnings: tuple[str, ...] = ()
    tol: float | None = None
    orders: tuple[OrderDelta, ...] = ()
    order: float | None = None
    pure_epsilon: Callable[[], Bracket] | None = None

    def sentence(self) -> str:
        claim = CLAIM_WORDS.get(self.claim, self.claim)
        return f"privacy curve ({claim}) by {self.accountant}: {self.process}"

    def facts(self) -> list[tuple[str, str]]:
        """What the curve is about, and its source."""
        return [*self.process.facts(), ("accountant", self.accountant), ("source", self.source)]

    def epsilon(self, *, delta: float) -> float:
        """The smallest eps that may be promised at this delta: the upper end; inf where no finite eps holds.

        Raises:
            UsageError: delta is below 0, or 1 or more.
            Unsupported: the accountant has no answer.
        """
        return self.at(delta=delta).epsilon.safe

    def delta(self, *, eps: float) -> float:
        """The smallest delta that may be promised at this eps: the upper end.

        Raises:
            UsageError: eps is negative or not finite.
            Unsupported: the accountant has no answer.
        """
        return self.at(eps=eps).delta.safe

    def mu(self, *, fpr: float = DEFAULT_FPR) -> GaussianMu:
        """The least mu of Gaussian DP for all tests of membership with both error rates at least ``fpr``.

        ``float(curve.mu())`` is the upper end, which may be promised; ``.lower``, ``.upper`` and ``.orders`` have more.

        Raises:
            UsageError: ``fpr`` is outside (0, 1/2].
            Unsupported: the curve has no proven bounds of (eps, delta)-DP.
        """
        return Membership(self).mu(fpr)

    def trade_off(self, *, fpr: float) -> ErrorRates:
        """Bounds of the least false-negative and the largest true-positive rate of any test of membership at ``fpr``.

        Raises:
            UsageError: ``fpr`` is outside (0, 1].
            Unsupported: the curve has no proven bounds of (eps, delta)-DP.
        """
        return Membership(self).error_rates([fpr])[0]

    def at(self, *, eps: float | None = None, delta: float | None = None) -> Guarantee:
        """The guarantee at one eps or at one delta; exactly one must be given.

        Raises:
            UsageError: both or neither are given, eps is negative or not finite, or delta is not in [0, 1).
            Unsupported: the accountant has no answer.
        """
        if (eps is None) == (delta is None):
            given = "neither" if eps is None else "both"
            raise UsageError(f"give eps to learn delta, or delta to learn eps; found {given}")
        if eps is not None:
            eps = finite_number(eps, "eps")
            if eps < 0:
                raise UsageError(f"eps must be a finite number of at least 0; found {eps}")
            return self._row("delta", Bracket.exact(eps), self.delta_bracket(eps))
        delta = finite_number(delta, "delta")
        if not 0 <= delta < 1:
            raise UsageError(f"delta must be at least 0 and below 1; found {delta}")
        if delta > 0:
            return self._row("eps", self.epsilon_bracket(delta), Bracket.exact(delta))
        if self.pure_epsilon is None:
            raise Unsupported(f"{self.accountant} has no finite eps at delta = 0 (pure DP). Give a `delta` above 0")
        row = self._row("eps", self.pure_epsilon(), Bracket.exact(0.0))
        is_exact = self.claim == "certified" and _is_narrow(row.epsilon, least_scale=1.0)
        source = "; ".join(filter(None, (self.process.citations(), row.epsilon.by)))
        return replace(row, claim="exact", source=source) if is_exact else row

    def _row(self, asked: str, epsilon: Bracket, delta: Bracket) -> Guarantee:
        notes = []
        for name, bracket in (("eps", epsilon), ("delta", delta)):
            others = "has no answer here, and the bounds are those of others"
            wide = f"the bracket of {name} is wider than `tol={self.tol or 0.0:g}`; both of its ends hold"
            if bracket.refusal:
                notes.append(f"{self.accountant} {others}: {bracket.refusal}")
            elif self.is_wide(bracket) and math.isfinite(bracket.safe):
                notes.append(f"{self.accountant}: {wide}")
        warnings = self.process.caveats() + self.warnings + tuple(notes)
        # a number that is only known to lie in an interval is not exact, whatever it was computed from
        is_exact = _is_narrow(epsilon, least_scale=1.0) and _is_narrow(delta, least_scale=0.0)
        claim = "upper-bound" if self.claim == "exact" and not is_exact else self.claim
        source = "; ".join([self.source, *(bracket.by for bracket in (epsilon, delta) if bracket.by)])
        extra = {"asked": asked}
        return Guarantee(self.notion, claim, self.accountant, epsilon, delta, self.process, source, warnings, extra)

    @property
    def is_proven(self) -> bool:
        """True if the curve is a proven bound of (eps, delta)-DP, from which bounds on attacks may be derived."""
        return self.notion == "approximate-dp" and self.claim in RIGOROUS

    def is_wide(self, bracket: Bracket) -> bool:
        """Tell whether a bracket is wider than ``tol``."""
        if self.tol is None or bracket.lower is None or bracket.upper is None or bracket.upper <= TINY:
            return False
        return math.isinf(bracket.upper) or bracket.upper - bracket.lower > 1.5 * self.tol * bracket.upper


def unit_notes(notions: Iterable[str | None]) -> list[str]:
    """Notes for a table of several notions: which of its figures may not be compared."""
    distinct = list(dict.fromkeys(notion for notion in notions if notion))
    if len(distinct) < 2:
        return []
    notes = [f"{', '.join(distinct)} have different units: compare numbers of the same notion only"]
    if "wdp" in distinct:
        notes.append(
            "a wdp eps has the unit of the output and may grow with the noise: a small one does not mean more privacy"
        )
    return notes


def curve_of_pair(process: Process, pairs: list[LossPair], *, accountant: str, source: str) -> Curve:
    """The exact curve of a process whose composition is known in closed form, one pair for each direction."""

    def log_ends(eps: float) -> tuple[float, float]:
        low, high = zip(*(log_profile_ends(pair, eps) for pair in pairs), strict=True)
        return max(low), max(high)

    def order(pair: LossPair) -> OrderDelta:
        return lambda eps, width=0.0: Bracket.of_logs(*log_profile_ends(pair, eps))

    def delta(eps: float) -> Bracket:
        return Bracket.of_logs(*log_ends(eps))

    revealed = max(pair.mass_at_plus_infinity for pair in pairs)

    def epsilon(delta: float) -> Bracket:
        # at once, and not after a search up to the largest double; the margin is for the rounding of the mass
        if delta < revealed * (1 - 1e-9):
            return Bracket(math.inf, math.inf, math.inf)
        least, safe = epsilon_ends(log_ends, delta, high=max(pair.support[1] for pair in pairs))
        return Bracket(safe, least, safe)

    orders = tuple(order(pair) for pair in pairs)
    return Curve(process, accountant, "approximate-dp", "exact", source, delta, epsilon, orders=orders)


def epsilon_ends(log_ends: Bounds, delta: float, *, high: float) -> tuple[float, float]:
    """Both ends of eps at delta, rounded outwards, of a profile between two ends; arguments as for ``epsilon_at``."""
    # by the rounding of the profile and of the search
    slack = ROUNDING * (1 - math.log(delta))
    safe = epsilon_at(lambda eps: log_ends(eps)[1] + slack, delta, high=high, rtol=ROUNDING)
    if not 0 < safe < math.inf:
        return (epsilon_at(lambda eps: log_ends(eps)[1], delta, high=high),) * 2
    least = epsilon_at(lambda eps: log_ends(eps)[0] - slack, delta, guess=safe, high=high, rtol=ROUNDING)
    # no eps is needed beyond the largest loss, which is also the answer at delta = 0
    safe = min(safe * (1 + 2 * ROUNDING), max(high, 0.0))
    return min(least * (1 - 2 * ROUNDING), safe), safe


def _is_narrow(bracket: Bracket, least_scale: float) -> bool:
    """Return whether both ends are the same up to roundings, relative to the upper one or to a least scale."""
    if bracket.lower is None or bracket.upper is None:
        return False
    same = bracket.lower == bracket.upper  # also where both are infinite
    return same or bracket.upper - bracket.lower <= WIDTH_OF_EXACT * max(bracket.upper, least_scale) < math.inf


def epsilon_at(
    log_delta: Callable[[float], float],
    delta: float,
    *,
    guess: float = 1.0,
    high: float = math.inf,
    rtol: float = 1e-12,
) -> float:
    """The smallest eps >= 0 with ``log_delta(eps) <= ln delta``, rounded up; inf where there is none.

    Args:
        log_delta: ln of a decreasing profile (or of an upper bound of one) at eps >= 0.
        high: an eps beyond which the profile is constant, where one is known (the largest finite loss).
        rtol: relative width to which the answer is rounded up.
    """
    target = math.log(delta)
    if math.isfinite(high) and log_delta(max(high, 0.0)) > target:
        return math.inf
    try:
        return smallest_meeting(lambda eps: log_delta(eps) - target, guess, high=max(high, 0.0), rtol=rtol)
    except Unsupported:
        return math.inf
