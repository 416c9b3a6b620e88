"""Ticks at the values that were asked for, whole numbers on axes of them, and one style for each accountant."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from wpriv.core import registry
from wpriv.figures import _draw, _palette


def drawn(name, values):
    axes = Figure().subplots()
    rows = [
        {"accountant": "pld", name: x, "given": "delta", "delta": 1e-5, "epsilon": 1.0 + x, "mech": "gauss"}
        for x in values
    ]
    _draw.curves(rows, axes, name, "epsilon")
    axes.figure.canvas.draw()
    low, high = axes.get_xlim()
    return [tick for tick in axes.get_xticks() if low <= tick <= high], axes


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("n", [10, 100, 1000, 10000]),
        ("group", [1, 2]),
        ("group", [1, 2, 3, 4]),
        ("sigma", [0.5, 1.25, 2.0]),
        ("n", [7]),
    ],
)
def test_few_values_have_ticks_of_their_own(name, values):
    ticks, axes = drawn(name, values)
    assert ticks == pytest.approx(values)
    assert [label.get_text() for label in axes.get_xticklabels()] == [f"{value:g}" for value in values]


def test_an_axis_of_whole_numbers_has_no_others():
    ticks, _ = drawn("group", range(1, 12))
    assert ticks == [round(tick) for tick in ticks]


def test_every_accountant_has_a_colour_and_a_mark_of_its_own():
    palette = _palette.Palette()
    styles = [palette.style(name) for name in registry.names("accountants")]
    assert len({colour for colour, _ in styles}) == len(styles)
    assert len(set(styles)) == len(styles) >= 20
