"""Panels of points in the plane: the same limits in each, and room for each title."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from wpriv.figures._records import points, samples
from wpriv.results import figure_layout


@pytest.mark.parametrize("kind", ["screen", "paper"])
def test_panels_of_points_have_the_same_limits_and_no_title_leaves_the_figure(kind):
    style = figure_layout.of(kind)
    figure = Figure(figsize=style.size(2, 1), layout="constrained")
    panels = list(figure.subplots(1, 2))
    for axes, size in zip(panels, (0.1, 3.0), strict=True):
        rows = [{"kind": word, "x": x * size, "y": -x * size} for word in ("target", "moved") for x in (-1.0, 1.0)]
        points.draw(rows, axes)
    title = "published constant of the sensitivity, eps = 0.5, step 1500"
    figure_layout.finish(figure, [(axes, title, True) for axes in panels], 2, style)
    figure.draw_without_rendering()
    assert panels[0].get_xlim() == panels[1].get_xlim()
    assert panels[0].get_ylim() == panels[1].get_ylim()
    assert panels[0].get_xlim()[1] >= 3
    for axes in panels:
        # matplotlib keeps the left title apart from the one in the middle
        text = next(each for each in axes.get_children() if getattr(each, "get_text", str)().startswith("("))
        assert text.get_window_extent().x1 <= figure.bbox.x1


@pytest.mark.parametrize(("columns", "lines"), [(1, 1), (3, 2)])
def test_pictures_fill_the_width_of_their_figure(columns, lines):
    style = figure_layout.of("screen")
    figure = Figure(figsize=style.size(columns, lines), layout="constrained")
    panels = list(np.atleast_1d(figure.subplots(lines, columns)).ravel())
    for axes in panels:
        samples.draw({"samples": np.zeros((100, 1, 28, 28))}, axes)
    figure_layout.finish(figure, [(axes, "DP-SWD, eps = 10", True) for axes in panels], columns, style)
    figure.draw_without_rendering()
    pictures = sum(axes.images[0].get_window_extent().width for axes in panels) / lines
    assert 0.85 * figure.bbox.width <= pictures <= figure.bbox.width
