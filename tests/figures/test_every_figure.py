"""Rules that hold in every figure and style: legends, shades, axes, notation, abbreviations, colours."""

from __future__ import annotations

import functools
import math
import re
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

import wpriv
from tests import nightly
from tests.figures.test_figures import TABLES
from wpriv.core import registry
from wpriv.figures import _palette
from wpriv.results import figure_layout, plot
from wpriv.results.plot import View

POISSON = {"mech": "gauss", "sigma": 4, "sampling": "poisson", "rate": 0.01, "n": 4096}
SCALES = {f"b = {scale}": [{"mech": "laplace", "scale": scale}] for scale in (1, 2, 3, 5)}
# tables of accountants that have been drawn badly: brackets that overlap, cases by accountants, all accountants
BOUNDS = {
    "delta-over-eps": {
        "process": [POISSON],
        "accountants": ["pld", "rdp", "nagaev", "berry-esseen", "clt"],
        "sweep": {"over": "eps", "values": {"linspace": [0, 2, 9]}},
    },
    "curves": {
        "cases": SCALES,
        "accountants": ["wdp:variant=table1", "wdp:variant=exact"],
        "delta": 1e-5,
        "sweep": {"over": "order", "values": {"linspace": [1, 10, 9]}},
    },
    "budgets": {"process": [POISSON], "accountants": registry.names("accountants"), "delta": 1e-5},
    "table": {"cases": SCALES, "accountants": ["pld", "rdp", "clt"], "delta": 1e-5},
}
ALPHAS = [{"options.alpha": alpha, "privacy.eps": eps} for alpha in (0, 0.5, 0.9) for eps in (math.inf, 4, 2, 1)]
CELLS = [{"x": k / 10, "density": 1 + k * (g - 0.5)} for g in (0, 1) for k in range(10)]
RNG = np.random.default_rng(1)
PLANE = [{"x": float(x), "y": float(y)} for x, y in RNG.normal(size=(40, 2))]
TRAINED = {
    "training": [{"epoch": e, "accuracy": 1 - 1 / (e + 1), "mlp": 1 - 1 / e, "epsilon": 0.3 * e} for e in range(1, 9)],
    "measures": [{"epoch": e, "w2": 9 / e, "od0": 0.5 + 0.01 * e, "frechet-small-cnn": 30.0} for e in range(1, 9)],
    "losses": [{"case": f"method = {m}", "step": k, "loss": 1 / k} for m in ("dann", "dp-swd") for k in range(1, 9)],
    "accuracy-over-eps": [
        {"privacy.eps": e, "mlp": 1 - 1 / (e + 3), "logistic": 1 - 1 / (e + 5)} for e in (1, 2, 5, 10)
    ],
    "distance": [
        {"data.privatize.sigma": s, "options.loss": name, "epoch": 9, "w2": s * k}
        for s in (1, 2, 3)
        for k, name in enumerate(("plain", "entropic", "sinkhorn-divergence"), 1)
    ],
    "noise": [
        {"privacy.eps": e, "options.sensitivity": formula, "noise": k / e, "loss": 1 + k / e}
        for e in (1, 2, 5)
        for k, formula in enumerate(("tight", "paper"), 1)
    ],
    "audit": [
        {
            "statistic": s,
            "guesses": 90,
            "correct": 60,
            "epsilon_at_least": b,
            "certified_lower": 2,
            "certified_upper": 3,
        }
        for s, b in (("loss", 1.0), ("gradient", 1.6))
    ],
    "odds": [
        {**row, "accuracy": 0.9 - row["options.alpha"] / 9, "odds_gap": 0.1 / row["privacy.eps"]} for row in ALPHAS
    ],
    "parity": [{**row, "accuracy": 0.9, "od0": 0.5 + row["options.alpha"] / 3, "od1": 0.6} for row in ALPHAS],
    "scores": [{**cell, "group": index // 10} for index, cell in enumerate(CELLS)],
    "codes": [{**point, "group": index % 2} for index, point in enumerate(PLANE)],
    "points": [{**point, "kind": ("target", "moved")[index % 2]} for index, point in enumerate(PLANE)],
    "release-noise": [
        {"kind": "count", "name": "persons", "column": None, "key": key, "value": value, "half_width": half}
        for key, value, half in (("A", 2207, 18), ("B", 509, 18), ("C", -2, 18), (None, 2750, 13))
    ],
    "samples": {"samples": RNG.normal(size=(30, 2)), "target": RNG.normal(size=(30, 2))},
}
CASES = [*((name, "a") for name in sorted({*TABLES, *TRAINED})), *((name, "b") for name in sorted(BOUNDS))]
STYLES = ("screen", "dark", "paper")
# by default one style a figure, in turn
DRAWN = [(*case, STYLES[(place + k) % 3]) for place, case in enumerate(CASES) for k in range(3)]
# names of methods, models, data sets and papers' symbols, which have no longer form that is better known
NAMES = {
    "DP",
    "zCDP",
    "SWD",
    "DANN",
    "MERF",
    "CGAN",
    "WGAN",
    "MNIST",
    "SVHN",
    "CIFAR",
    "SGD",
    "USPS",
    "CelebA",
    "VisDA",
}
WHOLE = re.compile(r"number of compositions|epoch|step|records|reports|batch|outcome|group")


@functools.cache
def rows(name, kind):
    if kind == "b":
        return wpriv.compare(**BOUNDS[name]).rows
    return TRAINED[name] if name in TRAINED else wpriv.compare(**TABLES[name]).rows


@functools.lru_cache(maxsize=4)
def finished(name, kind, style):
    """A figure as it is at the moment at which its file is written, with its panels drawn."""
    figures = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure_layout, "save", lambda figure, *_: figures.append(figure) or [])
        patch.setattr(plot.durable_writes, "replace", lambda *_: None)
        plot.draw(rows(name, kind), [View(figure=name)], None or plot.Path(), ["png"], style=figure_layout.of(style))
    figures[0].draw_without_rendering()
    return figures[0]


def legends(figure):
    return [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]


def texts(figure):
    found = figure.findobj(lambda artist: isinstance(artist, Text) and artist.get_visible() and artist.get_text())
    return [text.get_text() for text in found]


def look(artist):
    """What tells the handle of a legend from the others; None where it shows nothing."""
    if isinstance(artist, Line2D):
        shape = (artist.get_linestyle(), artist.get_marker(), to_hex(artist.get_markerfacecolor()))
        return None if shape[:2] == ("None", "None") else (to_hex(artist.get_color()), artist.get_linewidth(), *shape)
    if isinstance(artist, Patch):
        return (
            *(to_hex(c, keep_alpha=True) for c in (artist.get_facecolor(), artist.get_edgecolor())),
            artist.get_hatch(),
        )
    return tuple(str(artist.get_facecolor())) + tuple(str(artist.get_edgecolor()))


def test_every_figure_has_a_table_here():
    assert {name for name, _ in CASES} == set(registry.names("figures"))
    assert len(CASES) >= 40


def no_two_entries_of_a_legend_are_equal_in_words_or_look(figure):
    for legend in legends(figure):
        labels = [text.get_text() for text in legend.get_texts()]
        looks = [seen for handle in legend.legend_handles if (seen := look(handle)) is not None]
        assert len(set(labels)) == len(labels) > 0
        assert len(set(looks)) == len(looks), list(zip(labels, looks, strict=False))


def every_shade_has_the_colour_of_its_line_or_an_entry_of_its_own(figure):
    handles = [handle for legend in legends(figure) for handle in legend.legend_handles]
    entries = {to_hex(handle.get_facecolor()) for handle in handles if isinstance(handle, Patch)}
    for axes in figure.axes:
        owners = entries | {to_hex(line.get_color()) for line in axes.lines}
        for shade in (each for each in axes.collections if isinstance(each, PolyCollection)):
            colours = {to_hex(colour) for colour in shade.get_facecolor() if colour[3] > 0}
            assert colours <= owners


def axes_end_with_the_data(figure):
    for axes in figure.axes:
        if not axes.axison or not axes.has_data():
            continue
        for axis, most in ((axes.xaxis, 0.08), (axes.yaxis, 0.36)):
            if any(re.match("[a-z]", label.get_text()) for label in axis.get_majorticklabels()):
                continue  # of names, not of numbers
            low, high = sorted(axis.get_transform().transform(np.array(axis.get_view_interval())))
            data = np.array(axis.get_data_interval())
            first, last = sorted(axis.get_transform().transform(np.clip(data, *sorted(axis.get_view_interval()))))
            assert first - low <= most * (high - low), (axis.axis_name, data, axis.get_view_interval())
            assert high - last <= most * (high - low), (axis.axis_name, data, axis.get_view_interval())


def texts_have_one_notation_and_no_abbreviation_that_is_not_a_name(figure):
    for text in texts(figure):
        plain = re.sub(r"\$[^$]*\$", "", text)
        assert not re.search(
            r"(?<![A-Za-z])(eps|epsilon|delta|sigma|alpha|beta|lambda|mu|theta)\d*(?![A-Za-z])", plain
        ), text
        assert not re.search(r"[\^_]|\de[+-]?\d", plain), text
        words = {word for word in re.findall(r"[A-Za-z]+", plain) if len(re.findall("[A-Z]", word)) > 1}
        assert words <= NAMES, text


def an_axis_of_whole_numbers_has_no_other_ticks(figure):
    for axes in figure.axes:
        if WHOLE.search(axes.get_xlabel()) and axes.get_xscale() == "linear":
            low, high = sorted(axes.get_xlim())
            assert all(tick == round(tick) for tick in axes.get_xticks() if low <= tick <= high)


def the_numbers_of_an_axis_do_not_overlap(figure):
    for axes in figure.axes:
        low, high = sorted(axes.get_xlim())
        pairs = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        boxes = [label.get_window_extent() for tick, label in pairs if low <= tick <= high and label.get_text()]
        assert all(one.x1 <= other.x0 for one, other in pairwise(boxes))


def a_legend_within_a_panel_is_small_and_covers_no_curve(figure):
    for axes in figure.axes:
        legend, panel = axes.get_legend(), axes.get_window_extent()
        if legend is None or not panel.overlaps(box := legend.get_window_extent()):
            continue
        assert box.width * box.height <= 0.26 * panel.width * panel.height
        for line in (each for each in axes.lines if len(each.get_path())):
            path = line.get_transform().transform_path(line.get_path())
            assert not path.intersects_bbox(box, filled=False), line.get_label()


RULES = [
    no_two_entries_of_a_legend_are_equal_in_words_or_look,
    every_shade_has_the_colour_of_its_line_or_an_entry_of_its_own,
    axes_end_with_the_data,
    texts_have_one_notation_and_no_abbreviation_that_is_not_a_name,
    an_axis_of_whole_numbers_has_no_other_ticks,
    the_numbers_of_an_axis_do_not_overlap,
    a_legend_within_a_panel_is_small_and_covers_no_curve,
]


# the first varies fastest, so that a process of pytest-xdist draws a figure for all rules
@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize(("name", "kind", "style"), nightly.sharded(DRAWN, 13))
def test_every_figure_keeps_the_rules(name, kind, style, rule):
    rule(finished(name, kind, style))


@pytest.mark.parametrize("ground", ["#FFFFFF", _palette.NIGHT])
def test_the_colours_of_the_palette_stay_apart_on_both_grounds(ground):
    drawn = [_palette.on_dark(c) if ground == _palette.NIGHT else c for c in _palette.COLOURS[:7]]
    assert len({to_hex(colour) for colour in map(_palette.on_dark, _palette.COLOURS)}) == len(_palette.COLOURS)
    if ground == _palette.NIGHT:
        assert min(_palette.contrast(colour) for colour in map(_palette.on_dark, _palette.COLOURS)) >= 4.5
    # Vienot, Brettel and Mollon (1999): what is left of a colour without the middle cones (deuteranopia)
    seen = [deuteranope(colour) for colour in drawn]
    gaps = [float(np.linalg.norm(a - b)) for i, a in enumerate(seen) for b in seen[:i]]
    assert min(gaps) > 0.06


def deuteranope(colour):
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _rgb(colour))
    yellow = 0.29275 * red + 0.70725 * green
    return np.array([yellow, -0.02234 * red + 0.02234 * green + blue])


def _rgb(colour):
    from matplotlib.colors import to_rgb

    return to_rgb(colour)
