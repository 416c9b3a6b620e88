"""The figure ``distance``: distances of generators over epochs and over a swept quantity."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from wpriv.figures._trainings import distance, training


def drawn(module, rows):
    axes = Figure().subplots()
    module.draw(rows, axes)
    axes.figure.canvas.draw()
    return axes


def test_distance_has_a_line_for_each_loss_over_the_noise():
    rows = [
        {"options.loss": loss, "data.privatize.sigma": s, "epoch": 3, "w2": s + len(loss)}
        for loss in ("plain", "entropic")
        for s in (2, 1)
    ]
    axes = drawn(distance, rows)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["plain W₂", "entropic W₂"]
    assert [list(line.get_xdata()) for line in axes.get_lines()] == [[1, 2], [1, 2]]
    assert "σ" in axes.get_xlabel()


def test_distance_over_reports_has_logarithmic_axes_and_epochs_are_the_default():
    axes = drawn(distance, [{"data.first": n, "epoch": 1, "w2": 1 / n} for n in (10, 100)])
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert drawn(distance, [{"epoch": 1, "w2": 2.0}, {"epoch": 2, "w2": 1.0}]).get_xlabel() == "epoch"


def test_distance_refuses_a_table_without_distances():
    with pytest.raises(KeyError, match="w2"):
        drawn(distance, [{"epoch": 1, "variance": 1.0}])


def test_training_draws_more_measures_than_there_are_colours():
    axes = drawn(training, [{"epoch": k, **{f"m{i}": i for i in range(12)}} for k in (1, 2)])
    assert len(axes.get_lines()) == 12


def test_distance_over_named_kinds_of_noise_has_a_column_for_each():
    # the column noise holds a number where trainings have noise of their own: no names, and so no groups
    rows = [{"noise": f"Gauss, eps {eps}", "epoch": 12, "w2": 1.0 * eps} for eps in (3, 4)]
    axes = drawn(distance, rows)
    assert [bar.get_height() for bar in axes.patches] == [3, 4]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["Gauss,\neps 3", "Gauss,\neps 4"]
    numbers = [{"noise": 0.1 * epoch, "epoch": epoch, "w2": 1.0} for epoch in (1, 2)]
    assert len(drawn(distance, numbers).lines) == 1
