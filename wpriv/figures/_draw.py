"""Shared drawing of figures: the curves of a table, line styles by claim, certified bands, and sorted legends."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from wpriv.figures import _names, _palette

Row = dict[str, Any]
Rows = list[Row]
Points = list[tuple[Row, str, float]]  # published numbers, each given as its row, its column and the number
LegendEntry = tuple[float, Any, str]  # the value at the right end, by which entries are sorted; the artist; its label

COLOURS = _palette.COLOURS[:8]
MARKS = ("", "o", "s", "^", "D", "v")
NAMES = _names.AXES
# values of an axis that have ticks of their own, if they are apart by this share of it
TICKS, APART = 8, 0.08
NOTE = 46  # letters of a line below an axis
BAND, PUBLISHED = "shaded: certified bracket", "published"
_STAR = {"marker": "*", "markersize": 10, "markeredgecolor": "#000000", "markeredgewidth": 0.6, "linestyle": "none"}
_LABEL = re.compile(r"(.*?)(?: \(([^()]*)\))?", re.DOTALL)
_CLAIMS = ("exact", "certified", "upper-bound", "as-published", "approximate")  # the strongest first
_DASHES = {"approximate": "--", "as-published": ":"}


# The curves of a table: which rows form one, under which label, and over which quantity.

# columns of a table of bounds that are no numeric parameters of the process
_DESCRIPTIONS = {
    *("panel", "case", "accountant", "reason", "claim", "notion"),
    *("adjacency", "asked", "given", "mech", "sampling", "file", "steps"),
}
_ANSWERS = {f"{name}{end}" for name in ("epsilon", "delta") for end in ("", "_lower", "_upper", "_estimate")}
_ANSWERS |= {"mean", "variance", "third", "infinity"}


@dataclass(frozen=True)
class Series:
    """One curve.

    Attributes:
        label: in the legend. key: of its colour and mark. rows: sorted by x.
        mark: key of its mark where that is another one, because cases and accountants vary.
        names: the labels of the colour and of the mark alone, in that case.
        by_case: whether the colour is that of the case, and the mark that of the accountant.
    """

    label: str
    key: str
    rows: Rows
    mark: str | None = None
    names: tuple[str, str] = ("", "")
    by_case: bool = False


def series(rows: Rows, x: str, y: str) -> list[Series]:
    """Group rows into labelled curves of y over x, each sorted by x.

    There is one curve for each accountant, case and value of any other quantity that varies; a quantity that is
    constant within every case is left out of the labels, since the case stands for it.
    """
    if not any(y in row or row.get("reason") for row in rows):
        raise KeyError(y)
    rows = [row for row in rows if finite(row.get(x)) is not None]
    keys = ["case", "accountant"] if y in ("epsilon", "delta") else ["case"]
    varied = swept(rows)
    constant = implied(rows, varied)
    others = [name for name in varied if name not in (x, y, *keys) and name not in constant]
    # the given one of eps and delta separates curves if it is swept beside x
    given = {"epsilon": "delta", "delta": "epsilon"}.get(y, x)
    points = {(r[x], r.get("case"), r.get("accountant"), *(r.get(k) for k in others)) for r in rows}
    others += [given] if given != x and len(points) < len(rows) else []
    varying = [name for name in [*keys, *others] if len({row.get(name) for row in rows}) > 1] or keys[-1:]
    groups: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in varying), []).append(row)
    lines = [_labelled(varying, values, group, x) for values, group in groups.items()]
    if varying == ["case", "accountant"] and all(all(values) for values in groups):
        return [_crossed(line, values, list(groups)) for line, values in zip(lines, groups, strict=True)]
    return lines


def implied(rows: Rows, names: list[str]) -> set[str]:
    """Return the quantities that are constant within every case."""
    cases = {row.get("case") for row in rows}
    return {name for name in names if all(len({r.get(name) for r in rows if r.get("case") == c}) == 1 for c in cases)}


def _labelled(names: list[str], values: tuple[Any, ...], group: Rows, x: str) -> Series:
    """A series under its display names; an accountant without options has the colour that it has in every figure."""
    words = {"case": _names.method, "accountant": _names.accountant}
    given = [(name, value) for name, value in zip(names, values, strict=True) if value not in (None, "")]
    parts = [words[name](str(value)) if name in words else _names.value(name, value) for name, value in given]
    label = ", ".join(parts)
    key = str(given[0][1]) if len(given) == 1 and given[0][0] in words else label
    return Series(label, key, sorted(group, key=lambda row: float(row[x])))


def _crossed(line: Series, values: tuple[Any, ...], groups: list[tuple[Any, ...]]) -> Series:
    """The curve of a case and an accountant: one of them has a colour, that with more values, and the other a mark."""
    case, accountant = map(str, values)
    words = (_names.method(case), _names.accountant(accountant))
    if by_case := len({group[0] for group in groups}) > len({group[1] for group in groups}):
        return replace(line, key=case, mark=accountant, names=words, by_case=by_case)
    return replace(line, key=accountant, mark=case, names=words[::-1])


def swept(rows: Rows) -> list[str]:
    """Return the numeric parameters of the process that vary over the table."""
    names = [name for name in dict.fromkeys(k for row in rows for k in row) if name not in _DESCRIPTIONS | _ANSWERS]
    return [k for k in names if len({row.get(k) for row in rows if isinstance(row.get(k), (int, float))}) > 1]


def axis_of(rows: Rows) -> tuple[str, str]:
    """Return the columns (x, y) of a table of bounds: the given or swept quantity with most values, and the answer."""
    y = _answer(rows)
    given = "epsilon" if y == "delta" else "delta"
    varied = swept(rows)
    # a parameter that tells the cases apart is no axis, if another one varies within them
    varied = [name for name in varied if name not in implied(rows, varied)] or varied
    counts = {name: len({row[name] for row in rows if row.get(name) is not None}) for name in (given, *varied)}
    candidates = [given, *varied] if counts[given] > 1 and "n" not in varied else varied
    return max(candidates, key=counts.__getitem__, default=given), y


def _answer(rows: Rows) -> str:
    """Return the column of answers: delta in a comparison over eps, and in a privacy curve, which has even eps."""
    if "given" in rows[0]:
        return "delta" if rows[0]["given"] == "epsilon" else "epsilon"
    eps = [value for row in rows if (value := finite(row.get("epsilon"))) is not None]
    steps = [after - before for before, after in pairwise(eps)]
    even = len(eps) == len(rows) > 2 and max(steps) - min(steps) < 1e-6 * max(steps)
    return "delta" if even and any("delta" in row for row in rows) else "epsilon"


def finite(value: Any) -> float | None:
    """Return a finite number as a float, and None for anything else."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def geometric(xs: list[float]) -> bool:
    """Tell whether values are spaced by ratios: the middle is nearer the geometric mean of the ends."""
    values = sorted(set(xs))
    middle, low, high = values[len(values) // 2], values[0], values[-1]
    return abs(math.log(middle / math.sqrt(low * high))) < abs(math.log(middle / ((low + high) / 2)))


def wide(values: list[Any]) -> bool:
    """Tell whether the positive values span a factor of 30 or more: the axis is then logarithmic and omits zeros."""
    positive = [v for v in map(finite, values) if v is not None and v > 0]
    return len(positive) > 1 and max(positive) >= 30 * min(positive)


# Draw curves.

Curve = tuple[Series, LegendEntry, Rows]  # with the rows that have an answer


def curves(rows: Rows, axes: Any, x: str, y: str) -> None:
    """Draw every series of y over x: approximate claims dashed, brackets as bands, the legend by the right ends."""
    log_y = y == "delta" or wide([row.get(y) for row in rows])
    # a band whose lower end is 0 extends to the bottom of the figure, a little below the lowest curve
    bottom = 0.3 * min((v for row in rows if (v := finite(row.get(y))) and v > 0), default=1.0) if log_y else 0.0
    groups = series(rows, x, y)
    _palette.of(axes).reserve(group.key for group in groups)
    entries: list[LegendEntry] = []
    drawn: list[Curve] = []
    shaded: list[tuple[str, str]] = []
    for index, group in enumerate(groups):
        answers = [row for row in group.rows if finite(row.get(y)) is not None]
        shown = [row for row in answers if not log_y or row[y] > 0]
        if not shown:
            note = "0 throughout" if answers else "no answer"
            entries.append((-math.inf, axes.plot([], [], linestyle="none")[0], f"{group.label} ({note})"))
            continue
        claim = weakest_claim(answers) or "exact"
        style = _style(axes, group, index, len(shown), claim)
        xs = [row[x] for row in shown]
        artist = axes.plot(xs, [row[y] for row in shown], **style)[0]
        if _band(axes, xs, shown, y, bottom, style["color"]):
            shaded.append((group.label if len(groups) > 1 else "", style["color"]))
        entries.append((shown[-1][y], artist, labelled(group.label, answers)))
        drawn.append((group, entries[-1], answers))
    if not entries:
        raise KeyError(f"rows with both {x} and {y}")
    if log_y and any((finite(row.get(y)) or 0) > 0 for row in rows):
        axes.set_yscale("log")
        axes.set_ylim(bottom=bottom)
    xs = [v for row in rows if (v := finite(row.get(x))) is not None]
    if wide(xs) and min(xs) > 0 and geometric(xs):
        axes.set_xscale("log", base=2 if x == "n" else 10)
    ticks(axes, sorted(set(xs)))
    if len(drawn) == len(entries):
        entries = _crossed_entries(drawn) or entries
    _finish(axes, x, y, [*entries, *_band_entries(shaded)])
    unit_note(axes, rows)


def _crossed_entries(drawn: Sequence[Curve]) -> list[LegendEntry]:
    """Entries by colour and by mark where curves have both; empty where they are not fewer, or claims differ."""
    colours = {curve[0].key: curve for curve in reversed(drawn)}
    marks = {curve[0].mark: curve for curve in reversed(drawn)}
    claims = {(group.names[group.by_case], weakest_claim(rows)) for group, _, rows in drawn}
    is_mixed = len(claims) > len({name for name, _ in claims})
    if is_mixed or None in marks or len(drawn) <= len(colours) + len(marks):
        return []

    def entry(curve: Curve, number: int) -> tuple[Any, str]:
        group, (_, artist, _), rows = curve
        name = group.names[number]
        return artist, labelled(name, rows) if number == group.by_case else name

    by_height = sorted(colours.values(), key=lambda curve: -curve[1][0])
    entries = crossed([entry(curve, 0) for curve in by_height], [entry(curve, 1) for curve in marks.values()])
    return [(-math.inf, handle, label) for handle, label in entries]


def crossed(coloured: Iterable[tuple[Any, str]], marked: Iterable[tuple[Any, str]]) -> list[tuple[Any, str]]:
    """Return handles and labels of lines that have one thing by their colour and another by their mark and dashes."""
    from matplotlib.lines import Line2D

    marked = list(marked)
    # dashes are those of the marks where these differ in them, else those of the colours
    of_marks = len({line.get_linestyle() for line, _ in marked}) > 1

    def handle(line: Any, has_dashes: bool, **style: Any) -> Any:
        return Line2D([], [], linestyle=line.get_linestyle() if has_dashes else "-", markersize=4.5, **style)

    return [
        *((handle(line, not of_marks, color=line.get_color(), linewidth=2), label) for line, label in coloured),
        *((handle(line, of_marks, color="#555555", marker=line.get_marker()), label) for line, label in marked),
    ]


def ticks(axes: Any, xs: Sequence[float]) -> None:
    """Put the ticks of the x axis at its values, where these are few and apart; else at whole numbers, if all are."""
    from matplotlib.ticker import MaxNLocator, NullLocator

    logarithmic = axes.get_xscale() == "log"
    places = [math.log(x) for x in xs] if logarithmic else xs
    apart = min((after - before for before, after in pairwise(places)), default=math.inf)
    if len(xs) <= TICKS and (len(xs) == 1 or apart >= APART * (places[-1] - places[0])):
        axes.set_xticks(xs, [f"{x:g}" for x in xs])
        axes.xaxis.set_minor_locator(NullLocator())
    elif not logarithmic and all(x == round(x) for x in xs):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def weakest_claim(rows: Iterable[Row]) -> str | None:
    """Return the weakest claim of some rows, which holds for all of them; None where no row states one."""
    return max((row["claim"] for row in rows if row.get("claim")), key=_CLAIMS.index, default=None)


def labelled(label: str, rows: Rows) -> str:
    """Return a label with the weakest claim of its rows; a table of the user's own may state no claims."""
    stated = [row for row in rows if row.get("claim")]
    return _names.with_claim(label, stated[0], weakest_claim(stated)) if stated else label


def curve_points(rows: Rows, axes: Any, x: str, y: str) -> list[tuple[Row, str]]:
    """Return each row with the colour of its curve, for points that are drawn beside the curves."""
    return [(row, _palette.of(axes).colour(group.key)) for group in series(rows, x, y) for row in group.rows]


def published(axes: Any, points: Iterable[tuple[float, float, str]], label: str = PUBLISHED) -> None:
    """Draw published numbers as stars in the colours of their methods, with one entry in the legend."""
    drawn = [axes.plot([x], [y], color=colour, **_STAR)[0] for x, y, colour in points]
    if not drawn:
        return
    handle = axes.plot([], [], color="#555555", **_STAR)[0]
    extend_legend(axes, handle, label)


def lines(rows: Rows, axes: Any, x: str, y: str) -> None:
    """Draw a table without accountants: y over x, one line for each ``case``, the legend by the right ends.

    The line style follows the claim, also where it changes along a line because a formula leaves the range of its
    proof. ``marked`` rows get a dot.
    """
    rows = [row for row in rows if finite(row.get(x)) is not None and finite(row.get(y)) is not None]
    if not rows:
        raise KeyError(f"rows with both {x} and {y}")
    entries: list[LegendEntry] = []
    cases = list(dict.fromkeys(row["case"] for row in rows))
    colours = {case: _palette.of(axes).colour(str(case)) for case in cases}
    tight = {row["case"] for row in rows if row.get("claim") in ("exact", "certified")}
    wide_case = tight.pop() if len(tight) == 1 else None
    for case in sorted(cases, key=lambda name: name != wide_case):
        line = sorted((row for row in rows if row["case"] == case), key=lambda row: float(row[x]))
        colour = colours[case]
        # the line that is right is wide and drawn first, so that one that agrees with it does not hide it
        width = 3.2 if case == wide_case else 1.6
        mark = "" if any(row.get("marked") for row in rows) else _palette.of(axes).style(str(case))[1]
        spacing = max(1, len(line) // 8)
        style: dict[str, Any] = {"color": colour, "linewidth": width, "marker": mark, "markersize": 4.5}
        style["markevery"] = (cases.index(case) * spacing // 4 % spacing, spacing)
        for claim in dict.fromkeys(row.get("claim") for row in line):
            part = [row for row in line if row.get("claim") == claim]
            start = line[max(0, line.index(part[0]) - 1)]  # the end of the part with the previous claim
            points = [start[x], *(row[x] for row in part)], [start[y], *(row[y] for row in part)]
            artist = axes.plot(*points, linestyle=_DASHES.get(claim or "", "solid"), **style)[0]
            label = _names.method(str(case))
            words = label if claim in (None, case) else f"{label} ({_names.claim(claim)})"
            entries.append((part[-1][y], artist, words))
        marked = [row for row in line if row.get("marked")]
        points = [row[x] for row in marked], [row[y] for row in marked]
        axes.plot(*points, color=colour, marker="o", markersize=4.5, linestyle="none")
    for axis, name in (("x", x), ("y", y)):
        values = [float(row[name]) for row in rows]
        if wide(values) and min(values) > 0 and (axis == "y" or geometric(values)):
            getattr(axes, f"set_{axis}scale")("log", base=2 if (axis, name) == ("x", "n") else 10)
    ticks(axes, sorted({float(row[x]) for row in rows}))
    _finish(axes, x, y, entries)


def _finish(axes: Any, x: str, y: str, entries: list[LegendEntry]) -> None:
    """Label both axes, add a grid and a legend with the largest right end first."""
    frame(axes, _names.axis(x), _names.axis(y))
    sorted_legend(axes, entries)


def frame(axes: Any, x: str, y: str, **options: Any) -> None:
    """Label both axes, and add a grid with these options of matplotlib."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    grid(axes, **options)


def grid(axes: Any, **options: Any) -> None:
    """Add the thin grid lines of all figures."""
    axes.grid(True, **{"alpha": 0.25, "linewidth": 0.6, **options})


def sorted_legend(axes: Any, entries: list[LegendEntry]) -> None:
    """Add a legend whose entries are in the order of the curves at the right edge, from the top."""
    entries = sorted(entries, key=lambda entry: -entry[0])
    legend(axes, [entry[1] for entry in entries], [entry[2] for entry in entries])


def legend(axes: Any, handles: Sequence[Any], labels: Sequence[str], title: str | None = None) -> None:
    """Add a legend, small beyond eight entries; without a title it is what three or more labels have in common."""
    if title is None:
        title, labels = _common(labels)
    size = "small" if len(labels) <= 8 else "x-small"
    style = {"fontsize": size, "title_fontsize": size, "framealpha": 0.85, "loc": "best", "alignment": "left"}
    axes.legend(handles, labels, title=title or None, **style)


def extend_legend(axes: Any, handle: Any, label: str) -> None:
    """Add an entry to the legend of axes, below the others."""
    old = axes.get_legend()
    if old is None:
        handles, labels = axes.get_legend_handles_labels()
        legend(axes, [*handles, handle], [*labels, label])
        return
    labels = [text.get_text() for text in old.get_texts()]
    legend(axes, [*old.legend_handles, handle], [*labels, label], old.get_title().get_text())


def _common(labels: Sequence[str]) -> tuple[str, list[str]]:
    """Split labels, such as ``a, b, c = 1 (claim)``, into the parts that all of them have, and what is left of each."""
    curves = [label for label in labels if not label.startswith((BAND, PUBLISHED))]
    split = {label: match.groups("") for label in curves if (match := _LABEL.fullmatch(label))}
    parts, claims = [words.split(", ") for words, _ in split.values()], {claim for _, claim in split.values()}
    shared = [part for part in parts[0] if all(part in each for each in parts)] if parts else []
    stated = claims.pop() if len(claims) == 1 else ""
    stated = stated if shared or ", " in stated else ""
    if len(parts) < 3 or any(set(each) == set(shared) for each in parts) or not (shared or stated):
        return "", list(labels)
    rest = {
        label: ", ".join(part for part in words.split(", ") if part not in shared)
        + (f" ({claim})" if claim and not stated else "")
        for label, (words, claim) in split.items()
    }
    return ", ".join([*shared, *filter(None, [stated])]), [rest.get(label, label) for label in labels]


def unit_note(axes: Any, rows: Rows) -> None:
    """State below the x axis that curves of several privacy notions share the axis but no unit."""
    notions = list(dict.fromkeys(row["notion"] for row in rows if row.get("notion")))
    if len(notions) > 1:
        words = ", ".join(_names.NOTIONS.get(name, name) for name in notions)
        note = "\n".join(textwrap.wrap(f"{words}: no common unit; compare within one notion only", NOTE))
        axes.set_xlabel(f"{axes.get_xlabel()}\n{note}", fontsize="small")


def _style(axes: Any, group: Series, index: int, count: int, claim: str) -> dict[str, Any]:
    """The style of a curve of ``count`` points; the marks of neighbouring curves do not coincide."""
    colour, mark = _palette.of(axes).style(group.key)
    if group.mark is not None:
        mark = _palette.of(axes).mark(group.mark)
    # the tight answer is wide and lies below the others, so that a bound that agrees with it does not hide it
    tight = group.key in ("pld", "gdp")
    spacing = max(1, count // 8)
    return {
        "color": colour,
        "linestyle": _DASHES.get(claim, "solid"),
        "linewidth": 3.2 if tight else 1.5,
        "zorder": 2.0 if tight else 2.5,
        # a line of one point is not seen
        "marker": mark or (MARKS[1] if count == 1 else ""),
        "markersize": 4.5,
        "markevery": (index * spacing // 4 % spacing, spacing),
    }


def _band(axes: Any, xs: list[float], rows: Rows, y: str, bottom: float, colour: str) -> bool:
    """Shade the certified bracket, unless its lower end is the trivial 0; tell whether it is wide enough to be seen."""
    if any(row.get("claim") != "certified" for row in rows) or not any(finite(row.get(f"{y}_lower")) for row in rows):
        return False
    lower = [max(finite(row.get(f"{y}_lower")) or 0.0, bottom) for row in rows]
    upper = [row[y] for row in rows]
    axes.fill_between(xs, lower, upper, color=colour, alpha=0.13, linewidth=0, zorder=1.0)
    seen = any(high > 1.02 * low for low, high in zip(lower, upper, strict=True))
    if seen:
        # the lower end has a line, since shades of several brackets overlap
        axes.plot(xs, [low if low > bottom else math.nan for low in lower], color=colour, linewidth=0.7, alpha=0.6)
    return seen


def _band_entries(shaded: Sequence[tuple[str, str]]) -> list[LegendEntry]:
    """The entries of brackets that are seen: one for each of up to two, or one for all of them."""
    from matplotlib.patches import Patch

    entries = [(f"{BAND} of {label}" if label else BAND, colour) for label, colour in shaded]
    if len(entries) > 2:
        entries = [(f"{BAND}s, by colour", "#555555")]
    return [(-math.inf, Patch(facecolor=colour, alpha=0.25, linewidth=0), label) for label, colour in entries]


def band(axes: Any, xs: Sequence[float], rows: Rows, column: str, colour: str) -> None:
    """Draw a band of one standard deviation around the means of repeated trainings; nothing for a single training."""
    if any(row.get(f"{column}_sd") is not None for row in rows):
        spreads = [float(row.get(f"{column}_sd") or 0.0) for row in rows]
        low, high = ([row[column] + sign * s for row, s in zip(rows, spreads, strict=True)] for sign in (-1, 1))
        axes.fill_between(xs, low, high, color=colour, alpha=0.18, linewidth=0)


def bars(axes: Any, xs: Sequence[float], ys: Sequence[float], spreads: Sequence[float], colour: str) -> None:
    """Draw bars of one standard deviation at means over repeated trainings; nothing where all deviations are 0."""
    if any(spreads):
        axes.errorbar(xs, ys, yerr=list(spreads), fmt="none", ecolor=colour, capsize=2, elinewidth=1)
