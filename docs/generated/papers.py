"""What is said of the five papers: the verdicts, and the claims of each abstract with the verdict on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from wpriv.papers.reproduction import collect, reproduce
from wpriv.results import expectations


def verdicts(meanings: Mapping[str, str]) -> str:
    """Return a table of verdicts and their meanings."""
    lines = ["| verdict | meaning |", "|---|---|", *(f"| {word} | {meaning} |" for word, meaning in meanings.items())]
    return "\n".join(lines) + "\n"


def headlines(name: str) -> str:
    """Return a table of the headline claims of a paper."""
    rows = [f"| {each.claim} | **{each.verdict}** | {each.because} |" for each in reproduce.paper(name).headlines]
    return "\n".join(["| the paper claims | verdict | because |", "|---|---|---|", *rows]) + "\n"


def _part(name: str) -> Callable[[], str]:
    return lambda: headlines(name)


PARTS = {
    "verdicts-items": lambda: verdicts(collect.VERDICTS),
    "verdicts-numbers": lambda: verdicts(expectations.WORDS),
    **{f"headlines-{name}": _part(name) for name in reproduce.PAPERS},
}
