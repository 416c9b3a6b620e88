"""A table of bounds without a sweep: one line for each case, one mark for each accountant."""

from __future__ import annotations

import math
from typing import Any

from wpriv.figures import _draw, _names


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw the answer of each accountant for each case; the comparable bounds of one privacy notion share a colour."""
    y = "delta" if rows[0].get("asked") == "epsilon" else "epsilon"
    cases = list(dict.fromkeys(str(row.get("case") or "") for row in rows))
    accountants = list(dict.fromkeys(row["accountant"] for row in rows))
    notions = list(dict.fromkeys(row.get("notion") for row in rows if row.get("notion")))
    for index, accountant in enumerate(accountants):
        answers = [row for row in rows if row["accountant"] == accountant and row.get(y) is not None]
        if not answers:
            axes.plot([], [], linestyle="none", label=f"{_names.accountant(accountant)} (no answer)")
            continue
        offset = 0.7 * ((index + 0.5) / len(accountants) - 0.5)
        style = {
            "color": _draw.COLOURS[notions.index(answers[0]["notion"]) % len(_draw.COLOURS)],
            "marker": _draw.MARKS[1 + index % (len(_draw.MARKS) - 1)],
            "markersize": 6,
            "linestyle": "none",
        }
        places = [cases.index(str(row.get("case") or "")) + offset for row in answers]
        label = _draw.labelled(_names.accountant(accountant), answers)
        axes.plot([row[y] or math.nan for row in answers], places, label=label, **style)
        _draw_zeros([place for row, place in zip(answers, places, strict=True) if not row[y]], style, axes)
    axes.set_yticks(range(len(cases)), cases)
    axes.set_ylim(len(cases) - 0.4, -0.6)
    axes.set_xscale("log")
    axes.set_xlabel(_draw.NAMES[y])
    axes.set_ylabel("case")
    _draw.grid(axes, axis="x")
    axes.legend(fontsize="x-small")
    _draw.unit_note(axes, rows)


def _draw_zeros(places: list[float], style: dict[str, Any], axes: Any) -> None:
    """Draw answers of 0, which a logarithmic axis has no place for, at its left edge, each with its number."""
    for place in places:
        axes.plot([0.015], [place], transform=axes.get_yaxis_transform(), clip_on=False, **style)
        offset = {"xytext": (6, 0), "textcoords": "offset points", "va": "center", "fontsize": "x-small"}
        axes.annotate("0", (0.015, place), xycoords=axes.get_yaxis_transform(), **offset)
