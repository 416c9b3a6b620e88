"""Figures of certified bounds: budgets, tables, trade-off curves, and privacy loss distributions."""

from __future__ import annotations

import math
import textwrap
from itertools import pairwise
from typing import Any

import numpy as np

from wpriv.errors import UsageError
from wpriv.figures import _draw, _names, _palette
from wpriv.figures._declared import figure
from wpriv.figures._draw import Points, Row, Rows, implied, swept, wide
from wpriv.numerics.numbers import echo, text

LETTER, LINE = 0.55, 1.7  # width of a letter and height of a line, of the size of type
NAME_WIDTHS, MOST_COLUMNS = (48, 32, 24, 18), 8  # letters of a line of a name, the first that fits
SMALLEST = 6.5  # points of type
DIGITS = 4
GAP = 2.0  # letters between columns
LOGARITHMIC_BELOW = 5e-3  # smallest false-positive rate, below which both axes are so, and the true-positive rate drawn
CLASS_AXES = ("sensitivity", "sigma", "scale", "rate", "n")
CLASS_DASHES = {"mean": "solid", "variance": "--"}


@figure("A table of bounds without a sweep: one line for each case, one mark for each accountant.")
def budgets(rows: Rows, axes: Any) -> None:
    """Draw the answer of each accountant for each case, in the colour and the mark that it has in all figures."""
    y = _answer(rows)
    cases = list(dict.fromkeys(str(row.get("case") or "") for row in rows))
    accountants = list(dict.fromkeys(row["accountant"] for row in rows))
    _palette.of(axes).reserve(accountants)
    for index, accountant in enumerate(accountants):
        answers = [row for row in rows if row["accountant"] == accountant and row.get(y) is not None]
        if not answers:
            axes.plot([], [], linestyle="none", label=f"{_names.accountant(accountant)} (no answer)")
            continue
        offset = 0.7 * ((index + 0.5) / len(accountants) - 0.5)
        colour, mark = _palette.of(axes).style(accountant)
        style = {"color": colour, "marker": mark or "o", "markersize": 6, "linestyle": "none"}
        places = [cases.index(str(row.get("case") or "")) + offset for row in answers]
        label = _draw.labelled(_names.accountant(accountant), answers)
        axes.plot([row[y] or math.nan for row in answers], places, label=label, **style)
        _draw_zeros([place for row, place in zip(answers, places, strict=True) if not row[y]], style, axes)
    axes.set_yticks(range(len(cases)), cases)
    axes.set_ylim(len(cases) - 0.4, -0.6)
    if any(row[y] for row in rows if row.get(y) is not None):  # no logarithm of zeros alone
        axes.set_xscale("log")
    _draw.frame(axes, _draw.NAMES[y], "case" if len(cases) > 1 else "", axis="x")
    axes.legend(fontsize="x-small")
    _draw.unit_note(axes, rows)


def _draw_zeros(places: list[float], style: dict[str, Any], axes: Any) -> None:
    """Draw answers of 0, which a logarithmic axis has no place for, at its left edge, each with its number."""
    for place in places:
        axes.plot([0.015], [place], transform=axes.get_yaxis_transform(), clip_on=False, **style)
        offset = {"xytext": (6, 0), "textcoords": "offset points", "va": "center", "fontsize": "x-small"}
        axes.annotate("0", (0.015, place), xycoords=axes.get_yaxis_transform(), **offset)


@figure("Strategies of correlated noise: a colour for each, marks and dashes for how batches are drawn.")
def correlated_noise(rows: Rows, axes: Any) -> None:
    """Draw the error relative to DP-SGD over what is swept; or eps with its bracket, where the noise is the same."""
    swept_names = [name for name in ("bins", "epochs", "eps", "sigma") if len({row.get(name) for row in rows}) > 1]
    by_noise = len({row["sigma"] for row in rows}) == 1 or swept_names == ["sigma"]
    x, y = next(iter(swept_names), "steps"), "eps_upper" if by_noise else "to_dp_sgd"
    palette = _palette.of(axes)
    coloured: dict[str, tuple[Any, str]] = {}
    marked: dict[str, tuple[Any, str]] = {}
    for strategy, sampling in dict.fromkeys((row["strategy"], row["sampling"]) for row in rows):
        line = [row for row in rows if (row["strategy"], row["sampling"]) == (strategy, sampling)]
        line = sorted(line, key=lambda row: float(row[x]))
        dashes = {"none": ":", "poisson": "--"}.get(sampling, "-")
        mark = {"none": "s", "poisson": "o"}.get(sampling, "^")
        xs, colour = [row[x] for row in line], palette.colour(strategy)
        style = {"color": colour, "linestyle": dashes, "marker": mark, "markersize": 4.5, "linewidth": 1.6}
        (artist,) = axes.plot(xs, [row[y] for row in line], **style)
        if by_noise:
            ends = [[row[end] for row in line] for end in ("eps_lower", "eps_upper")]
            axes.fill_between(xs, *ends, color=colour, alpha=0.2, linewidth=0)
        coloured.setdefault(strategy, (artist, _names.method(strategy)))
        marked.setdefault(sampling, (artist, line[0]["case"].rpartition(", ")[2]))
    for axis, name in (("x", x), ("y", y)):
        if wide([row[name] for row in rows]):
            getattr(axes, f"set_{axis}scale")("log")
    _draw.ticks(axes, sorted({float(row[x]) for row in rows}))
    _draw.frame(axes, _names.axis(x), _names.axis(y))
    entries = _draw.crossed(coloured.values(), marked.values() if len(marked) > 1 else ())
    _draw.legend(axes, [handle for handle, _ in entries], [label for _, label in entries])


