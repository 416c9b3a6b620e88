"""Accuracy of the trainings of a sweep over their eps: a line for each method and each measured accuracy."""

from __future__ import annotations

from typing import Any

from wpriv.figures import _draw, _names, _palette

DASHED = (0, (4, 2))
ACCURACIES = {
    "accuracy": ("held out", "-"),
    "transductive": ("adapted to", DASHED),
    "mlp": ("MLP", "-"),
    "logistic": ("LogReg", DASHED),
}


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw every accuracy over ``privacy.eps`` (or the certified eps); methods without privacy are level lines.

    Raises:
        KeyError: the table has no column of accuracies.
    """
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
    axes.set_xlabel(_draw.NAMES["epsilon"])
    axes.set_ylabel("share classified correctly")
    _draw.grid(axes)
    axes.legend(fontsize="small")


def draw_published(rows: list[dict[str, Any]], points: list[tuple[dict[str, Any], str, float]], axes: Any) -> None:
    """Draw published accuracies, each given as its row, its column and the number, at the eps of the row."""
    palette = _palette.of(axes)
    drawn = [
        (eps, value, palette.colour(str(row.get("method", ""))))
        for row, column, value in points
        if column in ACCURACIES and (eps := _eps(row)) is not None
    ]
    _draw.published(axes, drawn)


def _eps(row: dict[str, Any]) -> float | None:
    """Return the target eps, or else the certified one; None if it is not finite."""
    target = row.get("privacy.eps")
    return _draw.finite(row.get("epsilon") if target is None else target)
