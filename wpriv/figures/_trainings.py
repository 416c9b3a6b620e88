"""Figures of trainings and of sweeps of trainings: what was measured, losses, noise, and audits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from wpriv.figures import _draw, _names, _palette
from wpriv.figures._declared import figure
from wpriv.figures._draw import Points, Rows

# not drawn: positions, and what is computed from training records without noise
NOT_DRAWN = {"epoch", "step", "epsilon", "seconds", "loss", "clipped", "clip_norm", "seeds", "run"}
MOST_MARKED = 40  # points of a line with marks
MEASURE_MARKS = "osDv^<>P"
_DASHED = "--"
ACCURACIES = {
    "accuracy": ("held out", "-"),
    "transductive": ("adapted to", _DASHED),
    "mlp": ("multilayer perceptron", "-"),
    "logistic": ("logistic regression", _DASHED),
}
DISTANCE_AXES = {
    "data.privatize.sigma": "noise σ on every number",
    "data.privatize.scale": "noise scale b on every number",
    "data.privatize.eps": "ε of every report",
    "data.first": "reports n",
    "epoch": "epoch",
}
DISTANCE_GROUPS = ("options.loss", "options.lam", "model.name", "seed")
SETTING = "noise"
"""The column of a sweep over named kinds of noise; where it holds a number it is the noise of the trainings."""
NOTION = "options.notion"
NOISE_DASHES = ("solid", "--")
ALPHA, EPS, FORMULA = "options.alpha", "privacy.eps", "options.sensitivity"
FAIR_DASHES = ("solid", "--", ":")
FAIR_MARKS = ("o", "s", "^")
FAIR_PREFIXES = {ALPHA: "α = ", EPS: "ε = ", FORMULA: ""}


def measured(rows: Rows) -> list[str]:
    """Return the columns of what was measured on test or generated records, at one epoch at least."""
    numbers = dict.fromkeys(key for row in rows for key, value in row.items() if isinstance(value, (int, float)))
    return [key for key in numbers if key not in NOT_DRAWN and "." not in key and not key.endswith("_sd")]


def require_course(rows: Rows) -> None:
    """Raise ValueError where rows are those of several trainings, so that an epoch has more than one."""
    if len({row["epoch"] for row in rows}) < len(rows):
        raise ValueError("it draws one training over its epochs, and here some epoch has several rows")


@figure("A training over its epochs: what was measured, without noise, and the eps spent.")
def training(rows: Rows, axes: Any) -> None:
    """Draw measures, and eps at the right, over epochs; KeyError for none, ValueError for several trainings."""
    require_course(rows)
    names = measured(rows)
    if not names:
        raise KeyError("accuracy")
    epochs = [row["epoch"] for row in rows]
    for index, name in enumerate(names):
        dashes = "-" if index < len(_draw.COLOURS) else "--"  # distinguishes lines that share a colour
        colour = _draw.COLOURS[index % len(_draw.COLOURS)]
        # a quantity may be missing at an epoch, or be measured at the last one alone
        present = [row for row in rows if row.get(name) is not None]
        mark = {"marker": "o", "markersize": 3.5} if len(present) <= MOST_MARKED else {}
        axes.plot(epochs, [row.get(name) for row in rows], dashes, color=colour, label=_names.measure(name), **mark)
        _draw.band(axes, [row["epoch"] for row in present], present, name, colour)
    _draw.frame(
        axes,
        f"epoch (means of {rows[0]['seeds']} runs ± one deviation)" if rows[0].get("seeds") else "epoch",
        _names.measure(names[0]) if len(names) == 1 else "measured without noise",
    )
    axes.xaxis.get_major_locator().set_params(integer=True)
    if len(rows) == 1:
        _write_values(rows[0], names, axes)
    if any(row.get("epsilon") is not None for row in rows):
        right = axes.twinx()
        style = {"color": _draw.COLOURS[-2], "linestyle": "--"}
        label = "ε of one run so far (right)" if rows[0].get("seeds") else "ε so far (right)"
        right.plot(epochs, [row.get("epsilon") for row in rows], label=label, **style)
        right.set_ylabel(_draw.NAMES["epsilon"])
        right.set_ylim(bottom=0)
        handles = [*axes.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
        _draw.legend(axes, handles, [handle.get_label() for handle in handles])
    elif len(names) > 1:
        axes.legend(fontsize="small")


def _write_values(row: dict[str, Any], names: list[str], axes: Any) -> None:
    """Write the numbers beside the points of a training of one epoch, which have no course."""
    axes.set_xticks([row["epoch"]])
    for name in names:
        place = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(f"{row[name]:.4g}", (row["epoch"], row[name]), fontsize="small", **place)


@training.published
def training_published(rows: Rows, points: Points, axes: Any) -> None:
    """Draw published measurements, each given as its row, its column and the number, at the epoch of the row."""
    names = measured(rows)
    drawn = [
        (row["epoch"], value, _draw.COLOURS[names.index(column) % len(_draw.COLOURS)])
        for row, column, value in points
        if column in names
    ]
    _draw.published(axes, drawn)


@figure("Several measured quantities, of any units, over the epochs: on one logarithmic axis, each with its own mark.")
def measures(rows: Rows, axes: Any) -> None:
    """Draw every measured number above 0 over the epochs; KeyError for none, ValueError for several trainings."""
    require_course(rows)
    names = measured(rows)
    if not names:
        raise KeyError("w2")
    axes.set_yscale("log")
    for index, name in enumerate(names):
        positive = [row for row in rows if isinstance(row.get(name), (int, float)) and row[name] > 0]
        style = {"color": _palette.of(axes).colour(name), "marker": MEASURE_MARKS[index % len(MEASURE_MARKS)]}
        points = [r["epoch"] for r in positive], [r[name] for r in positive]
        axes.plot(*points, markersize=3.5, label=_names.measure(name), **style)
    _draw.frame(axes, "epoch", "measured on generated and test records", which="both", alpha=0.2, linewidth=0.5)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(fontsize="small")


@figure(
    "Training losses over the steps, one line for each case. Computed from training records without noise: not public."
)
def losses(rows: Rows, axes: Any) -> None:
    """Draw ``loss`` over ``step``, a line a ``case`` (Rodriguez-Vitores et al. 2025, Figures 4, 6, 8, 10)."""
    cases = list(dict.fromkeys(row.get("case") for row in rows))
    for case in cases:
        case_rows = [row for row in rows if row.get("case") == case and row["loss"] is not None]
        points = [(row["step"], row["loss"]) for row in case_rows]
        style: dict[str, Any] = {"color": _palette.of(axes).colour(_names.key(str(case))), "linewidth": 1.2}
        style |= {"marker": "o"} if len(points) == 1 else {}  # a line through one point is invisible
        label = "" if case is None else _names.method(str(case))
        axes.plot([step for step, _ in points], [loss for _, loss in points], label=label, **style)
        _draw.band(axes, [step for step, _ in points], case_rows, "loss", style["color"])
    _draw.frame(axes, "step", "training loss, no noise added")
    if cases != [None]:
        axes.legend(fontsize="small", framealpha=0.85)


@figure("Accuracy of the trainings of a sweep over their eps: a line for each method and each measured accuracy.")
def accuracy_over_eps(rows: Rows, axes: Any) -> None:
    """Draw every accuracy over ``privacy.eps`` (or the certified eps); methods without privacy are level lines."""
    if not any(column in row for row in rows for column in ACCURACIES):
        raise KeyError("accuracy")
    palette = _palette.of(axes)
    for method in dict.fromkeys(str(row.get("method", "")) for row in rows):
        method_rows = [row for row in rows if str(row.get("method", "")) == method]
        colour, mark = palette.style(method)
        for column, (words, dashes) in ACCURACIES.items():
            measured = [
                (_eps(row), float(row[column]), float(row.get(f"{column}_sd") or 0.0))
                for row in method_rows
                if row.get(column) is not None
            ]
            points = sorted((eps, value, spread) for eps, value, spread in measured if eps is not None)
            style: dict[str, Any] = {"color": colour, "linestyle": dashes}
            label = ", ".join(part for part in (_names.method(method), words) if part)
            if points:
                x, y, spreads = zip(*points, strict=True)
                axes.plot(x, y, marker=mark, markersize=4, label=label, **style)
                _draw.bars(axes, x, y, spreads, style["color"])
            for level, spread in [(value, spread) for eps, value, spread in measured if eps is None][:1]:
                axes.axhline(level, linewidth=1, label=f"{label}, without privacy (ε = ∞)", **style)
                if spread:
                    axes.axhspan(level - spread, level + spread, color=style["color"], alpha=0.12, linewidth=0)
    _draw.frame(axes, _draw.NAMES["epsilon"], "share classified correctly")
    _draw.ticks(axes, sorted({eps for row in rows if (eps := _eps(row)) is not None}))
    axes.legend(fontsize="small")


@accuracy_over_eps.published
def accuracy_over_eps_published(rows: Rows, points: Points, axes: Any) -> None:
    """Draw published accuracies, each given as its row, its column and the number, at the eps of the row."""
    palette = _palette.of(axes)
    drawn = [
        (eps, value, palette.colour(str(row.get("method", ""))))
        for row, column, value in points
        if column in ACCURACIES and (eps := _eps(row)) is not None
    ]
    _draw.published(axes, drawn)


def _eps(row: dict[str, Any]) -> float | None:
    target = row.get("privacy.eps")
    return _draw.finite(row.get("epsilon") if target is None else target)


@figure("The W2 distance of a generator to test records over its epochs or a swept quantity, a line for each loss.")
def distance(rows: Rows, axes: Any) -> None:
    """Draw column ``w2``; over a number of reports both axes are logarithmic, over eps the x axis is."""
    varying = [key for key in DISTANCE_AXES if len({row.get(key) for row in rows} - {None}) > (key != "epoch")]
    if not varying or not any("w2" in row for row in rows):
        raise KeyError("w2" if varying else f"a swept column ({', '.join(DISTANCE_AXES)})")
    x = varying[0]
    is_named = all(isinstance(row.get(SETTING), str) for row in rows)
    names = (*DISTANCE_GROUPS, SETTING) if is_named else DISTANCE_GROUPS
    grouped_by = [key for key in names if len({row.get(key) for row in rows}) > 1]
    groups: dict[str, Rows] = {}
    for row in rows:
        groups.setdefault(", ".join(_distance_label(key, row[key]) for key in grouped_by), []).append(row)
    columns = len(groups) > 1 and len({row.get(x) for row in rows}) == 1
    xlabel = DISTANCE_AXES[x] if not columns else SETTING if grouped_by == [SETTING] else "loss"
    _draw.frame(axes, xlabel, f"{_names.measure('w2')} (units of the data)", axis="y" if columns else "both")
    if columns:
        keys = {label: _distance_key(group[0], grouped_by, label) for label, group in groups.items()}
        _draw_columns(groups, axes, keys)
        return
    for label, group in groups.items():
        points = sorted(
            (float(row[x]), float(row["w2"]), float(row.get("w2_sd") or 0.0))
            for row in group
            if row.get("w2") is not None
        )
        colour, mark = _palette.of(axes).style(_distance_key(group[0], grouped_by, label))
        places, values, spreads = zip(*points, strict=True)
        axes.plot(places, values, color=colour, marker=mark, markersize=4, label=label)
        _draw.bars(axes, places, values, spreads, colour)
    if x == "data.privatize.eps":
        axes.set_xscale("log")
    if x == "data.first":
        axes.set_xscale("log")
        axes.set_yscale("log")
        # the values span less than a decade: 7 is easier to read than 7 x 10^0
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
    _draw.ticks(axes, sorted({float(row[x]) for row in rows}))
    if grouped_by:
        axes.legend(fontsize="small")


def _draw_columns(groups: dict[str, Rows], axes: Any, keys: dict[str, str]) -> None:
    """Draw one column for each group, with its number, where nothing is swept over which there could be a line."""
    for place, (label, group) in enumerate(groups.items()):
        value, spread = float(group[-1]["w2"]), float(group[-1].get("w2_sd") or 0.0)
        colour = _palette.of(axes).colour(keys[label])
        axes.bar([place], [value], width=0.6, color=colour, label=label)
        _draw.bars(axes, [place], [value], [spread], "#000000")
        axes.annotate(f"{value:.3g}", (place, value + spread), xytext=(0, 3), textcoords="offset points", ha="center")
    axes.set_xticks(range(len(groups)), list(groups))
    axes.margins(x=0.05, y=0.15)


def _distance_key(row: dict[str, Any], grouped_by: list[str], label: str) -> str:
    """The name by which the palette gives a group its colour: its loss, which has one colour in all figures."""
    return str(row[grouped_by[0]]) if grouped_by == ["options.loss"] else label


def _distance_label(key: str, value: Any) -> str:
    if key == SETTING:
        return str(value).replace(", ", ",\n")
    name = key.rpartition(".")[2]
    return _names.loss(str(value)) if name in ("loss", "name") else _names.value(name, value)


@figure("The cost of a larger sensitivity constant over eps: the noise of a step and the final loss.")
def noise(rows: Rows, axes: Any) -> None:
    """Draw ``noise`` (left axis, filled marks) and the mean ``loss`` of the seeds (right axis, hollow marks).

    Each formula of the sensitivity has a colour.

    Raises:
        KeyError: a column is missing.
    """
    rows = [row for row in rows if row[FORMULA] is not None and row["noise"] is not None]
    ticks = sorted({row[EPS] for row in rows}, reverse=True)
    right = axes.twinx()
    for formula in dict.fromkeys(row[FORMULA] for row in rows):
        for number, notion in enumerate(dict.fromkeys(row.get(NOTION) for row in rows)):
            group = [row for row in rows if row[FORMULA] == formula and row.get(NOTION) == notion]
            if not group:
                continue
            style = {
                "color": _palette.of(axes).colour(formula),
                "linestyle": NOISE_DASHES[number % 2],
                "linewidth": 1.4,
                "markersize": 4.5,
            }
            suffix = ", ".join(_names.method(word) for word in (notion, formula) if word is not None)
            noise, loss = (_means(group, ticks, column) for column in ("noise", "loss"))
            axes.plot(range(len(ticks)), noise, marker="o", label=f"noise: {suffix}", **style)
            hollow = {"marker": "s", "markerfacecolor": "white"}
            right.plot(range(len(ticks)), loss, label=f"loss: {suffix}", **style, **hollow)
    axes.set_xticks(range(len(ticks)), [f"{tick:g}" for tick in ticks])
    axes.set_ylim(bottom=0)
    right.set_ylabel("training loss, no noise added")
    _draw.frame(axes, _draw.NAMES["epsilon"], "noise of a step, standard deviation")
    handles = [*axes.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    axes.legend(handles, [handle.get_label() for handle in handles], fontsize="x-small", framealpha=0.85)


def _means(rows: Rows, ticks: list[float], column: str) -> list[float]:
    """Return the mean of a column over the seeds at each eps; NaN where an unfinished sweep has none."""
    values = [_finite_values(rows, EPS, tick, column) for tick in ticks]
    return [sum(group) / len(group) for group in values]


@figure("An audit: the lower bound of eps of every test beside the certified bracket, and the gap between them.")
def audit(rows: Rows, axes: Any) -> None:
    """Draw ``epsilon_at_least`` of every test as a point, and the certified bracket as a band across.

    Args:
        rows: with statistic, guesses, correct, epsilon_at_least, certified_lower and certified_upper.
    """
    lower, upper = rows[0].get("certified_lower") or 0.0, rows[0]["certified_upper"]
    bounds = [row["epsilon_at_least"] for row in rows]
    best = max(range(len(rows)), key=bounds.__getitem__)
    axes.axhspan(lower, upper, color=_draw.COLOURS[0], alpha=0.35, linewidth=0)
    axes.axhline(upper, color=_draw.COLOURS[0], label="certified upper end")
    axes.plot(range(len(rows)), bounds, "o", color=_draw.COLOURS[1], label="audit, at least (all together 95%)")
    word = "VIOLATED by" if bounds[best] > upper else "gap"
    axes.annotate("", (best, upper), (best, bounds[best]), arrowprops={"arrowstyle": "<->", "color": "0.4"})
    place = {"xy": (best, (upper + bounds[best]) / 2), "xytext": (6, 0), "textcoords": "offset points"}
    axes.annotate(f"{word} {abs(upper - bounds[best]):.3g}", **place, va="center")
    axes.set_xticks(range(len(rows)), [f"{row['statistic']}\n{row['correct']}/{row['guesses']}" for row in rows])
    axes.tick_params(axis="x", labelsize="x-small")
    axes.set_xlim(-0.6, len(rows) - 0.1)
    axes.set_ylim(0, 1.25 * max(upper, *bounds))
    _draw.frame(axes, "statistic, and right guesses of all", _draw.NAMES["epsilon"])
    axes.legend(fontsize="small", loc="upper right", ncols=2)


def _draw_fairness(rows: Rows, axes: Any, measures: Mapping[str, str]) -> None:
    """Draw each measure (column -> label) over alpha, or over eps if alpha is constant.

    Each combination of eps and formula has a colour. The seeds of a sweep give one line, their mean, with a band from
    the minimum to the maximum; repeated runs (``seeds``) have a band of one standard deviation.
    """
    measured = {name for row in rows for name in measures if _draw.finite(row.get(name)) is not None}
    shown = {column: label for column, label in measures.items() if column in measured}
    if not shown or not any(key in rows[0] for key in (ALPHA, EPS)):
        raise KeyError(" or ".join([*measures] if not shown else [ALPHA, EPS]))
    x = ALPHA if len({row.get(ALPHA) for row in rows}) > 1 else EPS
    ticks: list[Any] = sorted({row[x] for row in rows}, key=float)
    places = ticks if x == ALPHA else range(len(ticks))
    others = [key for key in (ALPHA, EPS, FORMULA) if key != x and len({row.get(key) for row in rows}) > 1]
    cases = list(dict.fromkeys(tuple(row.get(key) for key in others) for row in rows))
    suffixes = []
    for case in cases:
        colour = _palette.of(axes).colour(", ".join(map(str, case)))
        case_rows = [row for row in rows if tuple(row.get(key) for key in others) == case]
        suffix = [f"{FAIR_PREFIXES[key]}{_tick(value)}" for key, value in zip(others, case, strict=True)]
        suffixes.append(", ".join(suffix))
        for number, (column, label) in enumerate(shown.items()):
            values = [_finite_values(case_rows, x, tick, column) for tick in ticks]
            means = [sum(group) / len(group) for group in values]
            style = {"color": colour, "linestyle": FAIR_DASHES[number % 3], "marker": FAIR_MARKS[number % 3]}
            axes.plot(places, means, linewidth=1.5, markersize=4, label=", ".join([label, *suffix]), **style)
            ends = [_ends(case_rows, x, tick, column, group) for tick, group in zip(ticks, values, strict=True)]
            axes.fill_between(places, *zip(*ends, strict=True), color=colour, alpha=0.12, linewidth=0)
    if x == EPS:
        axes.set_xticks(range(len(ticks)), [_tick(tick) for tick in ticks])
    else:
        _draw.ticks(axes, ticks)
    _draw.frame(axes, _draw.NAMES["alpha" if x == ALPHA else "epsilon"], "measured on test records")
    lines, names = axes.get_legend_handles_labels()
    if len(lines) > len(cases) + len(shown):
        entries = _draw.crossed(
            [(lines[place * len(shown)], suffix) for place, suffix in enumerate(suffixes)],
            zip(lines, shown.values(), strict=False),
        )
        lines, names = map(list, zip(*entries, strict=True))
    _draw.legend(axes, lines, names)


def _finite_values(rows: Rows, x: str, tick: Any, column: str) -> list[float]:
    """Return the finite values of a column at one tick, or a single NaN if there are none."""
    values = [value for row in rows if row.get(x) == tick and (value := _draw.finite(row.get(column))) is not None]
    return values or [math.nan]


def _ends(rows: Rows, x: str, tick: Any, column: str, values: list[float]) -> tuple[float, float]:
    """The ends of the band at one tick: mean and one deviation of repeated runs, else the least and largest value."""
    spreads = [float(row[f"{column}_sd"]) for row in rows if row.get(x) == tick and row.get(f"{column}_sd") is not None]
    if len(values) == 1 and spreads:
        return values[0] - spreads[0], values[0] + spreads[0]
    return min(values), max(values)


def _tick(value: Any) -> str:
    return "∞" if value == math.inf else f"{value:g}" if isinstance(value, (int, float)) else str(value)


@figure(
    "Accuracy beside the largest difference, over labels, between the groups' shares of decisions 1 (0 is equality of "
    "odds). Rodriguez-Vitores, Lalanne, Loubes (2025), Figure 7, which gives the ratios EO0 and EO1 of the same shares."
)
def odds(rows: Rows, axes: Any) -> None:
    """Draw both over alpha or eps."""
    _draw_fairness(rows, axes, {"accuracy": "accuracy", "odds_gap": "odds gap"})


@figure(
    "Accuracy beside disparate impact (1 is statistical parity) or, for a regression, each group's share of "
    "predictions above the diagonal (equal under parity). Rodriguez-Vitores, Lalanne, Loubes (2025), Figures 5 and 9, "
    "which give both above each panel."
)
def parity(rows: Rows, axes: Any) -> None:
    """Draw what there is of them over alpha or eps."""
    columns = ("accuracy", "disparate_impact", "od0", "od1")
    _draw_fairness(rows, axes, {column: _names.measure(column) for column in columns})