@figure("A table of bounds as a table: a line for each accountant, a column for each case or swept value.")
def table(rows: Rows, axes: Any) -> None:
    """Draw the answers of a table of bounds, rounded to the safe side, to four digits.

    Raises:
        ValueError: there are more than eight cases or values, or two rows have the same accountant, case and values.
    """
    _draw_table(rows, {}, axes)


@table.published
def table_published(rows: Rows, points: Points, axes: Any) -> None:
    """Draw the table again with published numbers in brackets, each given as its row, its column and the number."""
    axes.clear()
    y = _answer(rows)
    _draw_table(rows, {id(row): value for row, column, value in points if column == y}, axes)


def _answer(rows: Rows) -> str:
    return "delta" if rows[0].get("given") == "epsilon" else "epsilon"


def _draw_table(rows: Rows, published: dict[int, float], axes: Any) -> None:
    y = _answer(rows)
    names = _heading_columns(rows)
    columns = list(dict.fromkeys(tuple(row.get(name) for name in names) for row in rows))
    if len(columns) > MOST_COLUMNS:
        raise ValueError(f"table has up to {MOST_COLUMNS} columns; the table has {len(columns)} cases or values")
    accountants = list(dict.fromkeys(row["accountant"] for row in rows))
    cells = {(row["accountant"], tuple(row.get(name) for name in names)): row for row in rows}
    heads = [_head(names, column) for column in columns]
    found = {name: [cells[name, column] for column in columns if (name, column) in cells] for name in accountants}
    lines = [(_draw.labelled(_names.accountant(name), found[name]), name) for name in accountants]
    body = [[_cell(cells.get((name, column)), y, published) for column in columns] for _, name in lines]
    heading = f"{_names.axis(y)}, rounded up" + ("; in brackets: published" if published else "")
    _set_cells(axes, heading, heads, [name for name, _ in lines], body)


def _heading_columns(rows: Rows) -> list[str]:
    """The fewest columns of the rows that tell the columns of the table apart: cases, swept values, eps or delta."""
    varied = swept(rows)
    # a case stands for what is constant within it
    inner = [name for name in varied if name not in implied(rows, varied)]
    given = "epsilon" if _answer(rows) == "delta" else "delta"
    for candidates in (("case",), ("case", *inner), ("case", *inner, given)):
        names = [name for name in candidates if len({row.get(name) for row in rows}) > 1]
        if len({tuple(row.get(name) for name in ("accountant", *names)) for row in rows}) == len(rows):
            return names
    raise ValueError("two rows of the table have the same accountant, case and values, and would have one cell")


def _head(names: list[str], values: tuple[Any, ...]) -> str:
    return ", ".join(
        _names.method(str(value)) if name == "case" else _names.value(name, value)
        for name, value in zip(names, values, strict=True)
    )


def _cell(row: Row | None, y: str, published: dict[int, float]) -> str:
    if row is None or row.get(y) is None:
        return "–"
    value = text(float(row[y]), up=True, digits=DIGITS)
    return f"{value} [{published[id(row)]:g}]" if id(row) in published else value


