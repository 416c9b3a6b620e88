"""Figures for a paper: their width, fonts and type; one colour for a method in all figures; names for readers."""

from __future__ import annotations

import itertools
import re

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

import wpriv
from tests import nightly
from tests.figures.test_figures import TABLES
from wpriv.accounting import load_recipe
from wpriv.config.recipe_files import shipped
from wpriv.core import registry
from wpriv.figures import _names, _palette
from wpriv.results import figure_layout, plot
from wpriv.results.plot import View

INCHES = {1: 3.35, 2: 6.89}  # 85 mm and 175 mm


def drawn(name, rows, tmp_path, monkeypatch, columns):
    """Draw a table in style paper; return the figure at the moment at which it is written, and the PDF file."""
    figures = []
    save = figure_layout.save

    def kept(figure, *words):
        figures.append(figure)
        return save(figure, *words)

    monkeypatch.setattr(figure_layout, "save", kept)
    style = figure_layout.of("paper", columns)
    (pdf, _) = plot.draw(rows, [View(figure=name)], tmp_path, ["pdf"], style=style)
    return figures[0], pdf


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "columns"),
    nightly.sharded(itertools.product(["curves", "claims", "sensitivity", "table", "uniform-outputs"], [1, 2]), 3),
)
def test_a_figure_for_a_paper_has_its_width_embeddable_fonts_and_type_of_8_points(name, columns, tmp_path, monkeypatch):
    figure, pdf = drawn(name, wpriv.compare(**TABLES[name]).rows, tmp_path, monkeypatch, columns)
    content = pdf.read_bytes()
    width = float(re.search(rb"/MediaBox \[ ?0 0 ([0-9.]+)", content)[1]) / 72
    assert width == pytest.approx(INCHES[columns], abs=0.01)
    # publishers refuse fonts of type 3; type 42 is TrueType
    assert b"/Type3" not in content
    assert b"/FontFile2" in content
    for axes in figure.axes:
        labels = [axes.xaxis.label, axes.yaxis.label]
        assert {label.get_fontsize() for label in labels if label.get_text()} <= {8.0}
    texts = figure.findobj(lambda artist: isinstance(artist, Text) and artist.get_text() and artist.get_visible())
    assert min(text.get_fontsize() for text in texts) >= 6.0


def test_a_method_has_one_colour_in_all_figures():
    losses = [{"case": f"method = {name}", "step": k, "loss": 1.0 + k} for name in ("dann", "swd") for k in (1, 2)]
    accuracies = [{"method": name, "privacy.eps": 1.0 + k, "accuracy": 0.5} for name in ("swd", "dann") for k in (1, 2)]
    colours = []
    for name, rows in (("losses", losses), ("accuracy-over-eps", accuracies)):
        axes = Figure().subplots()
        _palette.prepare(axes.figure, plot._methods(rows), None)
        registry.load("figures", name).draw(rows, axes)
        lines = {line.get_label().split(",")[0]: to_hex(line.get_color()) for line in axes.lines}
        colours.append({label: lines[label] for label in ("SWD", "DANN")})
    assert colours[0] == colours[1]
    assert colours[0]["SWD"] == _palette.COLOURS[_palette.FIXED["swd"][0]].lower()


def test_methods_of_one_table_have_different_styles_and_keep_them():
    groups = (
        "pld rdp markov clt berry-esseen nagaev rdp-mironov zcdp",
        "swd dp-swd dp-swd-projections dp-swd-paper dann dp-dann dp-dann-paper source-only",
        "merf cgan swd dp-swd",
        "entropic plain sinkhorn-divergence",
    )
    for group in map(str.split, groups):
        colours = [_palette.FIXED[name][0] for name in group]
        assert len(set(colours)) == len(colours), group
        palette, reverse = _palette.Palette(), _palette.Palette()
        assert [palette.style(name) for name in group] == [reverse.style(name) for name in reversed(group)][::-1]


def words_of(data, keys):
    """The words below some keys, anywhere in a recipe."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key in keys:
                yield from [value] if isinstance(value, str) else [word for word in value if isinstance(word, str)]
            yield from words_of(value, keys)
    elif isinstance(data, list):
        for value in data:
            yield from words_of(value, keys)


def test_no_accountant_or_method_of_a_shipped_recipe_is_shown_as_it_is_typed():
    accountants = set(registry.names("accountants"))
    methods = set()
    for name in shipped():
        data = load_recipe.read(name).data
        accountants |= set(words_of(data, ("accountants", "accountant")))
        methods |= {f"{key} = {word}" for key in ("method", "loss") for word in words_of(data, (f"options.{key}",))}
    assert len(accountants) > 30
    for word in accountants:
        assert not re.search(r"[:_]|\w=|=\w|code|-tail", _names.accountant(word)), word
    assert all(" = " not in _names.method(word) for word in methods if not word.endswith("none"))


def test_names_of_settings_losses_and_accountants_in_panels_are_those_of_readers():
    assert _names.method("accountant = swd-tail:w=bernstein-code") == "sliced tail bound, Bernstein, authors' program"
    assert _names.method("loss = plain") == "plain W₂"
    assert _names.method("plain") == "plain"  # of a training without techniques, no loss
    assert _names.method("ε = 1, seed = 0") == "ε = 1, seed = 0"
    assert _names.key("method = swd") == "swd"
    assert _names.key("α = 0.5") == "α = 0.5"
