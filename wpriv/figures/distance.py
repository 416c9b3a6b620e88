"""The distance of a generator to test records: over its epochs, or over what a sweep varies, a line for each loss."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw

X = {
    "data.privatize.sigma": "noise σ on every number",
    "data.privatize.scale": "noise scale b on every number",
    "data.privatize.eps": "ε of every report",
    "data.first": "reports n",
    "epoch": "epoch",
}
GROUPS = ("options.loss", "options.lam", "model.name", "seed")


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draws column ``w2``; over a number of reports both axes are logarithmic, over eps that of eps.

    Raises:
        KeyError: nothing of X is swept, or no distance was measured.
    """
    swept = [key for key in X if len({row.get(key) for row in rows} - {None}) > (key != "epoch")]
    if not swept or not any("w2" in row for row in rows):
        raise KeyError("w2" if swept else f"a swept column ({', '.join(X)})")
    x = swept[0]
    told = [key for key in GROUPS if len({row.get(key) for row in rows}) > 1]
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        lines.setdefault(", ".join(str(row[key]) for key in told), []).append(row)
    for place, (name, own) in enumerate(lines.items()):
        points = sorted((float(row[x]), float(row["w2"])) for row in own if row.get("w2") is not None)
        axes.plot(
            *zip(*points, strict=True),
            color=_draw.COLOURS[place % len(_draw.COLOURS)],
            marker="o",
            markersize=4,
            label=name,
        )
    axes.set_xlabel(X[x])
    axes.set_ylabel("W₂ to test records")
    axes.grid(True, alpha=0.25, linewidth=0.6)
    if x == "data.privatize.eps":
        asked = sorted({float(row[x]) for row in rows})
        axes.set_xscale("log")
        axes.set_xticks(asked, [f"{eps:g}" for eps in asked])
        axes.minorticks_off()
    if x == "data.first":
        axes.set_xscale("log")
        axes.set_yscale("log")
        # less than a decade: 7 is easier to read than 7 x 10^0
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
    if told:
        axes.legend(fontsize="small")
