"""wpriv explain"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from wpriv.cli import flags
from wpriv.cli.parsing import option

if TYPE_CHECKING:
    from wpriv.accounting.claims.explain import Deployment, Explanation

WIDTH = 80
What = Annotated[
    list[str],
    typer.Argument(
        metavar="WHAT...",
        help="eps=3,delta=1e-5; eps=1 (pure DP); mu=1; rho=0.5 (zCDP); a training's folder, a history, or words.",
    ),
]
Delta = Annotated[
    flags.Text,
    option("X", "Beside mu, rho or a process: the delta of its pair of eps and delta (default 1e-5).", "--delta"),
]
Prior = Annotated[str, option("P", "The probability beforehand that the record was used.", "--prior")]
People = Annotated[str, option("N", "How many people are looked at together, each of them a record.", "--people")]
Releases = Annotated[str, option("K", "How many such releases are looked at together.", "--releases")]
Unit = Annotated[
    str, option("UNIT", "What compared deployments protect: person, period, event or household.", "--unit")
]


def command(
    what: What,
    delta: Delta = None,
    prior: Prior = "0.01",
    people: People = "4",
    releases: Releases = "10",
    unit: Unit = "person",
    as_json: flags.Json = False,
) -> None:
    """Say what a guarantee means: attacks at most, several people and releases, deployments, and its limits.

    wpriv explain eps=3,delta=1e-5

    wpriv explain mu=1 --prior 0.001

    wpriv explain gauss sigma=4 n=100 --people 2
    """
    from wpriv.accounting.claims import explain
    from wpriv.cli import output

    row = explain.explain(
        " ".join(what), delta=delta, prior=prior, people=people, releases=releases, unit=flags.folded(unit)
    )
    if as_json:
        output.emit_json(row.as_dict())
        return
    first, *others = _lines(row)
    output.emit_bold(first, *others)
    output.warn(row.warnings)


def _lines(row: Explanation) -> Iterator[str]:
    """The explanation in sections, which fit 80 columns."""
    from wpriv.accounting.claims.explain import UNITS, percent
    from wpriv.numerics.numbers import echo, text

    def up(value: float) -> str:
        shown = text(value, up=True, digits=4)
        return shown if len(shown) < 10 else f"{float(shown):.4g}"

    if row.process is not None:
        from wpriv.cli.guarantee_output import steps_of

        yield from steps_of(row.process)
    yield f"{row.about}: what an attacker can do at most who knows all other records"
    yield from textwrap.wrap(_origin(row), WIDTH, initial_indent="  ", subsequent_indent="  ")
    yield from _table(
        ("", "", ""),
        [
            ("right at even odds", percent(row.right_guess), "a guess whether the record was used; blind: 50%"),
            ("advantage", up(row.advantage), "largest TPR - FPR of any test"),
            ("Bayes factor", up(row.bayes_factor), "how much an answer raises the odds"),
            (f"from {percent(row.prior)} to", percent(row.posterior), "probability of use, before and after an answer"),
        ],
    )
    if row.beyond:
        yield f"  A share of at most {up(row.beyond)} of the answers may go beyond the last two."
    yield ""
    yield from _table(
        ("FPR", "TPR at most", f"used if flagged, prior {percent(row.prior)}"),
        [(echo(rate.fpr), percent(rate.tpr), percent(rate.posterior)) for rate in row.rates],
    )
    yield "  The TPR at FPR 1/M also bounds guessing one of M equally likely values."
    if row.together:
        yield ""
        cases = [
            (_case(case.people, case.releases), case.guarantee, percent(case.right_guess)) for case in row.together
        ]
        yield from _table(("together", "guarantee", "right at even odds"), cases)
    if row.deployments:
        yield ""
        yield from textwrap.wrap(f"Beside published deployments that protect {UNITS[row.unit]}:", WIDTH)
        yield from _table(
            ("eps", "published", "protects", "by, year: what"),
            [
                (up(each.epsilon), each.guarantee, each.unit, f"{each.by} {each.year}: {each.name}{_local(each)}")
                for each in row.deployments
            ],
        )
        yield "  eps of a rho is at the delta above, at most 1e-5. Other units: see --unit."
    yield ""
    yield "What it does not say:"
    for line in row.limits:
        yield from textwrap.wrap(line, WIDTH, initial_indent="  - ", subsequent_indent="    ")


def _origin(row: Explanation) -> str:
    """Where the numbers come from, and whether they are attained."""
    if row.notion == "process":
        kind = {"exact": "computed exactly", "certified": "certified"}.get(row.claim, "bounded from above")
        return f"{kind} by {row.source} from the whole privacy curve of this process"
    attained = "the worst release with this guarantee allows as much" if row.claim == "exact" else "upper bounds"
    return f"{attained}: {row.source}"


def _local(each: Deployment) -> str:
    return "" if each.model == "central" else f" ({each.model})"


def _case(people: int, releases: int) -> str:
    return f"{people} people" if people > 1 else f"{releases} such releases"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table with a margin, its last column wrapped; without its header where that is empty."""
    lines = [header, *rows] if any(header) else list(rows)
    widths = [max((len(line[i]) for line in lines), default=0) for i in range(len(header) - 1)]
    for line in lines:
        cells = "".join(cell.ljust(width + 2) for cell, width in zip(line, widths, strict=False))
        yield from textwrap.wrap(
            line[-1], WIDTH, initial_indent=f"  {cells}", subsequent_indent=" " * (len(cells) + 2)
        ) or [f"  {cells}".rstrip()]
