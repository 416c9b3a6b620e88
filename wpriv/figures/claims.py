"""Claims of a paper: each published figure over the exact one, with the inputs at which it fails or is tightest."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw, _palette

COLOURS = {"holds": "#007A5A", "fails": "#D55E00"}
MARKS = {"holds": "o", "fails": "X"}
LABELS = ["holds", "fails: smallest counterexample"]
LINE = 0.18  # inches of one claim, by which a table with many claims makes the figure higher
PLOT, LETTER = 2.2, 0.06  # inches of the axes, and of a letter: long names and inputs make the figure wider
NARROW = 5.0  # inches, below which a figure leaves out the inputs
LOW, HIGH = 0.04, 25.0  # ratios beyond these, or not positive, are drawn as arrows at the edge


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw one line for each claim: published / exact on a log axis; left of 1 a published upper bound is too small.

    Raises:
        KeyError: no row has a ratio.
    """
    ratios = [row["ratio"] for row in rows if row.get("ratio")]
    if not ratios:
        raise KeyError("rows with a ratio of published to exact figures")
    inside = [ratio for ratio in ratios if LOW <= ratio <= HIGH]
    low, high = min(*inside, 0.5, 0.5) / 1.2, max(*inside, 1.2, 1.2) * 1.2
    texts = _texts(rows, _palette.of(axes).max_width)
    for index, (row, text) in enumerate(zip(rows, texts, strict=True)):
        colour, ratio = COLOURS[row["verdict"]], row.get("ratio")
        if ratio is not None:
            end = min(max(ratio, low), high)
            mark = "<" if ratio < low else ">" if ratio > high else MARKS[row["verdict"]]
            axes.plot([1, end], [index, index], color=colour, linewidth=1.4, zorder=2)
            axes.plot([end], [index], color=colour, marker=mark, markersize=6, zorder=3, clip_on=False)
        axes.annotate(
            text,
            (1.0, index),
            xycoords=("axes fraction", "data"),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontsize="x-small",
            color=colour,
            annotation_clip=False,
        )
    axes.axvline(1, color="#000000", linewidth=0.8, zorder=1)
    steps = (1, 2, 5) if high < 200 * low else (1,)
    ticks = [k * 10.0**e for e in range(-3, 4) for k in steps if low <= k * 10.0**e <= high]
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(rows)), [row["proposition"] for row in rows], fontsize="small")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("published / exact")
    axes.set_ylabel("statement")
    _draw.grid(axes, axis="x")
    letters = max(len(text) for text in texts) + max(len(row["proposition"]) for row in rows)
    width, height = axes.figure.get_size_inches()
    wide = _palette.of(axes).max_width or max(width, PLOT + LETTER * letters)
    axes.figure.set_size_inches(wide, max(height, LINE * len(rows) + 1))
    handles = [axes.plot([], [], color=COLOURS[name], marker=MARKS[name], linestyle="none")[0] for name in COLOURS]
    place = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.14 * min(1.0, 20 / len(rows)))}
    columns = 1 if (_palette.of(axes).max_width or NARROW) < NARROW else 2
    axes.legend(handles, LABELS, fontsize="x-small", ncols=columns, frameon=False, **place)


def _texts(rows: list[dict[str, Any]], max_width: float | None) -> list[str]:
    """Both figures of each claim, and the inputs unless the figure must stay narrow."""
    pairs = [f"{row['published']:.3g} against {row['exact']:.3g}" for row in rows]
    texts = [f"{pair}:  {row['at']}" for pair, row in zip(pairs, rows, strict=True)]
    if max_width is None:
        return texts
    if max_width < NARROW:
        return pairs
    letters = int((max_width - PLOT) / LETTER) - max(len(row["proposition"]) for row in rows)
    return [text if len(text) <= letters else f"{text[: letters - 1]}…" for text in texts]
