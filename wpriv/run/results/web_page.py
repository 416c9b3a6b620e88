"""Parts of web pages: self-contained documents, tables, expected numbers, claims and figures as inline SVG.

All text is escaped: names and texts of recipes may hold anything.
"""

from __future__ import annotations

import html
import math
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wpriv.errors import WprivError
from wpriv.numerics.safe_rounding import text as rounded
from wpriv.run import recipe_duration
from wpriv.run.results import expectations

Row = dict[str, Any]
STYLE = Path(__file__).parent / "web_page.css"
# rows of a table that a page shows in full below a figure
MAX_ROWS = 60
# expected numbers that a page shows without being unfolded
MOST_OPEN = 16
# relative differences below the first are rounding errors; from the second on, a percentage has three digits
ROUNDING, LARGE = 1e-9, 0.995
BOUNDS = ("eps", "delta")  # beginnings of the columns that hold a guarantee
LOWER_ENDS = ("_lower", "_at_least")  # ends of the columns that hold a lower bound
NO_COLUMNS = {"process", "source", "warnings", "reason"}
# the columns of expected numbers, and whether a table of some rows has them
_COLUMNS: dict[str, Callable[[Sequence[Row]], bool]] = {
    "at": lambda rows: any(row["where"] or row["panel"] for row in rows),
    **dict.fromkeys(("column", "kind", "expected", "ours"), lambda rows: True),
    "our claim": lambda rows: any(row.get("claim") for row in rows),
    **dict.fromkeys(("difference", "within", "verdict", "source"), lambda rows: True),
}
_NUMBERS = {"expected", "ours", "difference", "within"}


def document(title: str, body: str) -> str:
    """Return a page that loads nothing from elsewhere."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{text(title)}</title>\n'
        f"<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def text(value: Any) -> str:
    """Return text with the characters that have a meaning in HTML escaped."""
    return html.escape(str(value))


def number(value: Any, digits: int = 6) -> str:
    """Return a number in short, other values as text, and nothing for None."""
    if value is None:
        return ""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def word(verdict: str) -> str:
    """Return a verdict in its colour."""
    name = "-".join("".join(letter if letter.isalnum() else " " for letter in verdict.lower()).split())
    return f'<span class="verdict {text(name)}">{text(verdict)}</span>'


def table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[int] = (), name: str = "") -> str:
    """Return a table of cells that are HTML already.

    Args:
        numbers: columns that are set flush right. name: the class of the table; on a narrow screen the cells of a table
            with a class stand below one another, each with the name of its column.
    """
    marks = [' class="number"' if place in numbers else "" for place in range(len(header))]
    labels = [f' data-label="{text(column)}"' if name else "" for column in header]

    def line(tag: str, cells: Sequence[str], marks: Sequence[str]) -> str:
        return (
            "<tr>" + "".join(f"<{tag}{mark}>{cell}</{tag}>" for mark, cell in zip(marks, cells, strict=True)) + "</tr>"
        )

    head = line("th", [text(column) for column in header], marks)
    marks = [mark + label for mark, label in zip(marks, labels, strict=True)]
    body = "\n".join(line("td", row, marks) for row in rows)
    kind = f' class="{name}"' if name else ""
    return f'<div class="wide"><table{kind}><thead>{head}</thead><tbody>\n{body}\n</tbody></table></div>'


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and texts, without a header."""
    body = "\n".join(f"<tr><th>{text(name)}</th><td>{text(value)}</td></tr>" for name, value in rows)
    return f'<div class="wide"><table class="facts"><tbody>\n{body}\n</tbody></table></div>'


def bullets(lines: Iterable[str]) -> str:
    """Return a list; it says 'none' where it is empty."""
    return "<ul>" + "".join(f"<li>{text(line)}</li>" for line in list(lines) or ["none"]) + "</ul>"


