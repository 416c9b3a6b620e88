"""What the figures share: colours, how a claim looks, series of a table, legends in the order of the values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]

# Okabe and Ito's colours, told apart with every common colour blindness; one accountant keeps its colour in all figures
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A6D00")
_OWN = {"pld": 0, "rdp": 1, "markov": 2, "clt": 3, "berry-esseen": 4, "nagaev": 5, "gdp": 6, "rdp-mironov": 7}
_OWN |= {"pdp": 1, "zcdp": 7, "gdp-clt": 7, "moments": 1, "bdp": 4, "wdp": 2, "renyi": 1}
_STRENGTH = ("exact", "certified", "upper-bound", "as-published", "approximate")
MARKS = ("", "o", "s", "^", "D", "v")
_DASHES = {"approximate": (0, (5, 2)), "as-published": (0, (1, 1.5))}
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
    """The rows as curves y over x: one for each accountant, case and value of any other quantity that varies, sorted by x."""
    if not any(y in row or row.get("reason") for row in rows):
        raise KeyError(y)
    needed = [row for row in rows if _number(row.get(x)) is not None]
    told_apart = ["case", "accountant"] if y in ("epsilon", "delta") else ["case"]
    # what a case says by its name need not be said again
    cases = {r.get("case") for r in needed}
    own = {
        k
        for k in _swept(needed)
        if all(len({r.get(k) for r in needed if r.get("case") == case}) == 1 for case in cases)
    }
    others = [k for k in _swept(needed) if k not in (x, y, *told_apart) and k not in own]
    # what was asked tells curves apart where it is swept beside x
    asked = {"epsilon": "delta", "delta": "epsilon"}.get(y, x)
    points = {(r[x], r.get("case"), r.get("accountant"), *(r.get(k) for k in others)) for r in needed}
    others += [asked] if asked != x and len(points) < len(needed) else []
    groups: dict[str, list[Row]] = {}
    varying = [k for k in [*told_apart, *others] if len({row.get(k) for row in needed}) > 1] or told_apart[-1:]
    for row in needed:
        parts = [str(row[k]) if k in told_apart else f"{k} = {row[k]:g}" for k in varying if row.get(k) is not None]
        groups.setdefault(", ".join(parts), []).append(row)
    return [(label, sorted(own, key=lambda row: float(row[x]))) for label, own in groups.items()]


def _swept(rows: list[Row]) -> list[str]:
    """Numeric parameters of the process that vary over the table."""
    fixed = {
        "panel",
        "case",
        "accountant",
        "reason",
        "claim",
        "notion",
        "adjacency",
        "asked",
        "mech",
        "sampling",
        "file",
        "steps",
    }
    answers = {f"{a}{b}" for a in ("epsilon", "delta") for b in ("", "_lower", "_upper", "_estimate")}
    answers |= {"mean", "variance", "third", "infinity"}
    names = [k for k in dict.fromkeys(k for row in rows for k in row) if k not in fixed | answers]
    return [k for k in names if len({row.get(k) for row in rows if isinstance(row.get(k), (int, float))}) > 1]


def axis_of(rows: list[Row]) -> tuple[str, str]:
    """The x and the y of a table of bounds: of what was asked or swept that with the most values, and what was answered."""
    y = "delta" if rows[0].get("asked") == "epsilon" else "epsilon"
    asked = "epsilon" if y == "delta" else "delta"
    swept = _swept(rows)
    varied = [asked, *swept] if len({row.get(asked) for row in rows}) > 1 and "n" not in swept else swept
    return max(varied, key=lambda name: len({row.get(name) for row in rows}), default=asked), y


def curves(rows: list[Row], axes: Any, x: str, y: str) -> None:
    """Draws every series of y over x: approximate claims dashed, brackets as bands, the legend in the order of the right ends."""
    log_y = y == "delta" or _wide([row.get(y) for row in rows])
    handles: list[tuple[float, Any, str]] = []
    # where a lower end is 0 its band goes on to the bottom of the figure, a little below the lowest curve
    bottom = 0.3 * min((v for row in rows if (v := _number(row.get(y))) and v > 0), default=1.0) if log_y else 0.0
    groups = series(rows, x, y)
    used: list[str] = []
    # an accountant with other options is another curve, and needs a colour of its own
    own_colours = len({_bare(row.get("accountant")) for row in rows}) == len(groups)
    for place, (label, own) in enumerate(groups):
        told = [row for row in own if _number(row.get(y)) is not None]
        claim = max((row.get("claim") or "exact" for row in told), key=_STRENGTH.index, default=None)
        style = _style(own[0].get("accountant"), place, own_colours, claim)
        # more series than colours: markers tell apart those that share one
        mark = MARKS[min(used.count(style["color"]), len(MARKS) - 1)]
        style |= {"marker": mark, "markersize": 4.5, "markevery": max(1, len(own) // 10)}
        used.append(style["color"])
        positive = [row for row in told if not log_y or row[y] > 0]
        if not positive:
            note = "0 throughout" if told else "no answer"
            handles.append((-math.inf, axes.plot([], [], linestyle="none")[0], f"{label} ({note})"))
            continue
        xs = [row[x] for row in positive]
        line = axes.plot(xs, [row[y] for row in positive], **style)[0]
        _band(axes, xs, positive, y, bottom, style["color"])
        handles.append((positive[-1][y], line, f"{label} ({described(told[0], claim)})"))
    if not handles:
        raise KeyError(f"rows with both {x} and {y}")
    if log_y:
        axes.set_yscale("log")
        axes.set_ylim(bottom=bottom)
    xs = [v for row in rows if (v := _number(row.get(x))) is not None]
    if _wide(xs) and min(xs) > 0 and _even(xs):
        axes.set_xscale("log", base=2 if x == "n" else 10)
    axes.set_xlabel(NAMES.get(x, x))
    axes.set_ylabel(NAMES.get(y, y))
    axes.grid(True, alpha=0.25, linewidth=0.6)
    handles.sort(key=lambda h: -h[0])
    legend(axes, [h[1] for h in handles], [h[2] for h in handles])
    unit_note(axes, rows)


def lines(rows: list[Row], axes: Any, x: str, y: str) -> None:
    """Draws a table that no accountant makes: y over x, one line for each ``case``, styled by its claim; the legend by the right ends.

    A claim that changes along a line (a formula that leaves the range of its proof) changes its look there; rows that are ``marked``
    get a dot.
    """
    told = [row for row in rows if _number(row.get(x)) is not None and _number(row.get(y)) is not None]
    if not told:
        raise KeyError(f"rows with both {x} and {y}")
    handles: list[tuple[float, Any, str]] = []
    for place, case in enumerate(dict.fromkeys(row["case"] for row in told)):
        own, colour = (
            sorted((row for row in told if row["case"] == case), key=lambda row: float(row[x])),
            COLOURS[place % len(COLOURS)],
        )
        for claim in dict.fromkeys(row.get("claim") for row in own):
            part = [row for row in own if row.get("claim") == claim]
            joint = own[max(0, own.index(part[0]) - 1)]  # from where the claim before it ends
            ends = [joint[x], *(row[x] for row in part)], [joint[y], *(row[y] for row in part)]
            # the first line is wide and lies below the others, so that one that agrees with it does not hide it
            style = {
                "color": colour,
                "linestyle": _DASHES.get(claim or "", "solid"),
                "linewidth": 1.6 if place else 3.2,
            }
            handles.append((part[-1][y], axes.plot(*ends, **style)[0], f"{case} ({claim})"))
        dots = [row for row in own if row.get("marked")]
        axes.plot(
            [row[x] for row in dots],
            [row[y] for row in dots],
            color=colour,
            marker="o",
            markersize=4.5,
            linestyle="none",
        )
    for axis, name in (("x", x), ("y", y)):
        values = [float(row[name]) for row in told]
        if _wide(values) and min(values) > 0 and (axis == "y" or _even(values)):
            getattr(axes, f"set_{axis}scale")("log")
    axes.set_xlabel(NAMES.get(x, x))
    axes.set_ylabel(NAMES.get(y, y))
    axes.grid(True, alpha=0.25, linewidth=0.6)
    handles.sort(key=lambda h: -h[0])
    legend(axes, [h[1] for h in handles], [h[2] for h in handles])


def unit_note(axes: Any, rows: list[Row]) -> None:
    """Says in the figure itself that curves of several notions share an axis but no unit."""
    notions = list(dict.fromkeys(row["notion"] for row in rows if row.get("notion")))
    if len(notions) > 1:
        said = f"{', '.join(notions)}: no common unit; compare within one notion only"
        axes.set_xlabel(f"{axes.get_xlabel()}\n{said}", fontsize="small")


def _even(xs: list[float]) -> bool:
    """Whether a grid is laid out by ratios rather than by differences: its middle value lies nearer the geometric mean of the ends."""
    grid = sorted(set(xs))
    middle, low, high = grid[len(grid) // 2], grid[0], grid[-1]
    return abs(math.log(middle / math.sqrt(low * high))) < abs(math.log(middle / ((low + high) / 2)))


def described(row: Row, claim: str | None) -> str:
    """The claim, and the notion where it is not the usual one."""
    notion = row.get("notion") or "approximate-dp"
    return str(claim) if notion == "approximate-dp" else f"{notion}, {claim}"


def legend(axes: Any, handles: Sequence[Any], labels: Sequence[str]) -> None:
    axes.legend(handles, labels, fontsize="small" if len(labels) <= 8 else "x-small", framealpha=0.85, loc="best")


def _bare(accountant: str | None) -> str:
    return (accountant or "").partition(":")[0]


def _style(accountant: str | None, place: int, own: bool, claim: str | None) -> dict[str, Any]:
    colour = COLOURS[(_OWN.get(_bare(accountant), place) if own else place) % len(COLOURS)]
    # the tight answer is wide and lies below the others, so that a bound that agrees with it does not hide it
    tight = accountant in ("pld", "gdp")
    return {
        "color": colour,
        "linestyle": _DASHES.get(claim or "", "solid"),
        "linewidth": 3.2 if tight else 1.5,
        "zorder": 2.0 if tight else 2.5,
    }


def _band(axes: Any, xs: list[float], rows: list[Row], y: str, bottom: float, colour: str) -> None:
    """The certified bracket; an upper bound, whose lower end is 0 for want of a better one, has none."""
    if any(row.get("claim") != "certified" for row in rows):
        return
    low = [max(_number(row.get(f"{y}_lower")) or 0.0, bottom) for row in rows]
    axes.fill_between(xs, low, [row[y] for row in rows], color=colour, alpha=0.1, linewidth=0, zorder=1.0)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _wide(values: list[Any]) -> bool:
    """Whether the positive values span so much that only a logarithmic axis shows them; a zero is then below the figure."""
    found = [v for v in map(_number, values) if v is not None and v > 0]
    return len(found) > 1 and max(found) >= 30 * min(found)
