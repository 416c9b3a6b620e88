"""Print which of two processes is more private (``compare A B --order``)."""

from __future__ import annotations

from typing import Any

from wpriv.accounting.claims import order, subject
from wpriv.accounting.claims.order import CROSSES, DOMINATED, DOMINATES, EQUAL, CurveOrder, PrivacyOrder
from wpriv.cli import flags, output
from wpriv.cli.guarantee_output import circumstances, steps_of
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.numbers import echo, text

SCHEMA = "wpriv.order/1"
WORDS = {
    DOMINATES: "A is more private than B",
    DOMINATED: "B is more private than A",
    EQUAL: "A and B are equally private",
    CROSSES: "the curves of A and B cross",
}


def compare_order(
    a: str | None, b: str | None, job: flags.Job, others: dict[str, Any], within: str | None, mode: str
) -> None:
    """Decide the order of two processes, print it, and set the exit code.

    Args:
        others: flags that have no place here.
    Raises:
        UsageError: not two processes, or flags that have no place here. Unsupported: the order is undecided.
    """
    if a is None or b is None:
        raise UsageError(f"--order compares two processes, each {subject.FORMS}; found {'one' if a else 'none'}")
    about = {name: value for name, value in vars(job).items() if name not in ("eps", "delta", "tol")}
    if out_of_place := [name for name, value in {**about, **others}.items() if value]:
        option = f"--{out_of_place[0].replace('_', '-')}"
        raise UsageError(f"--order takes both processes as arguments, such as 'gauss sigma=4 n=10'; leave out {option}")
    if mode in ("csv", "quiet"):
        raise UsageError(f"--order prints text or JSON; leave out --{mode}")
    share = flags.numbers(within=within)["within"]
    result = order.privacy_order(
        subject.described(a).process,
        subject.described(b).process,
        within=order.WITHIN if share is None else share,
        **job.question(),
    )
    if mode == "json":
        output.emit_result(SCHEMA, **result.as_dict())
    else:
        _print(result)
    output.warn(result.warnings)
    if result.verdict not in WORDS:
        low, high = result.worst.open_eps or (0.0, result.top)
        raise Unsupported(
            f"the order is undecided at this tolerance: between eps = {text(low, up=False)} and {text(high, up=True)} "
            f"the brackets do not separate the curves. Lower `tol`, or raise `within`"
        )


def _print(result: PrivacyOrder) -> None:
    for name, process in (("A", result.a), ("B", result.b)):
        output.emit(f"{name}: {circumstances(process)}", *(f"   {line}" for line in steps_of(process)))
    output.emit_bold(f"{WORDS.get(result.verdict, 'undecided')}{_range(result)}", *_crossings(result.worst))
    for name, one in result.orders.items():
        verdict = WORDS.get(one.verdict, "undecided")
        output.emit(f"order of the neighbours {name}: {verdict}", *(f"   {line}" for line in _crossings(one)))
    output.emit(result.reason)


def _range(result: PrivacyOrder) -> str:
    if result.top == float("inf"):
        return " at every eps" if result.verdict != CROSSES else ""
    where = f" for every eps from 0 to {text(result.top, up=False)}"
    if result.verdict == EQUAL:
        return f", within {echo(result.within)} of delta (relative),{where}"
    return where if result.verdict in (DOMINATES, DOMINATED) else f" between eps = 0 and {text(result.top, up=False)}"


def _crossings(one: CurveOrder) -> list[str]:
    lines = []
    for crossing in one.crossings:
        after = "B" if crossing.first == "A" else "A"
        eps = f"[{text(crossing.eps_lower, up=False)}, {text(crossing.eps_upper, up=True)}]"
        delta = f"[{text(crossing.delta_lower, up=False)}, {text(crossing.delta_upper, up=True)}]"
        lines.append(
            f"at an eps in {eps}, delta in {delta}: before it {crossing.first} has the smaller delta, after it {after}"
        )
    return lines
