"""The verdicts on the items of the five papers and on expected numbers."""

from __future__ import annotations

from collections.abc import Mapping

from wpriv.papers.reproduction import collect
from wpriv.results import expectations


def verdicts(meanings: Mapping[str, str]) -> str:
    """Return a table of verdicts and their meanings."""
    lines = ["| verdict | meaning |", "|---|---|", *(f"| {word} | {meaning} |" for word, meaning in meanings.items())]
    return "\n".join(lines) + "\n"


PARTS = {
    "verdicts-items": lambda: verdicts(collect.VERDICTS),
    "verdicts-numbers": lambda: verdicts(expectations.WORDS),
}
