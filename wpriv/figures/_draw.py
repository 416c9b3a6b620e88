"""Shared drawing of figures: colours, line styles by claim, series of a table, legends in the order of the values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

Row = dict[str, Any]
LegendEntry = tuple[float, Any, str]  # the value at the right end, by which entries are sorted; the artist; its label

# the palette of Okabe and Ito, distinguishable under the common forms of colour blindness
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A6D00")
MARKS = ("", "o", "s", "^", "D", "v")
# an accountant has the same colour in all figures
_COLOUR_OF_ACCOUNTANT = {
    "pld": 0,
    "rdp": 1,
    "pdp": 1,
    "moments": 1,
    "renyi": 1,
    "markov": 2,
    "wdp": 2,
    "clt": 3,
    "berry-esseen": 4,
    "bdp": 4,
    "nagaev": 5,
    "gdp": 6,
    "rdp-mironov": 7,
    "zcdp": 4,
    "gdp-clt": 6,
}
_CLAIMS = ("exact", "certified", "upper-bound", "as-published", "approximate")  # the strongest first
_DASHES = {"approximate": (0, (5, 2)), "as-published": (0, (1, 1.5))}
# columns of a table of bounds that are no numeric parameters of the process
_DESCRIPTIONS = {
    *("panel", "case", "accountant", "reason", "claim", "notion"),
    *("adjacency", "asked", "mech", "sampling", "file", "steps"),
}
_ANSWERS = {f"{name}{end}" for name in ("epsilon", "delta") for end in ("", "_lower", "_upper", "_estimate")}
_ANSWERS |= {"mean", "variance", "third", "infinity"}
NAMES = {
    "epsilon": "ε",
    "delta": "δ",
    "n": "number of compositions n",
    "sigma": "noise σ",
    "scale": "noise scale b",
    "rate": "sampling rate q",
    "sensitivity": "sensitivity",
    "order": "order (μ of WDP, α of RDP, λ of BDP)",
    "beta": "β",
    "alpha": "weight α of the Wasserstein term",
    "lipschitz_z": "clip L2 of the gradients of Z's scores",
    "records": "records n",
    "target": "ε asked for",
}


def series(rows: list[Row], x: str, y: str) -> list[tuple[str, list[Row]]]:
    """Group rows into labelled curves of y over x, each sorted by x.

    There is one curve for each accountant, case and value of any other quantity that varies; a quantity that is
    constant within every case is left out of the labels, since the case stands for it.

    Raises:
        KeyError: the table has no column y, and no row explains a missing answer.
    """
    if not any(y in row or row.get("reason") for row in rows):
        raise KeyError(y)
    rows = [row for row in rows if finite(row.get(x)) is not None]
    keys = ["case", "accountant"] if y in ("epsilon", "delta") else ["case"]
    cases = {row.get("case") for row in rows}
    swept = _swept(rows)
    implied = {
        name for name in swept if all(len({r.get(name) for r in rows if r.get("case") == case}) == 1 for case in cases)
    }
    others = [name for name in swept if name not in (x, y, *keys) and name not in implied]
    # the given one of eps and delta separates curves if it is swept beside x
    given = {"epsilon": "delta", "delta": "epsilon"}.get(y, x)
    points = {(r[x], r.get("case"), r.get("accountant"), *(r.get(k) for k in others)) for r in rows}
    others += [given] if given != x and len(points) < len(rows) else []
    varying = [name for name in [*keys, *others] if len({row.get(name) for row in rows}) > 1] or keys[-1:]
    groups: dict[str, list[Row]] = {}
    for row in rows:
        parts = [
            str(row[name]) if name in keys else f"{name} = {row[name]:g}"
            for name in varying
            if row.get(name) is not None
        ]
        groups.setdefault(", ".join(parts), []).append(row)
    return [(label, sorted(group, key=lambda row: float(row[x]))) for label, group in groups.items()]


def _swept(rows: list[Row]) -> list[str]:
    """Return the numeric parameters of the process that vary over the table."""
    names = [name for name in dict.fromkeys(k for row in rows for k in row) if name not in _DESCRIPTIONS | _ANSWERS]
    return [k for k in names if len({row.get(k) for row in rows if isinstance(row.get(k), (int, float))}) > 1]


def axis_of(rows: list[Row]) -> tuple[str, str]:
    """Return the columns (x, y) of a table of bounds: the given or swept quantity with most values, and the answer."""
    y = _answer(rows)
    given = "epsilon" if y == "delta" else "delta"
    swept = _swept(rows)
    candidates = [given, *swept] if len({row.get(given) for row in rows}) > 1 and "n" not in swept else swept
    return max(candidates, key=lambda name: len({row.get(name) for row in rows}), default=given), y


def _answer(rows: list[Row]) -> str:
    """Return the column of answers: delta in a comparison over eps, and in a privacy curve, which has even eps."""
    if "asked" in rows[0]:
        return "delta" if rows[0]["asked"] == "epsilon" else "epsilon"
    eps = [value for row in rows if (value := finite(row.get("epsilon"))) is not None]
    steps = [after - before for before, after in pairwise(eps)]
    even = len(eps) == len(rows) > 2 and max(steps) - min(steps) < 1e-6 * max(steps)
    return "delta" if even and any("delta" in row for row in rows) else "epsilon"


def curves(rows: list[Row], axes: Any, x: str, y: str) -> None:
    """Draw every series of y over x: approximate claims dashed, brackets as bands, the legend by the right ends.

    Raises:
        KeyError: no row has both columns.
    """
    log_y = y == "delta" or _wide([row.get(y) for row in rows])
    # a band whose lower end is 0 extends to the bottom of the figure, a little below the lowest curve
    bottom = 0.3 * min((v for row in rows if (v := finite(row.get(y))) and v > 0), default=1.0) if log_y else 0.0
    groups = series(rows, x, y)
    # an accountant with several sets of options has several curves, which need different colours
    fixed_colours = len({_without_options(row.get("accountant")) for row in rows}) == len(groups)
    entries: list[LegendEntry] = []
    used: list[str] = []
    for index, (label, group) in enumerate(groups):
        answers = [row for row in group if finite(row.get(y)) is not None]
        claim = max((row.get("claim") or "exact" for row in answers), key=_CLAIMS.index, default=None)
        style = _style(group[0].get("accountant"), index, fixed_colours, claim)
        # markers distinguish curves that share a colour
        mark = MARKS[min(used.count(style["color"]), len(MARKS) - 1)]
        style |= {"marker": mark, "markersize": 4.5, "markevery": max(1, len(group) // 10)}
        used.append(style["color"])
        shown = [row for row in answers if not log_y or row[y] > 0]
        if not shown:
            note = "0 throughout" if answers else "no answer"
            entries.append((-math.inf, axes.plot([], [], linestyle="none")[0], f"{label} ({note})"))
            continue
        xs = [row[x] for row in shown]
        if len(shown) == 1:  # a line of one point is not seen
            style |= {"marker": mark or MARKS[1]}
        artist = axes.plot(xs, [row[y] for row in shown], **style)[0]
        _band(axes, xs, shown, y, bottom, style["color"])
        # a table of the user's own may state no claims
        stated = f" ({described(answers[0], claim)})" if any(row.get("claim") for row in answers) else ""
        entries.append((shown[-1][y], artist, f"{label}{stated}"))
    if not entries:
        raise KeyError(f"rows with both {x} and {y}")
    if log_y:
        axes.set_yscale("log")
        axes.set_ylim(bottom=bottom)
    xs = [v for row in rows if (v := finite(row.get(x))) is not None]
    if _wide(xs) and min(xs) > 0 and _geometric(xs):
        axes.set_xscale("log", base=2 if x == "n" else 10)
    _finish(axes, x, y, entries)
    unit_note(axes, rows)


def lines(rows: list[Row], axes: Any, x: str, y: str) -> None:
    """Draw a table without accountants: y over x, one line for each ``case``, the legend by the right ends.

    The line style follows the claim, also where it changes along a line because a formula leaves the range of its
    proof. ``marked`` rows get a dot.

    Raises:
        KeyError: no row has both columns.
    """
    rows = [row for row in rows if finite(row.get(x)) is not None and finite(row.get(y)) is not None]
    if not rows:
        raise KeyError(f"rows with both {x} and {y}")
    entries: list[LegendEntry] = []
    for index, case in enumerate(dict.fromkeys(row["case"] for row in rows)):
        line = sorted((row for row in rows if row["case"] == case), key=lambda row: float(row[x]))
        colour = COLOURS[index % len(COLOURS)]
        # the first line is wide and drawn first, so that one that agrees with it does not hide it
        width = 1.6 if index else 3.2
        for claim in dict.fromkeys(row.get("claim") for row in line):
            part = [row for row in line if row.get("claim") == claim]
            start = line[max(0, line.index(part[0]) - 1)]  # the end of the part with the previous claim
            points = [start[x], *(row[x] for row in part)], [start[y], *(row[y] for row in part)]
            artist = axes.plot(*points, color=colour, linestyle=_DASHES.get(claim or "", "solid"), linewidth=width)[0]
            entries.append((part[-1][y], artist, f"{case} ({claim})"))
        marked = [row for row in line if row.get("marked")]
        points = [row[x] for row in marked], [row[y] for row in marked]
        axes.plot(*points, color=colour, marker="o", markersize=4.5, linestyle="none")
    for axis, name in (("x", x), ("y", y)):
        values = [float(row[name]) for row in rows]
        if _wide(values) and min(values) > 0 and (axis == "y" or _geometric(values)):
            getattr(axes, f"set_{axis}scale")("log")
    _finish(axes, x, y, entries)


def _finish(axes: Any, x: str, y: str, entries: list[LegendEntry]) -> None:
    """Label both axes, add a grid and a legend with the largest right end first."""
    axes.set_xlabel(NAMES.get(x, x))
    axes.set_ylabel(NAMES.get(y, y))
    grid(axes)
    sorted_legend(axes, entries)


def grid(axes: Any, **options: Any) -> None:
    """Add the thin grid lines of all figures."""
    axes.grid(True, **{"alpha": 0.25, "linewidth": 0.6, **options})


def sorted_legend(axes: Any, entries: list[LegendEntry]) -> None:
    """Add a legend whose entries are in the order of the curves at the right edge, from the top."""
    entries = sorted(entries, key=lambda entry: -entry[0])
    legend(axes, [entry[1] for entry in entries], [entry[2] for entry in entries])


def legend(axes: Any, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Add a legend, in smaller type if it has more than eight entries."""
    axes.legend(handles, labels, fontsize="small" if len(labels) <= 8 else "x-small", framealpha=0.85, loc="best")


