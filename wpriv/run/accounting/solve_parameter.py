"""Solve for the parameter at which a process meets a target by one accountant."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from wpriv.core.attacks.membership import Membership
from wpriv.core.guarantee import Curve, Guarantee
from wpriv.core.process import Process, sandwich
from wpriv.errors import Unsupported, UsageError, WprivError
from wpriv.numerics import counted_work
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.safe_rounding import DIGITS
from wpriv.run.accounting import evaluate, membership_figures
from wpriv.run.accounting.initial_guess import initial_guess
from wpriv.run.accounting.parameter_search import MAX_PROBES, solve
from wpriv.run.accounting.search_parameter import SearchParameter
from wpriv.run.accounting.search_record import Evaluation, Outcome, Solution, Unreachable, log_ratio
from wpriv.run.accounting.solved_parameter import SolvedParameter

# default relative width of the accountant's bracket at the solution; eps falls at least as fast as the noise grows, so
# that the noise is as near the optimum
TOL = 1e-6
# the same for mechanisms whose PLD is only known between two others, where each further digit takes ten times as long
TOL_SANDWICHED = 1e-4
# share of that width at which the search ends; width of its first brackets, and the factor from one width to the next
SEARCH_SHARE, COARSE, REFINEMENT = 0.3, 1e-2, 100
# width to which a bracket that holds the target is narrowed where n is solved for
FINEST = 5e-8
# counted work (nanoseconds of a usual processor) after which a search ends with the best value so far, and the share of
# it that the bounds on attacks of one value may take
SEARCH_WORK, ATTACK_SHARE = 4e9, 0.25
# relative accuracy of exact figures
ROUNDING = 1e-11
# a bound of a probability so near to 1 does not show how far the target is
SATURATED = 1 - 1e-6

Account = Callable[[Process, float], Curve]


def solve_for(
    knob: SearchParameter,
    at: Callable[[float], Process],
    accountant: str,
    eps: float,
    delta: float,
    tol: float = TOL,
    *,
    finest: float = FINEST,
    account: Account | None = None,
    fpr: float | None = None,
    measure: str = "tpr",
) -> SolvedParameter:
    """Return the least private value at which the process ``at(value)`` meets a target, and its guarantee there.

    Searches with coarse brackets first, then with those of width ``tol``, and ends within ``SEARCH_SHARE * tol`` of
    where their upper end meets the target; a whole number ends at one whose successor is not shown to meet it. Values
    at which the accountant has no answer count as unknown.

    Args:
        finest: width to which a bracket that holds the target is narrowed for a whole-number parameter.
        account: the curve of a process at a width, instead of that of ``accountant``, whose name it then stands for.
        fpr: where it is given, the target is a true-positive rate of at most ``delta`` at this false-positive rate.
        measure: "mu" where the target is mu of at most ``delta`` instead, for rates of at least ``fpr``.
    Raises:
        UsageError: ``tol`` is out of range.
        Unsupported: no value meets the target, or the accountant has no answer that could decide it.
    """
    tol = evaluate.checked_tol(tol)
    knob = replace(knob, digits=max(DIGITS, math.ceil(-math.log10(tol)) + 2))
    guess, slope = initial_guess(knob, at, eps, delta, fpr, measure), -0.55 if knob.name == "n" else -1.1
    question: Question | None = None
    best: tuple[Question, Solution] | None = None
    is_out_of_work, halfway = counted_work.limit(SEARCH_WORK), counted_work.limit(SEARCH_WORK / 2)
    # where each delta takes long there is time for few values
    is_slow = fpr is not None and default_tol(knob, at) > TOL
    for width in _widths(tol):
        last, before = width == tol, question
        finest_width = finest if last else max(width, finest)
        question = Question(
            knob,
            at,
            accountant,
            (eps, delta),
            width,
            finest_width,
            account,
            fpr,
            measure,
            is_out_of_work,
            best is not None,
        )
        if before is not None:
            question.take(before)
        try:
            exact = last and question.counts_at(guess)
            solution = question.solve(guess, slope, 0.0 if exact else SEARCH_SHARE * width, MAX_PROBES, last)
        except Unreachable as error:
            if best is not None:
                break
            if last or not question.undecided():
                raise question.why_not(error) from None
            continue  # by narrower brackets some value may meet it
        # where narrow brackets take too much work, a wider one may prove the target at a less private value
        if best is not None and knob.privacy_direction * math.log(solution.value / best[1].value) > width:
            break
        best, guess, slope = (question, solution), solution.value, solution.slope
        # narrower bounds on attacks than those that took so much are out of reach
        if is_out_of_work() or (is_slow and halfway()):
            break
        if question.is_final(solution):
            best = question, question.solve(guess, slope, SEARCH_SHARE * tol, 0, True)
            break
    assert best is not None  # the last width is never left without a solution
    return best[0].answer(best[1])


def default_tol(knob: SearchParameter, at: Callable[[float], Process]) -> float:
    """The default relative width of the bracket."""
    try:
        runs = at(min(max(1.0, knob.low), knob.high)).renyi_directions()
    except (Unsupported, UsageError):
        return TOL
    return TOL_SANDWICHED if any(sandwich(run, TOL_SANDWICHED) is not None for run in runs) else TOL


def _widths(tol: float) -> list[float]:
    """The relative widths of the search, one after the other, down to ``tol``."""
    count = max(0, math.ceil(math.log(COARSE / tol) / math.log(REFINEMENT) - 1e-9)) if tol < COARSE else 0
    return [COARSE / REFINEMENT**k for k in range(count)] + [tol]


@dataclass
class Question:
    """Decide by an accountant whether a target is met, at values of one parameter.

    Args:
        target: eps and delta. eps at delta is compared with the target, unless it is 0: then delta at eps = 0 is.
        width: relative width asked of a bracket. finest, account, fpr, measure: as in ``solve_for``.
        is_out_of_work: tells whether the work of the whole search is spent; ``is_refinement``: whether a wider bracket
            has given a solution already, so that no further value is evaluated then. attack_work: for one value.
    """

    knob: SearchParameter
    at: Callable[[float], Process]
    accountant: str
    target: tuple[float, float]
    width: float
    finest: float
    account: Account | None = None
    fpr: float | None = None
    measure: str = "tpr"
    is_out_of_work: Callable[[], bool] = lambda: False
    is_refinement: bool = False
    attack_work: float = ATTACK_SHARE * SEARCH_WORK
    rows: dict[float, Guarantee] = field(default_factory=dict, init=False)
    seen: dict[float, Evaluation] = field(default_factory=dict, init=False)
    trouble: list[WprivError] = field(default_factory=list, init=False)

    def solve(self, guess: float, slope: float, rtol: float, looks: int, show: bool) -> Solution:
        """The least private value that meets the target (see ``parameter_search.solve``); raises Unreachable."""
        ask, stop = self.reply, self.is_out_of_work
        return solve(self.knob, ask, guess, slope, rtol, seen=self.seen, looks=looks, show=show, is_out_of_work=stop)

    def counts_at(self, value: float) -> bool:
        """Tell whether whole numbers of this size can be distinguished, exactly or by brackets of width ``finest``."""
        exact = bool(self.rows) and all(row.claim != "certified" for row in self.rows.values())
        return self.knob.whole and (exact or value * self.finest < 1)

    def undecided(self) -> bool:
        """Tell whether some value may meet the target with a narrower bracket, or an upper bound at more points."""
        if self._varies and any(row.claim == "upper-bound" for row in self.rows.values()):
            return True
        return any(reply.outcome is Outcome.OPEN for reply in self.seen.values())

    @property
    def _varies(self) -> bool:
        """True if upper bounds depend on the width: those of true-positive rates, and where ``account`` is given."""
        return self.account is not None or (self.fpr is not None and self.measure == "tpr")

    def take(self, other: Question) -> None:
        """Take over answers at another width that do not depend on the width."""
        if self._varies:
            return
        fixed = {value for value, row in other.rows.items() if row.claim != "certified"}
        self.rows |= {value: other.rows[value] for value in fixed}
        self.seen |= {value: other.seen[value] for value in fixed}

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
            self.trouble.append(error)
            return Evaluation(math.inf, math.inf if certain else -math.inf, str(error))
        except MemoryError:
            why = f"{self.accountant} runs out of memory at {self.knob.name} = {value:g}. Raise `tol`, or use rdp"
            self.trouble.append(Unsupported(why))
            return Evaluation(math.inf, refusal=why)
        self.rows[value] = row
        bracket, wanted = self._held(row)
        lower = bracket.lower if row.claim == "certified" else bracket.safe * (1 - ROUNDING)
        refusal = bracket.refusal or (
            f"its bracket of [{lower:.6g}, {bracket.safe:.6g}] cannot be made narrower" if wide else ""
        )
        excess = log_ratio(bracket.safe, wanted)
        if excess > 0 and self._is_probability and bracket.safe > SATURATED:
            excess = math.inf
        return Evaluation(excess, log_ratio(lower or 0.0, wanted), refusal)

    @property
    def _is_probability(self) -> bool:
        """True if the target is a delta or a true-positive rate."""
        return self.target[0] == 0 if self.fpr is None else self.measure == "tpr"

    def _row(self, process: Process, counts: bool) -> tuple[Guarantee, bool]:
        """The guarantee at the target, and whether its bracket is wider than ``COARSE``.

        Where whole numbers can be distinguished (``counts``), the bracket is narrowed until it excludes the target.
        """
        (eps, delta), tol = self.target, self.width
        while True:
            curve = (
                self.account(process, tol)
                if self.account
                else evaluate.curve(process, self.accountant, tol, of_pair=True)
            )
            row = curve.at(delta=delta) if eps > 0 else curve.at(eps=0.0)
            row = self._measured(row, curve, tol)
            bracket, wanted = self._held(row)
            wide = row.claim == "certified" and replace(curve, tol=COARSE).is_wide(bracket)
            undecided = row.claim == "certified" and (bracket.lower or 0.0) <= wanted < bracket.safe
            final = self.measure == "mu" or self.is_out_of_work() or curve.is_wide(bracket)
            if final or not (counts and undecided and tol > self.finest):
                return row, wide
            tol = max(tol / 5, self.finest)

    def _measured(self, row: Guarantee, curve: Curve, tol: float) -> Guarantee:
        """The guarantee with the figure of membership attacks that the target is about, if it is one."""
        if self.fpr is None:
            return row
        if self.measure == "mu":
            mu = Membership(curve, work=self.attack_work).mu(self.fpr)
            return membership_figures.with_mu(row, mu, alone=True)
        return membership_figures.with_true_positive_rate(row, curve, self.fpr, tol, self.attack_work)

    def _held(self, row: Guarantee) -> tuple[Bracket, float]:
        """The bracket to compare with the target, and the target: eps at delta, or delta where eps is 0."""
        eps, delta = self.target
        if self.fpr is not None:
            bracket = membership_figures.mu_bracket if self.measure == "mu" else membership_figures.true_positive_rate
            return bracket(row), delta
        return (row.epsilon, eps) if eps > 0 else (row.delta, delta)

    def is_final(self, solution: Solution) -> bool:
        """Tell whether narrower brackets are not available where they would be needed."""
        replies = [self.seen[x] for x in (solution.value, solution.beside) if x is not None]
        return all(reply.refusal for reply in replies) and self.rows[solution.value].claim == "certified"

    def answer(self, solution: Solution) -> SolvedParameter:
        """The solution with its guarantee."""
        row = evaluate.checked(self.rows[solution.value])
        order = evaluate.curve(row.process, self.accountant).order if row.notion == "rdp" else None
        row = row if order is None else evaluate.without_delta(row, order)
        return SolvedParameter(self.knob, solution.value, row, solution.missed, solution.refusal)

    def why_not(self, error: Unreachable) -> WprivError:
        """Explain why no value meets the target: by the best one found, or by the accountant's reason."""
        knob, (eps, delta), row = self.knob, self.target, self.rows.get(error.best)
        if not self.rows:
            return self.trouble[0]
        reach = "from 1 to 2^40" if knob.whole else f"up to {knob.high:g}"
        attack = f"mu <= {delta:g} at every FPR >=" if self.measure == "mu" else f"TPR <= {delta:g} at FPR ="
        target = f"{attack} {self.fpr:g}" if self.fpr is not None else f"eps <= {eps:g} at delta = {delta:g}"
        target = target if eps > 0 or self.fpr is not None else f"an advantage (delta at eps = 0) <= {delta:g}"
        wanted = f"no {knob.name} {reach} gives {target} by {self.accountant}"
        if row is None:
            return Unsupported(f"{wanted}; {self.trouble[-1]}")
        if math.isinf(row.epsilon.safe):
            mass = evaluate.infinity_mass(row.process)
            why = (
                f": at {knob.name} = {error.best:g} the distinguishing events alone have probability {mass:.6g}"
                if mass > delta
                else ""
            )
            return Unsupported(f"{wanted}; no finite eps was found{why}. Ask for a larger delta")
        best = f"eps = {row.epsilon.safe:.6g}" if eps > 0 else f"delta = {row.delta.safe:.6g} at eps = 0"
        if self.fpr is not None:
            best = f"{'mu' if self.measure == 'mu' else 'TPR'} = {self._held(row)[0].safe:.6g}"
        best = f"{wanted}; the best found is {best} (at {knob.name} = {error.best:g})"
        if error.refusal:
            return Unsupported(f"{best}, and of values with more privacy {self.accountant} says: {error.refusal}")
        return Unsupported(f"{best}. Relax the target, or change what was held fixed")