def _set_cells(axes: Any, heading: str, heads: list[str], names: list[str], body: list[list[str]]) -> None:
    """Set cells between rules, in type as large as the width of the axes allows; a single panel becomes as high."""
    from matplotlib import rcParams

    figure = axes.figure
    axes.set_axis_off()
    tops = [head.split(", ") for head in heads]
    numbers = [max(*map(len, top), *(len(line[place]) for line in body)) + GAP for place, top in enumerate(tops)]
    span = figure.get_size_inches()[0] * 72 * 0.92 / axes.get_gridspec().ncols
    for letters in NAME_WIDTHS:
        wrapped = [textwrap.wrap(name, letters) for name in names]
        widths = [max(len(line) for lines in wrapped for line in lines) + GAP, *numbers]
        size = min(rcParams["font.size"], span / (LETTER * sum(widths)))
        if size >= SMALLEST:
            break
    height = sum(max(len(lines), 1) for lines in wrapped) + max(map(len, tops), default=0) + 2.5
    points = height * size * LINE
    if len(figure.axes) == 1:
        figure.set_size_inches(figure.get_size_inches()[0], points / 72 + 0.45)
    else:
        points = max(points, (figure.get_size_inches()[1] / axes.get_gridspec().nrows - 0.5) * 72)
    step = size * LINE / points
    total = max(sum(widths), span / (LETTER * size))
    ends = [sum(widths[: place + 1]) / total for place in range(len(widths))]
    style = {"transform": axes.transAxes, "fontsize": size, "va": "center"}
    rule = {"transform": axes.transAxes, "color": "#000000", "clip_on": False}
    at = 1 - step / 2
    axes.text(0, at, heading, style="italic", **style)
    at -= 0.7 * step
    axes.plot([0, ends[-1]], [at, at], linewidth=1.2, **rule)
    first = at - 0.6 * step
    for end, top in zip(ends[1:], tops, strict=True):
        for number, word in enumerate(top):
            axes.text(end, first - number * step, word, ha="right", **style)
    at = first - (max(map(len, tops), default=1) - 1) * step - 0.6 * step
    axes.plot([0, ends[-1]], [at, at], linewidth=0.6, **rule)
    at -= 0.7 * step
    for lines, line in zip(wrapped, body, strict=True):
        for end, word in zip(ends[1:], line, strict=True):
            axes.text(end, at, word, ha="right", **style)
        for part in lines:
            axes.text(0, at, part, ha="left", **style)
            at -= step
    at += 0.3 * step
    axes.plot([0, ends[-1]], [at, at], linewidth=1.2, **rule)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)