def unit_note(axes: Any, rows: list[Row]) -> None:
    """State below the x axis that curves of several privacy notions share the axis but no unit."""
    notions = list(dict.fromkeys(row["notion"] for row in rows if row.get("notion")))
    if len(notions) > 1:
        note = f"{', '.join(notions)}: no common unit; compare within one notion only"
        axes.set_xlabel(f"{axes.get_xlabel()}\n{note}", fontsize="small")


def described(row: Row, claim: str | None) -> str:
    """Return the claim, after the privacy notion if that is not approximate DP."""
    notion = row.get("notion") or "approximate-dp"
    return str(claim) if notion == "approximate-dp" else f"{notion}, {claim}"


def finite(value: Any) -> float | None:
    """Return a finite number as a float, and None for anything else."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _without_options(accountant: str | None) -> str:
    return (accountant or "").partition(":")[0]


def _style(accountant: str | None, index: int, fixed_colours: bool, claim: str | None) -> dict[str, Any]:
    colour = _COLOUR_OF_ACCOUNTANT.get(_without_options(accountant), index) if fixed_colours else index
    # the tight answer is wide and lies below the others, so that a bound that agrees with it does not hide it
    tight = accountant in ("pld", "gdp")
    return {
        "color": COLOURS[colour % len(COLOURS)],
        "linestyle": _DASHES.get(claim or "", "solid"),
        "linewidth": 3.2 if tight else 1.5,
        "zorder": 2.0 if tight else 2.5,
    }


def _band(axes: Any, xs: list[float], rows: list[Row], y: str, bottom: float, colour: str) -> None:
    """Shade the certified bracket. An upper bound, whose lower end is the trivial 0, has no band."""
    if any(row.get("claim") != "certified" for row in rows):
        return
    lower = [max(finite(row.get(f"{y}_lower")) or 0.0, bottom) for row in rows]
    axes.fill_between(xs, lower, [row[y] for row in rows], color=colour, alpha=0.1, linewidth=0, zorder=1.0)


def _geometric(xs: list[float]) -> bool:
    """Tell whether values are spaced by ratios: the middle is nearer the geometric mean of the ends."""
    values = sorted(set(xs))
    middle, low, high = values[len(values) // 2], values[0], values[-1]
    return abs(math.log(middle / math.sqrt(low * high))) < abs(math.log(middle / ((low + high) / 2)))


def _wide(values: list[Any]) -> bool:
    """Tell whether the positive values span a factor of 30 or more: the axis is then logarithmic and omits zeros."""
    positive = [v for v in map(finite, values) if v is not None and v > 0]
    return len(positive) > 1 and max(positive) >= 30 * min(positive)


def band(axes: Any, xs: Sequence[float], rows: list[Row], column: str, colour: str) -> None:
    """Draw a band of one standard deviation around the means of repeated trainings; nothing for a single training.

    Args:
        xs: of the rows. rows: with a mean in each.
    """
    if any(row.get(f"{column}_sd") is not None for row in rows):
        spreads = [float(row.get(f"{column}_sd") or 0.0) for row in rows]
        low, high = ([row[column] + sign * s for row, s in zip(rows, spreads, strict=True)] for sign in (-1, 1))
        axes.fill_between(xs, low, high, color=colour, alpha=0.18, linewidth=0)


def bars(axes: Any, xs: Sequence[float], ys: Sequence[float], spreads: Sequence[float], colour: str) -> None:
    """Draw bars of one standard deviation at means over repeated trainings; nothing where all deviations are 0."""
    if any(spreads):
        axes.errorbar(xs, ys, yerr=list(spreads), fmt="none", ecolor=colour, capsize=2, elinewidth=1)
