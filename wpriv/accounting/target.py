"""The target of a calibration, and the least private value of a parameter at which a process meets it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from wpriv.accounting import evaluate, membership_figures
from wpriv.accounting.search import Evaluation, Outcome, Root, Search, Unknown, Unreachable
from wpriv.core.guarantee import Curve, Guarantee
from wpriv.core.membership import Membership
from wpriv.core.process import Process, Step, sandwich
from wpriv.core.trade_off import DEFAULT_FPR
from wpriv.errors import Unsupported, UsageError, WprivError
from wpriv.numerics import conversions, counted_work
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.numbers import DIGITS, echo, number

# default relative width of the accountant's bracket at the solution; eps falls at least as fast as the noise grows, so
# that the noise is as near the optimum
TOL = 1e-6
# the same for mechanisms whose PLD is only known between two others, where each further digit takes ten times as long;
# for a true-positive rate, which takes tens of points of the curve; and for mu, whose bracket is no narrower
TOL_SANDWICHED, RATE_TOL, MU_TOL = 1e-4, 1e-5, 3e-4
# the largest mu, beyond which error rates are not resolved
MAX_MU = 20.0
# share of that width at which the search ends; width of its first brackets, and the factor from one width to the next
SEARCH_SHARE, COARSE, REFINEMENT = 0.3, 1e-2, 100
# width to which a bracket that holds the target is narrowed where n is solved for
FINEST = 5e-8
# counted work (nanoseconds of a usual processor) after which a search ends near the least value, that after which it
# ends with the best value so far, and that which the bounds on attacks of one value may take
SEARCH_WORK, MOST_WORK, ATTACK_WORK = 4e9, 2.4e10, 1e9
# relative accuracy of exact figures
ROUNDING = 1e-11
# delta of the first guess for a target of pure DP
NO_DELTA = 1e-30
# a bound of a probability so near to 1 does not show how far the target is
SATURATED = 1 - 1e-6

Account = Callable[[Process, float], Curve]


@dataclass(frozen=True)
class Target:
    """The target of a calibration.

    Args:
        eps, delta: eps at delta; delta at eps = 0, which is the advantage; or the true-positive rate or mu, as
            ``delta``.
        fpr: the false-positive rate at which the true-positive rate is at most ``delta``, or the least one for mu.
        argument: the argument that gives it: ``eps`` (with ``delta``), ``advantage``, ``tpr`` or ``max_mu``.
        notes: how it was read. least_tol: the smallest default width.
    """

    eps: float
    delta: float
    fpr: float | None = None
    argument: str = "eps"
    notes: tuple[str, ...] = ()
    least_tol: float = 0.0

    @property
    def asked(self) -> str:
        """The quantity that the target bounds, as in ``Guarantee.extra``."""
        return {"tpr": "tpr", "max_mu": "mu"}.get(self.argument) or ("eps" if self.eps > 0 else "delta")

    def guarantee(self, curve: Curve, tol: float) -> Guarantee:
        """The guarantee at the target, with the figure of membership attacks that the target is about, if it is one."""
        row = curve.at(delta=self.delta) if self.eps > 0 else curve.at(eps=0.0)
        if self.fpr is None:
            return row
        if self.asked == "mu":
            return membership_figures.with_mu(row, Membership(curve, work=ATTACK_WORK).mu(self.fpr), alone=True)
        return membership_figures.with_true_positive_rate(row, curve, self.fpr, tol, ATTACK_WORK)

    def compared(self, row: Guarantee) -> tuple[Bracket, float]:
        """The bracket of the quantity that the target bounds, and the bound."""
        name, bracket = row.answered()
        return bracket, self.eps if name == "eps" else self.delta

    def in_words(self) -> str:
        if self.fpr is not None:
            name, where = ("mu", "every FPR >=") if self.asked == "mu" else ("TPR", "FPR =")
            return f"{name} <= {self.delta:g} at {where} {self.fpr:g}"
        if self.eps > 0:
            return f"eps <= {self.eps:g} at delta = {self.delta:g}"
        return f"an advantage (delta at eps = 0) <= {self.delta:g}"

    def mu_squared(self) -> float:
        """mu^2 of a Gaussian mechanism that meets the target, in the range of doubles."""
        if self.asked == "mu":
            mu = self.delta
        elif self.fpr is not None:
            mu = float(ndtri(self.delta) - ndtri(self.fpr))
        else:
            mu = 1 / conversions.exact(self.eps, self.delta or NO_DELTA)
        return min(max(mu, 1e-150), 1e150) ** 2


def read_target(**arguments: object) -> Target:
    """Read eps and delta, advantage, tpr and fpr, or max_mu and perhaps fpr."""
    given = {name: number(value, f"`{name}`") for name, value in arguments.items() if value is not None}
    names = tuple(given)
    if names == ("advantage",):
        return _advantage(given["advantage"])
    if names == ("tpr", "fpr"):
        return _true_positive_rate(given["tpr"], given["fpr"])
    if names in (("max_mu",), ("fpr", "max_mu")):
        return _mu(given["max_mu"], given.get("fpr", DEFAULT_FPR))
    if names in (("eps", "delta"), ("eps",)):
        eps, delta = given["eps"], given.get("delta", 0.0)
        if not 0 <= eps < math.inf:
            raise UsageError(f"`eps` must be a finite number of at least 0; found {eps}")
        if not 0 <= delta < 1:
            raise UsageError(f"`delta` must be at least 0 and below 1; found {delta}")
        if eps == delta == 0:
            raise UsageError("eps = 0 at `delta` = 0 allows no dependence on the data; give a larger `eps`")
        return Target(eps, delta)
    if set(names) <= {"eps", "delta"}:
        raise UsageError("calibrate needs a target: give `eps` and `delta`, or `eps` alone for pure DP")
    wanted = "`eps` with `delta`, `advantage` alone, `max_mu` (perhaps with `fpr`), or `tpr` with `fpr`"
    words = " and ".join(f"`{name}`" for name in names)
    raise UsageError(f"calibrate needs one target: {wanted}; found {words}")


def _advantage(advantage: float) -> Target:
    if not 0 < advantage < 1:
        raise UsageError(
            f"`advantage`, the largest TPR minus FPR of an attack, must lie strictly between 0 and 1; found {advantage}"
        )
    note = f"advantage = {echo(advantage)} is delta at eps = 0, the total variation distance of neighbours"
    return Target(0.0, advantage, None, "advantage", (note,))


def _mu(mu: float, fpr: float) -> Target:
    if not 0 < mu <= MAX_MU:
        largest = "`max_mu`, the largest mu of Gaussian DP"
        raise UsageError(f"{largest}, must lie above 0 and be at most {MAX_MU:g}; found {mu}")
    if not 0 < fpr <= 0.5:
        raise UsageError(f"`fpr`, the smallest rate for which mu holds, must lie in (0, 1/2]; found {fpr}")
    note = (
        f"mu = {echo(mu)} of Gaussian DP bounds every membership attack with both error rates at least {echo(fpr)}, "
        f"in both orders of the neighbours"
    )
    return Target(0.0, mu, fpr, "max_mu", (note,), MU_TOL)


def _true_positive_rate(tpr: float, fpr: float) -> Target:
    for name, value in (("tpr", tpr), ("fpr", fpr)):
        if not 0 < value < 1:
            raise UsageError(f"`{name}` is a rate of a membership attack, strictly between 0 and 1; found {value}")
    if tpr <= fpr:
        raise UsageError(
            f'`tpr` must be above `fpr`, since calling records "in the data" at random has equal rates; found '
            f"{echo(tpr)} at {echo(fpr)}"
        )
    note = f"tpr = {echo(tpr)} at fpr = {echo(fpr)} bounds every membership attack, in both orders of the neighbours"
    return Target(0.0, tpr, fpr, "tpr", (note,), RATE_TOL)


@dataclass(frozen=True)
class Solution:
    """A parameter that was solved for: its value, the guarantee there, and how near it is to the best.

    Args:
        value: the least private one found that meets the target. row: its guarantee.
        missed: the nearest less private value that certainly misses the target (by the accountant's own figure where it
            has no lower end); None where none was evaluated.
        refusal: why values between the two have no narrow answer, if some have none.
    """

    unknown: Unknown
    value: float
    row: Guarantee
    missed: float | None
    refusal: str = ""

    @property
    def most(self) -> bool:
        """Tell whether no less private grid value meets the target: the next one misses it, or there is none."""
        return self.unknown.at_end(self.value, -1) or self.missed == self.unknown.beside(self.value, -1)

    @property
    def at_most(self) -> float | None:
        """The best value that may meet the target: the first known to miss it, or the last whole number before it."""
        return self.missed if self.missed is None or not self.unknown.whole else int(self.missed) - self.unknown.unit

    @property
    def within(self) -> float | None:
        """Relative distance within which the best value lies; None where it is not known."""
        if self.unknown.at_end(self.value, -1):
            # n and the rate end here; noise does not, but no smaller one is tried
            return 0.0 if self.unknown.privacy_direction < 0 else None
        return None if self.at_most is None else abs(self.at_most - self.value) / self.value

    def as_dict(self) -> dict[str, Any]:
        """The content of ``extra["calibrated"]``: parameter, value, misses, within, and most for n and the rate."""
        whole = int if self.unknown.whole else float
        misses = None if self.missed is None else whole(self.missed)
        row = {"parameter": self.unknown.name, "value": whole(self.value), "misses": misses, "within": self.within}
        return row | ({"most": self.most} if self.unknown.privacy_direction < 0 else {})

    def warnings(self) -> list[str]:
        """Warn that the target does not bound the value, or that a better one was not ruled out."""
        name, accountant, at_most = self.unknown.name, self.row.accountant, self.at_most
        value, is_noise = f"{name} = {self.value:.13g}", self.unknown.privacy_direction > 0
        if self.unknown.at_end(self.value, -1):
            if is_noise:
                return [f"{name} = {self.value:g} is the smallest that is tried; less may be enough"]
            return [f"every {name} up to the largest allowed meets the target"]
        if self.refusal:
            until = f"between it and {self.missed:.13g}, which misses the target" if self.missed else "beyond it"
            best = "least" if is_noise else "most"
            return [f"{value} may not be the {best}: {accountant} has no narrow answer {until} ({self.refusal})"]
        if self.unknown.whole and not self.most:
            more = self.value + self.unknown.unit
            last = " and more" if at_most is None else "" if at_most == more else f" to {at_most:.13g}"
            wide = f"the bracket of {accountant} is too wide to tell"
            return [f"n = {more:.13g}{last} may meet the target as well: {wide}"]
        return []


def solve_for(
    unknown: Unknown,
    at: Callable[[float], Process],
    accountant: str,
    target: Target,
    tol: float = TOL,
    *,
    finest: float = FINEST,
    account: Account | None = None,
) -> Solution:
    """Return the least private value at which the process ``at(value)`` meets a target, and its guarantee there.

    Searches with coarse brackets first, then with those of width ``tol``, and ends within ``SEARCH_SHARE * tol`` of
    where their upper end meets the target; a whole number ends at one whose successor is not shown to meet it. Values
    at which the accountant has no answer count as unknown.

    Args:
        finest: width to which a bracket that holds the target is narrowed for a whole-number parameter.
        account: the curve of a process at a width, instead of that of ``accountant``, whose name it then stands for.
    Raises:
        UsageError: ``tol`` is out of range.
        Unsupported: no value meets the target, or the accountant has no answer that could decide it.
    """
    tol = evaluate.checked_tol(tol)
    unknown = replace(unknown, digits=max(DIGITS, math.ceil(-math.log10(tol)) + 2))
    guess, slope = _guess(unknown, at, target), -0.55 if unknown.name == "n" else -1.1
    best: tuple[Root, Guarantee] | None = None
    is_out_of_work, halfway = counted_work.limit(SEARCH_WORK), counted_work.limit(SEARCH_WORK / 2)
    # where each delta takes long there is time for few values
    is_slow = target.fpr is not None and default_tol(unknown, at) > TOL
    answers = _Answers(unknown, at, accountant, target, account, is_out_of_work)
    search = answers.search
    coarse = max(0, math.ceil(math.log(COARSE / tol) / math.log(REFINEMENT) - 1e-9))
    for width in (*(COARSE / REFINEMENT**k for k in range(coarse)), tol):
        last = width == tol
        answers.narrow(width, finest if last else max(width, finest), is_refinement=best is not None)
        try:
            exact = last and answers.counts_at(guess)
            root = search.solve(guess, slope, 0.0 if exact else SEARCH_SHARE * width, show=last)
        except Unreachable as error:
            if best is not None:
                break
            if last or not answers.undecided():
                raise answers.why_not(error) from None
            continue  # by narrower brackets some value may meet it
        # where narrow brackets take too much work, a wider one may prove the target at a less private value
        if best is not None and unknown.privacy_direction * math.log(root.value / best[0].value) > width:
            break
        best, guess, slope = (root, answers.rows[root.value]), root.value, root.slope
        # narrower bounds on attacks than those that took so much are out of reach
        if is_out_of_work() or (is_slow and halfway()):
            break
        # where narrower brackets are needed there may be none
        replies = [search.seen[x] for x in (root.value, root.beside) if x is not None]
        if all(reply.refusal for reply in replies) and answers.rows[root.value].claim == "certified":
            root = search.solve(guess, slope, SEARCH_SHARE * tol, probes=0)
            best = root, answers.rows[root.value]
            break
    assert best is not None  # the last width is never left without a solution
    root, row = best
    row = evaluate.checked(row)
    order = evaluate.curve(row.process, accountant).order if row.notion == "rdp" else None
    row = row if order is None else evaluate.without_delta(row, order)
    return Solution(unknown, root.value, row, root.missed, root.refusal)


def default_tol(unknown: Unknown, at: Callable[[float], Process]) -> float:
    """The default relative width of the bracket."""
    try:
        runs = at(unknown.clamp(1.0)).renyi_directions()
    except (Unsupported, UsageError):
        return TOL
    return TOL_SANDWICHED if any(sandwich(run, TOL_SANDWICHED) is not None for run in runs) else TOL


@dataclass
class _Answers:
    """Decide by an accountant whether a target is met, at values of one parameter and at one width at a time.

    Args:
        unknown, at, accountant, target, account: as in ``solve_for``. is_out_of_work: whether its work is spent.
    Attributes:
        width: relative width asked of a bracket; ``finest``: that to which it is narrowed to distinguish whole numbers.
        is_refinement: whether a wider bracket has given a solution already; out of work no value is evaluated then.
        rows: the guarantees at this width. refusals: the errors at this width.
    """

    unknown: Unknown
    at: Callable[[float], Process]
    accountant: str
    target: Target
    account: Account | None
    is_out_of_work: Callable[[], bool]
    search: Search = field(init=False)
    width: float = field(init=False)
    finest: float = field(init=False)
    is_refinement: bool = field(init=False)
    rows: dict[float, Guarantee] = field(default_factory=dict, init=False)
    refusals: list[WprivError] = field(init=False)

    def __post_init__(self) -> None:
        self.search = Search(self.unknown, self.reply, self.is_out_of_work, counted_work.limit(MOST_WORK))

    def narrow(self, width: float, finest: float, *, is_refinement: bool) -> None:
        """Ask for another width from now on; of the answers so far keep those that do not depend on the width."""
        self.width, self.finest, self.is_refinement = width, finest, is_refinement
        kept = [] if self._varies else [value for value, row in self.rows.items() if row.claim != "certified"]
        self.rows = {value: self.rows[value] for value in kept}
        self.search.seen = {value: self.search.seen[value] for value in kept}
        self.refusals = []

    @property
    def _varies(self) -> bool:
        """True if upper bounds depend on the width: those of true-positive rates, and where ``account`` is given."""
        return self.account is not None or self.target.asked == "tpr"

    def counts_at(self, value: float) -> bool:
        """Tell whether whole numbers of this size can be distinguished, exactly or by brackets of width ``finest``."""
        exact = bool(self.rows) and all(row.claim != "certified" for row in self.rows.values())
        return self.unknown.whole and (exact or value * self.finest < 1)

    def undecided(self) -> bool:
        """Tell whether some value may meet the target with a narrower bracket, or an upper bound at more points."""
        if self._varies and any(row.claim == "upper-bound" for row in self.rows.values()):
            return True
        return any(reply.outcome is Outcome.OPEN for reply in self.search.seen.values())

    def reply(self, value: float) -> Evaluation:
        """Evaluate one value; one beyond the accountant or outside the mechanism's range is refused, not missed."""
        if self.is_refinement and self.is_out_of_work():
            raise Unreachable(value, math.inf)
        certain = False
        try:
            process = self.at(value)
            certain = evaluate.infinity_mass(process) >= 1
            row, wide = self._row(process, self.counts_at(value))
        except (Unsupported, UsageError) as error:
            self.refusals.append(error)
            return Evaluation(math.inf, math.inf if certain else -math.inf, str(error))
        except MemoryError:
            why = f"{self.accountant} runs out of memory at {self.unknown.name} = {value:g}. Raise `tol`, or use rdp"
            self.refusals.append(Unsupported(why))
            return Evaluation(math.inf, refusal=why)
        self.rows[value] = row
        bracket, wanted = self.target.compared(row)
        lower = bracket.lower if row.claim == "certified" else bracket.safe * (1 - ROUNDING)
        too_wide = f"its bracket of [{lower or 0.0:.6g}, {bracket.safe:.6g}] cannot be made narrower"
        refusal = bracket.refusal or (too_wide if wide else "")
        excess = _log_ratio(bracket.safe, wanted)
        if excess > 0 and self.target.asked in ("delta", "tpr") and bracket.safe > SATURATED:
            excess = math.inf
        return Evaluation(excess, _log_ratio(lower or 0.0, wanted), refusal)

    def _row(self, process: Process, counts: bool) -> tuple[Guarantee, bool]:
        """The guarantee at the target, narrowed where whole numbers count, and whether it is wider than ``COARSE``."""
        account: Account = self.account or (
            lambda process, tol: evaluate.curve(process, self.accountant, tol, of_pair=True)
        )
        tol = self.width
        while True:
            curve = account(process, tol)
            row = self.target.guarantee(curve, tol)
            bracket, wanted = self.target.compared(row)
            undecided = row.claim == "certified" and (bracket.lower or 0.0) <= wanted < bracket.safe
            final = self.target.asked == "mu" or self.is_out_of_work() or curve.is_wide(bracket)
            if final or not (counts and undecided and tol > self.finest):
                return row, row.claim == "certified" and replace(curve, tol=COARSE).is_wide(bracket)
            tol = max(tol / 5, self.finest)

    def why_not(self, error: Unreachable) -> WprivError:
        """Explain why no value meets the target: by the best one found, or by the accountant's reason."""
        unknown, target, row = self.unknown, self.target, self.rows.get(error.best)
        if not self.rows:
            return self.refusals[0]
        reach = "from 1 to 2^40" if unknown.whole else f"up to {unknown.high:g}"
        wanted = f"no {unknown.name} {reach} gives {target.in_words()} by {self.accountant}"
        if row is None:
            return Unsupported(f"{wanted}; {self.refusals[-1]}")
        where = f"at {unknown.name} = {error.best:g}"
        if math.isinf(row.epsilon.safe):
            if target.delta == 0:
                return Unsupported(
                    f"{wanted}: the privacy loss is unbounded, and no finite eps holds at delta = 0 (pure DP). Give a "
                    "`delta` above 0, such as 1e-5"
                )
            mass = evaluate.infinity_mass(row.process)
            events = f": {where} the distinguishing events alone have probability {mass:.6g}"
            why = events if mass > target.delta else ""
            return Unsupported(f"{wanted}; no finite eps was found{why}. Ask for a larger delta")
        name = "TPR" if target.asked == "tpr" else target.asked
        best = f"{name} = {target.compared(row)[0].safe:.6g}{' at eps = 0' if name == 'delta' else ''}"
        best = f"{wanted}; the best found is {best} ({where})"
        if error.refusal:
            return Unsupported(f"{best}, and of values with more privacy {self.accountant} says: {error.refusal}")
        return Unsupported(f"{best}. Relax the target, or change what was held fixed")


