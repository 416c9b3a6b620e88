"""What is said of the five papers: the verdicts, and the claims of each abstract with the verdict on it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from wpriv.papers.reproduction import collect, reproduce
from wpriv.results import expectations

DOCS = Path(__file__).resolve().parents[1]
# the heading of an error on the page of a paper; an addition to a paper is none
ERROR = re.compile(r"^### \d+\. (?!.*\(an? (?:addition|remark), not an error\))", re.M)


def verdicts(meanings: Mapping[str, str]) -> str:
    """Return a table of verdicts and their meanings."""
    lines = ["| verdict | meaning |", "|---|---|", *(f"| {word} | {meaning} |" for word, meaning in meanings.items())]
    return "\n".join(lines) + "\n"


def headlines(name: str) -> str:
    """Return a table of the headline claims of a paper."""
    rows = [f"| {each.claim} | **{each.verdict}** | {each.because} |" for each in reproduce.paper(name).headlines]
    return "\n".join(["| the paper claims | verdict | because |", "|---|---|---|", *rows]) + "\n"


def summary() -> str:
    """Return a table of the kept verdicts on the items of each paper, and of the errors on its page."""
    items = json.loads((DOCS.parent / "reproductions" / "report.json").read_text(encoding="utf-8"))["items"]
    counts = {name: Counter(item["verdict"] for item in items if item["paper"] == name) for name in reproduce.PAPERS}
    shown = [word for word in collect.VERDICTS if any(count[word] for count in counts.values())]
    lines = [f"| paper | items | {' | '.join(shown)} | errors found |", "|---|" + "---|" * (len(shown) + 2)]
    for name, count in counts.items():
        errors = len(ERROR.findall((DOCS / "papers" / f"{name}.md").read_text(encoding="utf-8")))
        cells = (f"[{name}]({name}.md)", count.total(), *(count[word] or "" for word in shown), errors)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def _part(name: str) -> Callable[[], str]:
    return lambda: headlines(name)


PARTS = {
    "papers-summary": summary,
    "verdicts-items": lambda: verdicts(collect.VERDICTS),
    "verdicts-numbers": lambda: verdicts(expectations.WORDS),
    **{f"headlines-{name}": _part(name) for name in reproduce.PAPERS},
}
