"""Parts of web pages: expected numbers, the tables behind figures, and figures as inline SVG.

All text is escaped by the templates: names and texts of recipes may hold anything.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from wpriv.errors import WprivError
from wpriv.run import recipe_duration
from wpriv.run.results import render, words
from wpriv.run.results.expectations import Verdict, number
from wpriv.run.results.model import Row

# rows of a table that a page shows in full below a figure
MAX_ROWS = 60
# expected numbers that a page shows without being unfolded
MOST_OPEN = 16
BOUNDS = ("eps", "delta")  # beginnings of the columns that hold a guarantee
LOWER_ENDS = ("_lower", "_at_least")  # ends of the columns that hold a lower bound
NO_COLUMNS = {"process", "source", "warnings", "reason"}


def expected(verdicts: Sequence[Verdict]) -> str:
    """Return the expected numbers of a recipe beside ours, as a table; of a long one, those that are met are folded."""
    return render.part("expected", verdicts, MOST_OPEN)


def figures(draw: Callable[[Path], Iterable[Path]], prefix: str, label: str) -> str:
    """Return figures as inline SVG.

    Args:
        draw: writes SVG files (and others, which are left out) into a folder and returns their paths.
        prefix: of the identifiers within the figures, unique on the page. label: what the figures show.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            pictures = [path.read_text(encoding="utf-8") for path in draw(Path(folder)) if path.suffix == ".svg"]
        except WprivError as error:
            return render.part("no_figure", str(error))
    return inline(pictures, prefix, label)


def inline(pictures: Iterable[str], prefix: str, label: str) -> str:
    """Return SVG files, given as text, as figures within the page; ``prefix`` and ``label`` as for ``figures``."""
    return render.part("pictures", [_inline(each, f"{prefix}-{place}") for place, each in enumerate(pictures)], label)


def linked(addresses: Iterable[str], label: str) -> str:
    """Return pictures in files beside the page as figures."""
    return render.part("linked", list(addresses), label)


def numbers_behind(rows: Sequence[Row], title: str = "The numbers of the figure", length: int = 0) -> str:
    """Return the table behind a figure, or another one, which can be unfolded; at most 60 rows, evenly chosen.

    Columns that have one value in all rows stand in a line above it.

    Args:
        length: of the whole table, where rows of it were left out before.
    """
    if not rows:
        return ""
    names = [
        name for name in rows[0] if name not in NO_COLUMNS and any(row.get(name) not in (None, "") for row in rows)
    ]
    shown = thinned(rows)
    alike = [name for name in names if len(rows) > 1 and all(row.get(name) == rows[0][name] for row in rows)]
    names = [name for name in names if name not in alike] or names
    total = max(length, len(rows))
    cells = [[_cell(name, row.get(name)) for name in names] for row in shown]
    count = f"{len(shown)} of {total} rows" if total > len(shown) else f"{total} row{'s' * (total != 1)}"
    above = ", ".join(f"{name} {_cell(name, rows[0][name])}" for name in alike if name not in names)
    return render.part("folded_table", title, count, above, names, cells)


def thinned(rows: Sequence[Row]) -> list[Row]:
    """Return at most 60 rows of a table, evenly chosen, the first and the last among them."""
    last = len(rows) - 1
    if last < MAX_ROWS:
        return list(rows)
    return [rows[round(place * last / (MAX_ROWS - 1))] for place in range(MAX_ROWS)]


def _cell(name: str, value: object) -> str:
    """A number of a table: lower ends rounded down, upper ends and figures of eps and delta up, the rest to nearest."""
    if isinstance(value, float) and math.isfinite(value):
        if name.endswith(LOWER_ENDS):
            return words.down(value)
        if name.endswith("_upper") or (name.startswith(BOUNDS) and not name.endswith("_estimate")):
            return words.up(value)
    return number(value)


def origin(provenance: Mapping[str, object]) -> str:
    """Return where and when numbers were computed."""
    parts = [f"wpriv {provenance.get('wpriv', '')}"]
    if provenance.get("git_commit"):
        parts.append(f"commit {str(provenance['git_commit'])[:12]}")
    if isinstance(seconds := provenance.get("wall_seconds"), (int, float)):
        parts.append(recipe_duration.words(seconds))
    parts.append(f"device {provenance.get('device', 'cpu')}")
    if provenance.get("seed") is not None:
        parts.append(f"seed {provenance['seed']}")
    if isinstance(seeds := provenance.get("seeds"), int) and seeds > 1:
        parts.append(f"{seeds} runs of each setting")
    return ", ".join([*parts, *([str(provenance["platform"])] if provenance.get("platform") else [])])


def _inline(picture: str, name: str) -> str:
    """An SVG file without its prologue, its identifiers made unique on the page."""
    picture = picture[picture.index("<svg") :]
    width = re.search(r'<svg[^>]* width="([0-9.]+)pt"', picture)
    if width is not None:  # a small figure is not stretched over the whole page
        picture = picture.replace("<svg", f'<svg style="max-width: {1.4 * float(width[1]):.0f}pt"', 1)
    picture = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', picture)
    picture = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", picture)
    return re.sub(r'(xlink:href|href)="#([^"]+)"', rf'\1="#{name}-\2"', picture)
