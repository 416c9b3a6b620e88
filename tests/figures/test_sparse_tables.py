"""Figures of tables with several values in a case, mixed claims, zeros, or rows that are not there yet."""

from __future__ import annotations

import math

import pytest
from matplotlib.figure import Figure

from wpriv.core import registry
from wpriv.results import figure_layout, plot
from wpriv.results.plot import View


def drawn(name, rows):
    axes = Figure().subplots()
    registry.load("figures", name).draw(rows, axes)
    return axes


def bound(epsilon, claim="exact", **more):
    return {
        "accountant": "pld",
        "given": "delta",
        "notion": "approximate-dp",
        "epsilon": epsilon,
        "claim": claim,
        **more,
    }


def entries(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.mark.parametrize("swept", ["n", "delta"])
def test_a_table_has_a_column_for_each_value_within_a_case(swept):
    rows = [
        bound(10 * number + value, case=case, sigma=sigma, **{swept: value})
        for number, (case, sigma) in enumerate((("a", 1), ("b", 2)))
        for value in (1, 2)
    ]
    texts = [text.get_text() for text in drawn("table", rows).texts]
    symbol = {"n": "n", "delta": "δ"}[swept]
    assert texts[1:9] == ["a", f"{symbol} = 1", "a", f"{symbol} = 2", "b", f"{symbol} = 1", "b", f"{symbol} = 2"]
    assert {"1", "2", "11", "12"} <= set(texts)


def test_a_table_with_two_rows_of_one_cell_is_refused():
    with pytest.raises(ValueError, match="one cell"):
        drawn("table", [bound(1.0, case="a", sampling=word) for word in ("poisson", "fixed")])


@pytest.mark.parametrize("figure", ["table", "budgets"])
def test_a_line_is_labelled_by_its_weakest_claim(figure):
    rows = [bound(1.0, case="a"), bound(2.0, "upper-bound", case="b"), bound(None, None, case="c")]
    axes = drawn(figure, rows)
    labels = entries(axes) if figure == "budgets" else [text.get_text() for text in axes.texts]
    assert "privacy loss distribution (upper bound)" in labels
    assert not any("exact" in label for label in labels)


def test_an_answer_of_zero_is_drawn_at_the_edge_of_a_logarithmic_axis():
    axes = drawn("budgets", [bound(0.5, case="a"), bound(0.0, case="b")])
    assert axes.get_xscale() == "log"
    places = [
        axes.transData.inverted().transform(line.get_transform().transform(line.get_xydata())) for line in axes.lines
    ]
    assert len(places[0]) == 2
    assert math.isclose(places[1][0][1], 1, abs_tol=1e-9)  # the line of case b
    assert places[1][0][0] < places[0][0][0]
    assert [text.get_text() for text in axes.texts] == ["0"]


def test_the_noise_of_an_unfinished_sweep_has_gaps():
    rows = [
        {"privacy.eps": eps, "options.sensitivity": formula, "noise": eps, "loss": loss, "seed": seed}
        for eps, formula, loss, seed in (
            (1, "paper", 0.25, 0),
            (1, "paper", 0.75, 1),
            (2, "paper", None, 0),
            (1, "tight", 0.5, 0),
        )
    ]
    axes = drawn("noise", rows)
    right = axes.figure.axes[1]
    assert [list(line.get_ydata()) for line in axes.lines] == [[2, 1], [pytest.approx(math.nan, nan_ok=True), 1]]
    assert list(right.lines[0].get_ydata()) == [pytest.approx(math.nan, nan_ok=True), 0.5]


@pytest.mark.parametrize("figure", ["training", "measures"])
def test_a_quantity_that_is_not_measured_at_the_first_epoch_is_drawn(figure):
    rows = [{"epoch": epoch, "step": epoch, "loss": 1.0, "accuracy": 0.5, "w2": None} for epoch in range(1, 60)]
    rows[-1]["w2"] = 2.0
    axes = drawn(figure, rows)
    assert entries(axes) == ["accuracy", "W₂ to test records"]
    last = axes.lines[1]
    assert [value for value in last.get_ydata() if value is not None and not math.isnan(value)] == [2.0]
    assert last.get_marker() not in ("None", "", None)  # a line through one point is not seen


@pytest.mark.parametrize("figure", ["training", "measures"])
def test_the_course_of_one_training_is_not_drawn_from_a_table_of_several(figure):
    rows = [{"epoch": 3, "step": 9, "accuracy": value} for value in (0.5, 0.75)]
    with pytest.raises(ValueError, match="some epoch has several rows"):
        drawn(figure, rows)


def test_a_statement_without_a_ratio_has_a_mark_at_the_side_on_which_the_published_number_lies():
    rows = [
        {"proposition": name, "verdict": "fails", "published": published, "exact": 0.0, "ratio": None, "at": "n=1"}
        for name, published in (("above", 2.0), ("below", -1.0))
    ]
    rows.append({"proposition": "even", "verdict": "holds", "published": 1.0, "exact": 1.0, "ratio": 1.0, "at": "n=1"})
    axes = drawn("claims", rows)
    marks = {
        line.get_ydata()[0]: line
        for line in axes.lines
        if line.get_marker() not in ("None", "") and len(line.get_xdata())
    }
    low, high = axes.get_xlim()
    assert [(marks[place].get_marker(), marks[place].get_xdata()[0]) for place in (0, 1)] == [(">", high), ("<", low)]
    assert marks[2].get_xdata()[0] == 1


@pytest.mark.parametrize("claims", [("certified", "upper-bound"), ("certified", "certified")])
def test_panels_share_a_legend_unless_one_look_had_two_meanings(claims, tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(figure_layout, "save", lambda figure, *_: figures.append(figure) or [])
    rows = [
        bound(1.0 + n, claim if name == "pld" else "upper-bound", panel=panel, accountant=name, n=n)
        for panel, claim in zip("ab", claims, strict=True)
        for name in ("pld", "rdp")
        for n in (1, 2, 4)
    ]
    plot.draw(rows, [View("a", "eps-over-n"), View("b", "eps-over-n")], tmp_path, ["png"])
    panels = [axes.get_legend() for axes in figures[0].axes]
    if claims[0] == claims[1]:
        assert len(figures[0].legends) == 1
        assert panels == [None, None]
    else:
        assert not figures[0].legends
        assert [len(legend.get_texts()) for legend in panels] == [2, 2]


def test_cases_by_accountants_have_an_entry_for_each_colour_and_each_mark():
    rows = [
        bound(k + len(name) + x, claim, accountant=name, case=f"b = {k}", order=x)
        for name, claim in (("renyi", "exact"), ("wdp", "as-published"))
        for k in (1, 2, 3)
        for x in (1, 2)
    ]
    axes = drawn("curves", rows)
    assert set(entries(axes)) == {
        "b = 1",
        "b = 2",
        "b = 3",
        "Rényi divergence (exact)",
        "Wasserstein DP (as published)",
    }
    styles = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in axes.lines}
    assert len(styles) == 6
    assert len({colour for colour, _, _ in styles}) == 3


def test_what_all_labels_have_in_common_stands_once_above_them():
    rows = [
        bound(k + x, "as-published", accountant="wdp", notion="wdp", beta=k, order=x)
        for k in (1, 2, 3)
        for x in (1, 2, 3, 4)
    ]
    axes = drawn("curves", [{**row, "delta": 1e-5} for row in rows])
    assert entries(axes) == ["β = 3", "β = 2", "β = 1"]
    assert axes.get_legend().get_title().get_text() == "Wasserstein DP, as published"
