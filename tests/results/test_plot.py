"""Saved results are drawn again without computing, in every format; what cannot be drawn is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

import wpriv
from wpriv.accounting.comparison import compare
from wpriv.errors import MissingResource, UsageError
from wpriv.results import figure_layout, storage
from wpriv.results import plot as plotting
from wpriv.results.plot import plot

MAGIC = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


@pytest.fixture
def results(tmp_path):
    sweep = {"over": "eps", "values": [0, 1, 2]}
    return wpriv.compare(
        process=[{"mech": "gauss", "sigma": 1}], accountants=["pld", "clt"], sweep=sweep, out=tmp_path / "r"
    ).out


@pytest.mark.slow
def test_every_format_is_drawn_again_without_computing(results, monkeypatch):
    monkeypatch.setattr(compare, "compute", lambda *_: pytest.fail("plot computed something"))
    for path in plot(results, formats=["png", "pdf", "svg"]):
        assert path.read_bytes().startswith(MAGIC[path.suffix[1:]])


@pytest.mark.slow
def test_the_same_table_gives_the_same_file(results):
    first = plot(results)[0].read_bytes()
    assert plot(results)[0].read_bytes() == first


@pytest.mark.slow
def test_a_table_alone_is_enough(results, tmp_path):
    (results / "table.csv").rename(tmp_path / "alone.csv")
    assert plot(tmp_path / "alone.csv", out=tmp_path) == [tmp_path / "figure.png"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({"figure": "delta-over-epz"}, "did you mean 'delta-over-eps'"),
        ({"formats": ["gif"]}, "png, pdf, svg"),
        ({"formats": []}, "png, pdf, svg"),
        ({"figure": "loss-law"}, "does not fit this table"),
        ({"figure": "eps-over-n"}, "does not fit this table"),
        ({"figure": "adp-pdp"}, "does not fit this table"),
        ({"figure": "loss-class"}, "does not fit this table"),
    ],
)
def test_what_cannot_be_drawn_is_refused(results, keys, word):
    if keys.get("figure") == "adp-pdp":
        (results / "table.csv").write_text("a,b\n1,2\n")
    if keys.get("figure") == "eps-over-n":
        text = (results / "table.csv").read_text().splitlines()
        at = text[0].split(",").index("n")
        cut = [",".join(cell for i, cell in enumerate(line.split(",")) if i != at) for line in text]
        (results / "table.csv").write_text("\n".join(cut))
    with pytest.raises(UsageError, match=word):
        plot(results, **keys)


def test_a_missing_table_is_refused(tmp_path):
    with pytest.raises(MissingResource, match="cannot be read"):
        plot(tmp_path)
    with pytest.raises(MissingResource, match="cannot be read"):
        plot(tmp_path / "none.csv")


def test_arrays_that_a_run_left_are_drawn_under_their_own_name(tmp_path):
    np.savez(tmp_path / "samples.npz", samples=np.zeros((4, 1, 3, 3)))
    assert plot(tmp_path / "samples.npz", formats=["svg"]) == [tmp_path / "samples.svg"]
    for name, content in (("broken", b"PK nothing"), ("objects", None)):
        path = tmp_path / f"{name}.npz"
        path.write_bytes(content) if content else np.savez(path, samples=np.array([{}]))
        with pytest.raises(UsageError, match="cannot be read"):
            plot(path)


@pytest.mark.parametrize(("before", "asked"), [("delta", "eps"), ("epsilon", "delta")])
def test_earlier_tables_and_cells_which_named_the_given_quantity_are_read_as_those_of_today(tmp_path, before, asked):
    today = {"asked": asked, "given": before}
    assert storage.parsed_table(f"asked,epsilon\n{before},1", "old.csv") == [{**today, "epsilon": 1.0}]
    assert storage.parsed_table(f"asked,given\n{asked},{before}", "new.csv") == [today]
    storage.keep(tmp_path, "key", [{"asked": before}])
    assert storage.finished(tmp_path) == {"key": [today]}


@pytest.mark.parametrize(("most", "title"), [(3, "persons"), (2, "persons (the first 2 of 3 numbers)")])
def test_a_figure_of_some_numbers_of_a_release_says_so(tmp_path, monkeypatch, most, title):
    about = {"kind": "count", "name": "persons", "column": None, "half_width": 18}
    rows = [{**about, "key": key, "value": value} for key, value in (("A", 2207), ("B", 509), ("C", 40))]
    (tmp_path / "release.json").write_text(json.dumps({"outputs": rows}))
    monkeypatch.setattr(plotting, "MAX_RELEASED", most)
    titles = []
    monkeypatch.setattr(figure_layout, "finish", lambda figure, panels, *rest: titles.extend(row[1] for row in panels))
    plot(tmp_path)
    assert titles == [title]