def expected(rows: Sequence[Row]) -> str:
    """Return the expected numbers of ``expect.json`` beside ours, as a table.

    Of a long table, the numbers that are met can be unfolded.
    """
    if len(rows) <= MOST_OPEN:
        return _expected_table(rows)
    open_rows, folded = [row for row in rows if not row["ok"]], [row for row in rows if row["ok"]]
    shown = _expected_table(open_rows) if open_rows else ""
    summary = f"{len(folded)} of {len(rows)} numbers, all within their tolerances or of the same commit"
    details = f'<details class="expected"><summary>{summary}</summary>{_expected_table(folded)}</details>'
    return f"{shown}{details}" if folded else shown


def _expected_table(rows: Sequence[Row]) -> str:
    columns = [name for name, is_shown in _COLUMNS.items() if is_shown(rows)]
    numbers = {place for place, name in enumerate(columns) if name in _NUMBERS}
    return table(
        columns,
        [[cell for name, cell in _expected(row).items() if name in columns] for row in rows],
        numbers,
        "numbers",
    )


def claims(entries: Iterable[Mapping[str, str]]) -> list[str]:
    """Return statements of a paper that are not borne out, with the finding and the reason."""
    return [
        f"<blockquote><p><b>The paper says:</b> {text(claim['paper'])}</p><p><b>We find:</b> "
        f"{text(claim['found'])}</p><p><b>Because:</b> {text(claim['because'])}</p></blockquote>"
        for claim in entries
    ]


