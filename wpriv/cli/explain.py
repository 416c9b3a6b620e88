"""wpriv explain"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wpriv.cli import flags, output
from wpriv.cli.parsing import argument, option

if TYPE_CHECKING:
    from wpriv.accounting.claims.explain import Explanation


def command(
    words: list[str] | None = argument(
        "WHAT...",
        "eps=3,delta=1e-5; eps=1 (pure DP); mu=1; rho=0.5 (zCDP); xi=0.1,rho=0.5; a folder of a training or a "
        "release, a history, or words.",
        default=None,
    ),
    eps: flags.Text = option("X", "Instead of WHAT: the eps of a guarantee, with --delta."),
    delta: flags.Text = option(
        "X", "Of --eps (left out, 0); or beside mu, rho or a process, for its eps (default 1e-5)."
    ),
    prior: str = option("P", "The probability beforehand that the record was used.", default="0.01"),
    people: str = option("N", "How many people are looked at together, each of them a record.", default="4"),
    releases: str = option("K", "How many such releases are looked at together.", default="10"),
    unit: str = option(
        "UNIT", "What compared deployments protect: person, period, event or household.", default="person"
    ),
    as_json: bool = flags.JSON,
) -> None:
    """Say what a guarantee means: attacks at most, several people and releases, deployments, and its limits.

    wpriv explain eps=3,delta=1e-5

    wpriv explain mu=1 --prior 0.001

    wpriv explain gauss sigma=4 n=100 --people 2
    """
    from wpriv.accounting.claims.explain import explain

    what, unit = " ".join(words) if words else None, flags.folded(unit)
    row = explain(what, eps=eps, delta=delta, prior=prior, people=people, releases=releases, unit=unit)
    if as_json:
        output.emit_json(row.as_dict())
    else:
        _print(row)
    output.warn(row.warnings)


def _print(row: Explanation) -> None:
    from wpriv.accounting.claims.explain import UNITS, percent
    from wpriv.numerics.numbers import short

    output.emit_bold(f"{row.about}: what an attacker can do at most who knows all other records")
    output.emit_facts(row.facts())
    output.emit("")
    output.emit_table(
        ("FPR", "TPR at most", f"used if flagged (prior {percent(row.prior)})"),
        [(short(rate.fpr), percent(rate.tpr), percent(rate.posterior)) for rate in row.rates],
        indent=2,
    )
    output.emit_words("  The TPR at FPR 1/M also bounds guessing one of M equally likely values.")
    if row.together:
        output.emit("")
        cases = [(str(case), case.guarantee, percent(case.right_guess)) for case in row.together]
        output.emit_table(("together", "guarantee", "right at even odds"), cases, indent=2)
    if row.deployments:
        output.emit("")
        output.emit_words(f"Beside published deployments that protect {UNITS[row.unit]}:")
        near = [(each.shown_epsilon(), each.guarantee, each.unit, str(each)) for each in row.deployments]
        output.emit_table(("eps", "published", "protects", "by, year: what"), near, indent=2)
        output.emit_words("  eps of a rho is at the delta above, at most 1e-5. Other units: see --unit.")
    output.emit("", "What it does not say:")
    output.emit_words(*(f"  - {line}" for line in row.limits))