@figure(
    "The trade-off curve of membership attacks: certified band, the best Gaussian bound, and a test that only guesses."
)
def trade_off(rows: Rows, axes: Any) -> None:
    """Draw a trade-off table: for each case the band of the best attack and the curve of mu-GDP at the upper end of mu.

    Rates from 0.005 on are drawn as false-negative over false-positive rate; with smaller ones the figure has
    logarithmic axes and shows the true-positive rate, 1 - FNR, which is what differs there.

    Raises:
        UsageError: the rows have fewer than two false-positive rates.
    Source:
        Dong, Roth, Su (2019), Figure 1; logarithmic axes as in Carlini et al. (2022).
    """
    rates = [row["fpr"] for row in rows]
    if len(set(rates)) < 2:
        raise UsageError("trade-off draws a curve; give the sweep over fpr at least two values")
    log = min(rates) < LOGARITHMIC_BELOW
    name = "tpr" if log else "fnr"
    handles, labels, gaussian = [], [], None
    for case in dict.fromkeys(row.get("case") for row in rows):
        line = sorted((row for row in rows if row.get("case") == case), key=lambda row: float(row["fpr"]))
        colour, mark = _palette.of(axes).style(str(case or "pld"))
        x = [row["fpr"] for row in line]
        ends = [[row[f"{name}_{end}"] for row in line] for end in ("lower", "upper")]
        axes.fill_between(x, *ends, color=colour, alpha=0.35, linewidth=0)
        every = {"marker": mark, "markersize": 4.5, "markevery": max(1, len(x) // 8)}
        handles += axes.plot(x, ends[1] if log else ends[0], color=colour, linewidth=2.2, **every)
        labels.append(f"{case}: best attack (certified band)" if case else "best attack (certified band)")
        if line[0].get("mu_upper") is not None:
            mu = float(line[0]["mu_upper"])
            gaussian = _gaussian(axes, x, mu, log)
            labels[-1] += f";\nμ = {text(mu, up=True, digits=4)} from false-positive rate {echo(min(x))}"
    if gaussian is not None:
        handles.append(gaussian)
        labels.append("Gaussian DP with this μ")
    grid = np.geomspace(min(rates), 1, 200) if log else np.linspace(0, 1, 200)
    (guess,) = axes.plot(grid, grid if log else 1 - grid, color="#000000", linewidth=1.0, linestyle=":")
    if log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    _draw.frame(axes, "false-positive rate", "true-positive rate" if log else "false-negative rate")
    _draw.legend(axes, [*handles, guess], [*labels, "guessing (nothing leaks)"])


def _gaussian(axes: Any, x: list[float], mu: float, log: bool) -> Any:
    """The error rates of the best test between two normal distributions at distance mu."""
    from scipy.special import ndtr, ndtri

    grid = np.geomspace(min(x), max(x), 400)
    tpr = ndtr(ndtri(grid) + mu)
    (curve,) = axes.plot(grid, tpr if log else 1 - tpr, color="#000000", linewidth=1.0, linestyle="--", zorder=3)
    return curve


@figure("The privacy loss distribution after n compositions, beside the normal distribution of its privacy loss class.")
def loss_law(rows: Rows, axes: Any) -> None:
    """Draw a loss table (Sommer et al. 2019, Figures 1, 3): densities, atoms, distinguishing events at the edge."""
    finite = [row for row in rows if row["part"] == "finite"]
    losses = [row["loss"] for row in finite]
    if not finite or any(b <= a for a, b in pairwise(losses)):
        raise UsageError("loss-law draws one distribution, with increasing losses; give every n a panel of its own")
    infinity = next((row["mass"] for row in rows if row["part"] == "infinity"), 0.0)
    density = any(row["width"] for row in finite)
    if density:
        _draw_densities(finite, axes)
    else:
        axes.vlines(losses, 0, [row["mass"] for row in finite], color="#0072B2", linewidth=6)
        axes.set_ylim(0, 1.1)
        for row in finite:
            _annotate_mass(axes, row["loss"], row["mass"], row["mass"])
    if infinity:
        _draw_infinity(losses, infinity, axes)
    _draw.frame(axes, "privacy loss (nats)", "density (1/nat)" if density else "probability")


def _annotate_mass(axes: Any, loss: float, mass: float, height: float) -> None:
    axes.annotate(f"{mass:.4g}", (loss, height), xytext=(0, 3), textcoords="offset points", ha="center")


def _draw_densities(finite: Rows, axes: Any) -> None:
    edges = [row["loss"] - row["width"] / 2 for row in finite] + [finite[-1]["loss"] + finite[-1]["width"] / 2]
    densities, normal_densities = ([row[key] for row in finite] for key in ("density", "class_density"))
    stairs = axes.stairs(densities, edges, fill=True, color="#56B4E9", label="privacy loss distribution")
    style = {"color": "#D55E00", "linewidth": 1.6, "linestyle": "--"}
    (normal,) = axes.plot([row["loss"] for row in finite], normal_densities, **style)
    # an atom is a cell far above the others: the axis covers the others, and the mass of the atom is written beside it
    usual = sorted(densities)[int(0.95 * (len(densities) - 1))]
    top = 1.35 * max(usual, *normal_densities)
    for index, row in enumerate(row for row in finite if row["density"] > top):
        near_right_edge = row["loss"] > edges[0] + 0.9 * (edges[-1] - edges[0])
        place = (row["loss"], (0.98 - 0.08 * (index % 4)) * top)
        side = "right" if near_right_edge else "left"
        axes.annotate(f" {row['mass']:.2g} ", place, ha=side, va="top", fontsize="small")
    axes.set_ylim(0, top)
    _draw.legend(axes, [stairs, normal], ["privacy loss distribution", "normal distribution of its class"])


def _draw_infinity(losses: list[float], mass: float, axes: Any) -> None:
    """Draw the mass at infinity as a separate bar, right of every finite loss."""
    span = max(losses) - min(losses) or 1.0
    place = max(losses) + 0.5 * span
    bar = axes.vlines([place], 0, [mass], color="#D55E00", linewidth=6)
    # beside densities, which have another unit, the bar may be higher than the axes; its number stays within them
    _annotate_mass(axes, place, mass, min(mass, 0.9 * axes.get_ylim()[1]))
    axes.set_xlim(min(losses) - 0.5 * span, place + 0.5 * span)
    if span == 1.0 and len(losses) == 1:
        axes.set_xticks([losses[0], place], [f"{losses[0]:g}", "∞"])
    _draw.extend_legend(axes, bar, "distinguishing events (loss ∞)")


@figure("Mean and variance of privacy loss classes over a swept quantity.")
def loss_class(rows: Rows, axes: Any) -> None:
    """Draw mean (solid) and variance (dashed) by case (Sommer et al. 2019, Section 6.2.1, corrected)."""
    x = next((name for name in CLASS_AXES if len({row.get(name) for row in rows}) > 1), None)
    if x is None:
        raise KeyError(f"a swept column ({', '.join(CLASS_AXES[:-1])} or {CLASS_AXES[-1]})")
    entries = []
    for y, dashes in CLASS_DASHES.items():
        for group in _draw.series([row for row in rows if row.get(y) is not None], x, y):
            points = [row[x] for row in group.rows], [row[y] for row in group.rows]
            colour, mark = _palette.of(axes).style(group.key)
            every = {"marker": mark, "markersize": 4.5, "markevery": max(1, len(group.rows) // 8)}
            line = axes.plot(*points, color=colour, linestyle=dashes, linewidth=1.6, **every)[0]
            entries.append((group.rows[-1][y], line, f"{y}, {group.label}" if group.label else y))
    _draw.frame(axes, _draw.NAMES[x], "privacy loss: mean (nats), variance (nats²)")
    _draw.sorted_legend(axes, entries)
