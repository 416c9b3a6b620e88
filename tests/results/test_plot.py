"""Saved results are drawn again without computing, in every format; what cannot be drawn is refused."""

from __future__ import annotations

import numpy as np
import pytest

import wpriv
from wpriv.accounting.comparison import compare
from wpriv.errors import MissingResource, UsageError
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
