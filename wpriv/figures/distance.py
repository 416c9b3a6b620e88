"""The W2 distance of a generator to test records over its epochs or a swept quantity, a line for each loss."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw, _names, _palette

X = {
    "data.privatize.sigma": "noise σ on every number",
    "data.privatize.scale": "noise scale b on every number",
    "data.privatize.eps": "ε of every report",
    "data.first": "reports n",
    "epoch": "epoch",
}
GROUPS = ("options.loss", "options.lam", "model.name", "seed")
SETTING = "noise"
"""The column of a sweep over named kinds of noise; where it holds a number it is the noise of the trainings."""


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw column ``w2``; over a number of reports both axes are logarithmic, over eps the x axis is.

    Raises:
        KeyError: no column of X varies, or no distance was measured.
    """
    varying = [key for key in X if len({row.get(key) for row in rows} - {None}) > (key != "epoch")]
    if not varying or not any("w2" in row for row in rows):
        raise KeyError("w2" if varying else f"a swept column ({', '.join(X)})")
    x = varying[0]
    is_named = all(isinstance(row.get(SETTING), str) for row in rows)
    names = (*GROUPS, SETTING) if is_named else GROUPS
    grouped_by = [key for key in names if len({row.get(key) for row in rows}) > 1]
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(", ".join(_label(key, row[key]) for key in grouped_by), []).append(row)
    axes.set_ylabel(f"{_names.measure('w2')} (units of the data)")
    if len(groups) > 1 and len({row.get(x) for row in rows}) == 1:
        _draw_columns(groups, axes, {label: _key(group[0], grouped_by, label) for label, group in groups.items()})
        axes.set_xlabel(SETTING if grouped_by == [SETTING] else "loss")
        return
    for label, group in groups.items():
        points = sorted(
            (float(row[x]), float(row["w2"]), float(row.get("w2_sd") or 0.0))
            for row in group
            if row.get("w2") is not None
        )
        colour, mark = _palette.of(axes).style(_key(group[0], grouped_by, label))
        places, values, spreads = zip(*points, strict=True)
        axes.plot(places, values, color=colour, marker=mark, markersize=4, label=label)
        _draw.bars(axes, places, values, spreads, colour)
    axes.set_xlabel(X[x])
    _draw.grid(axes)
    if x == "data.privatize.eps":
        ticks = sorted({float(row[x]) for row in rows})
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{eps:g}" for eps in ticks])
        axes.minorticks_off()
    if x == "data.first":
        axes.set_xscale("log")
        axes.set_yscale("log")
        # the values span less than a decade: 7 is easier to read than 7 x 10^0
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
    if grouped_by:
        axes.legend(fontsize="small")


def _draw_columns(groups: dict[str, list[dict[str, Any]]], axes: Any, keys: dict[str, str]) -> None:
    """Draw one column for each group, with its number, where nothing is swept over which there could be a line."""
    for place, (label, group) in enumerate(groups.items()):
        value, spread = float(group[-1]["w2"]), float(group[-1].get("w2_sd") or 0.0)
        colour = _palette.of(axes).colour(keys[label])
        axes.bar([place], [value], width=0.6, color=colour, label=label)
        _draw.bars(axes, [place], [value], [spread], "#000000")
        axes.annotate(f"{value:.3g}", (place, value + spread), xytext=(0, 3), textcoords="offset points", ha="center")
    axes.set_xticks(range(len(groups)), list(groups))
    axes.margins(y=0.15)
    _draw.grid(axes, axis="y")


def _key(row: dict[str, Any], grouped_by: list[str], label: str) -> str:
    """The name by which the palette gives a group its colour: its loss, which has one colour in all figures."""
    return str(row[grouped_by[0]]) if grouped_by == ["options.loss"] else label


def _label(key: str, value: Any) -> str:
    if key == SETTING:
        return str(value).replace(", ", ",\n").replace("eps", "ε")
    name = key.rpartition(".")[2]
    return _names.loss(str(value)) if name in ("loss", "name") else _names.value(name, value)