def _log_ratio(value: float, target: float) -> float:
    """ln(value / target); -inf at 0."""
    return math.log(value / target) if value > 0 else -math.inf


def _guess(unknown: Unknown, at: Callable[[float], Process], target: Target) -> float:
    """Guess by the central limit: n rate^2 chi^2 of a step equals mu^2 of a Gaussian mechanism that meets the target.

    The step is the last one of the process; what those before it need, which do not depend on the parameter, is taken
    off the target.
    """
    total = target.mu_squared()  # a guess affects the speed only
    try:
        spent = sum(map(_mu_squared, at(unknown.clamp(1.0)).steps[:-1]))
    except (Unsupported, UsageError):
        spent = 0.0
    total = max(total - spent, total / 1000)

    def mu_squared(value: float) -> float:
        try:
            return _mu_squared(at(value).steps[-1])
        except (Unsupported, UsageError):
            return math.inf

    if unknown.whole:
        return unknown.clamp(unknown.unit * total / max(mu_squared(unknown.unit), 1e-300))
    if unknown.privacy_direction < 0:
        return unknown.clamp(math.sqrt(total / max(mu_squared(1.0), 1e-300)))
    value, low, high = 1.0, 0.0, math.inf
    for _ in range(60):
        # chi^2 falls like 1 / value^2 where it is small, and exponentially where it is large
        ratio = mu_squared(value) / total
        low, high = (value, high) if ratio > 1 else (low, value)
        move = 0.5 * math.log(min(max(ratio, 1e-300), 1e300))
        move = min(max(move, -7.0), 0.7 if ratio > 1e3 else 7.0)
        aim = value * math.exp(move)
        value = unknown.clamp(aim if low <= aim <= high else math.sqrt(low * high))
        if abs(move) < 1e-3:
            break
    return value


def _mu_squared(step: Step) -> float:
    """n rate^2 chi^2, with the chi-square divergence without distinguishing events, capped where it overflows."""
    pair = step.mechanism.renyi_bound() or step.mechanism.pair()
    if pair.mass_at_plus_infinity >= 1:
        return math.inf
    from wpriv.core.loss_moments import log_moment

    chi_square = math.expm1(min(float(log_moment(pair, np.ones(1), finite=True)[0]), 600.0))
    return float(step.n * step.sampling.rate**2 * chi_square)
