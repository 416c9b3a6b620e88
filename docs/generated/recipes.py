"""The shipped recipes, by paper."""

from __future__ import annotations

import re
from collections.abc import Callable

from wpriv.config import recipe_files
from wpriv.training.plan import short_duration

PAPER = re.compile(r"[^;]*? \d{4}, ")


def recipes(folder: str) -> str:
    """Return a table of the recipes of one folder: name, table or figure, kind, time, data."""
    rows = recipe_files.listing(f"{folder}/")
    papers = {match[0] for row in rows if (match := PAPER.match(row.source))}
    shared = papers.pop() if len(papers) == 1 else ""  # the heading names the paper
    lines = ["| recipe | reproduces | kind | time | data |", "|---|---|---|---|---|"]
    for row in rows:
        cells = (f"`{row.name}`", row.source.removeprefix(shared), row.kind, short_duration(row.time), row.data)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _part(folder: str) -> Callable[[], str]:
    return lambda: recipes(folder)


FOLDERS = sorted({name.partition("/")[0] for name in recipe_files.shipped()})
PARTS = {f"recipes-{folder}": _part(folder) for folder in FOLDERS}