def figures(draw: Callable[[Path], Iterable[Path]], prefix: str, label: str) -> list[str]:
    """Return figures as inline SVG.

    Args:
        draw: writes SVG files (and others, which are left out) into a folder and returns their paths.
        prefix: of the identifiers within the figures, unique on the page. label: what the figures show.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            pictures = [path.read_text(encoding="utf-8") for path in draw(Path(folder)) if path.suffix == ".svg"]
        except WprivError as error:
            return [f'<p class="soft">No figure: {text(error)}</p>']
    return inline(pictures, prefix, label)


def inline(pictures: Iterable[str], prefix: str, label: str) -> list[str]:
    """Return SVG files, given as text, as figures within the page; ``prefix`` and ``label`` as for ``figures``."""
    return [
        f'<figure role="img" aria-label="{text(label)}">{_inline(picture, f"{prefix}-{place}")}</figure>'
        for place, picture in enumerate(pictures)
    ]


def linked(addresses: Iterable[str], label: str) -> list[str]:
    """Return pictures in files beside the page as figures; they are loaded when they are scrolled to."""
    return [f'<figure><img src="{text(address)}" alt="{text(label)}" loading="lazy"></figure>' for address in addresses]


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
    cells = [[text(_cell(name, row.get(name))) for name in names] for row in shown]
    count = f"{len(shown)} of {total} rows" if total > len(shown) else f"{total} row{'s' * (total != 1)}"
    words = ", ".join(f"{name} {_cell(name, rows[0][name])}" for name in alike if name not in names)
    above = f'<p class="soft">In all rows: {text(words)}</p>' if words else ""
    return f"<details><summary>{title}, {count}</summary>{above}{table(names, cells)}</details>"


def thinned(rows: Sequence[Row]) -> list[Row]:
    """Return at most 60 rows of a table, evenly chosen, the first and the last among them."""
    last = len(rows) - 1
    if last < MAX_ROWS:
        return list(rows)
    return [rows[round(place * last / (MAX_ROWS - 1))] for place in range(MAX_ROWS)]


def _cell(name: str, value: Any) -> str:
    """A number of a table: lower ends rounded down, upper ends and figures of eps and delta up, the rest to nearest."""
    if isinstance(value, float) and math.isfinite(value):
        if name.endswith(LOWER_ENDS):
            return rounded(value, up=False)
        if name.endswith("_upper") or (name.startswith(BOUNDS) and not name.endswith("_estimate")):
            return rounded(value, up=True)
    return number(value)


def origin(provenance: Row) -> str:
    """Return where and when numbers were computed."""
    parts = [f"wpriv {provenance.get('wpriv', '')}"]
    if provenance.get("git_commit"):
        parts.append(f"commit {str(provenance['git_commit'])[:12]}")
    if isinstance(provenance.get("wall_seconds"), (int, float)):
        parts.append(recipe_duration.words(provenance["wall_seconds"]))
    parts.append(f"device {provenance.get('device', 'cpu')}")
    if provenance.get("seed") is not None:
        parts.append(f"seed {provenance['seed']}")
    if isinstance(provenance.get("seeds"), int) and provenance["seeds"] > 1:
        parts.append(f"{provenance['seeds']} runs of each setting")
    parts += [str(provenance[key]) for key in ("platform",) if provenance.get(key)]
    return ", ".join(parts)


def _expected(row: Row) -> dict[str, str]:
    """The cells of an expected number by their columns."""
    verdict = expectations.verdict_word(row).lower()
    kind = f"{row['kind']}, commit {row['commit']}" if row.get("commit") else row["kind"]
    cells = {
        "at": place(row),
        "column": row["column"],
        "kind": kind,
        "expected": expected_number(row),
        "ours": ours(row),
        "our claim": row.get("claim") or "",
        "difference": difference(row),
        "within": tolerance(row),
        "verdict": "",
        "source": row["source"],
    }
    # the name of a column may break behind an underscore
    column = text(row["column"]).replace("_", "_<wbr>")
    return {name: text(cell) for name, cell in cells.items()} | {"column": column, "verdict": word(verdict)}


def place(row: Row) -> str:
    """Return the panel and the columns that select the row of an expected number, in words."""
    entries = {**({"panel": row["panel"]} if row["panel"] else {}), **row["where"]}
    # the path of a key in the recipe is left out: privacy.eps
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in entries.items())


def expected_number(row: Row) -> str:
    """Return an expected number; of a bound from one side, with that side."""
    return number(row["expected"]) + {"at least": " or more", "at most": " or less"}.get(row.get("side", ""), "")


def ours(row: Row) -> str:
    """Return our number; of repeated trainings the mean, the standard deviation of one of them and their number.

    A mean has as many decimals as its deviation, which has two digits.
    """
    mean, deviation = row["ours"], row.get("deviation")
    if deviation is None or mean is None:
        return number(mean)
    decimals = max(0, 1 - math.floor(math.log10(deviation))) if deviation > 0 else 0
    mean_text = f"{mean:.{decimals}f}" if deviation > 0 else number(mean)
    return f"{mean_text} ± {deviation:.{decimals}f} ({row['seeds']} seeds)"


def difference(row: Row) -> str:
    """Return how far our number lies from the expected one: in percent, or in its unit if the tolerance is absolute.

    Relative differences below 1e-9, which are rounding errors, are shown as 0.
    """
    value = row["difference"]
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return number(value)
    if row["absolute"]:
        return f"{value:+.2g}" if value else "0"
    return "0" if abs(value) < ROUNDING else f"{100 * value:+.{2 if abs(value) < LARGE else 3}g}%"


def tolerance(row: Row) -> str:
    """Return the tolerance of an expected number in the unit of ``difference``."""
    return f"{row['within']:g}" if row["absolute"] else f"{100 * row['within']:g}%"


def _inline(picture: str, name: str) -> str:
    """An SVG file without its prologue, its identifiers made unique on the page."""
    picture = picture[picture.index("<svg") :]
    width = re.search(r'<svg[^>]* width="([0-9.]+)pt"', picture)
    if width is not None:  # a small figure is not stretched over the whole page
        picture = picture.replace("<svg", f'<svg style="max-width: {1.4 * float(width[1]):.0f}pt"', 1)
    picture = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', picture)
    picture = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", picture)
    return re.sub(r'(xlink:href|href)="#([^"]+)"', rf'\1="#{name}-\2"', picture)
