"""Privatised records are read with the distribution of their noise."""

from __future__ import annotations

import json

import numpy as np
import pytest

import wpriv
from wpriv.accounting.mechanisms.local_gauss import LocalGauss
from wpriv.accounting.mechanisms.local_laplace import LocalLaplace
from wpriv.errors import MissingResource, UsageError
from wpriv.training import data
from wpriv.training.data.privatized import read_reports

X = np.random.default_rng(0).random((12, 1, 4, 4))


def test_privatised_records_are_read_with_their_noise(tmp_path):
    gauss = wpriv.privatize(X, "local-gauss", radius=2, sigma=3, delta=1e-5, out=tmp_path / "g.npz", dtype="float64")
    laplace = wpriv.privatize(X, "local-laplace", radius=2, scale=0.5, dct=True, out=tmp_path / "l.npz")
    one, other = read_reports(tmp_path / "g.npz"), read_reports(tmp_path / "l.npz")
    assert (one.mechanism, one.radius, other.mechanism, other.delta) == ("local-gauss", 2.0, "local-laplace", 0.0)
    assert (one.noise.p, one.noise.scale, one.noise.domain) == (2, 3.0, "as read")
    assert (other.noise.p, other.noise.scale, other.noise.domain) == (1, 0.5, "dct")
    assert (one.noise.lam, other.noise.lam) == (18.0, 0.5)  # 2 sigma^2 and b
    assert one.noise.statement == gauss.statement
    assert other.epsilon == laplace.statement["guarantees"][0]["epsilon"] == 8.0
    assert one.labels is None


def test_privatised_records_are_a_data_set_whose_notes_mention_the_noise(tmp_path):
    source = tmp_path / "s.npz"
    np.savez(source, x=X, y=np.arange(12) % 3 + 5)
    options = {"radius": 2, "eps": 5, "delta": 1e-5, "root": tmp_path}
    wpriv.privatize("s.npz", "local-gauss", out=tmp_path / "a.npz", **options)
    found = data.read("privatized", root=tmp_path, file="a.npz")
    assert (found.shape, found.records, len(found.x_test), found.classes) == ((1, 4, 4), 12, 0, ("0",))
    assert np.array_equal(found.x_train, np.load(tmp_path / "a.npz")["x"])
    assert "post-processing" in found.notes[0]
    wpriv.privatize("s.npz", "local-gauss", out=tmp_path / "b.npz", public_labels=True, **options)
    labelled = data.read("privatized", root=tmp_path, file="b.npz")
    assert labelled.classes == ("5", "6", "7")
    assert labelled.y_train.tolist() == (np.arange(12) % 3).tolist()


def test_privatized_refuses_other_files(tmp_path):
    np.savez(tmp_path / "s.npz", x=X)
    with pytest.raises(MissingResource, match="mechanism, p, radius"):
        data.read("privatized", root=tmp_path, file="s.npz")
    arrays = {
        "x": X,
        "mechanism": "m",
        "p": "two",
        "radius": 1,
        "center": 0,
        "epsilon": 1,
        "delta": 0,
        "domain": "as read",
        "statement": "{",
    }
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(MissingResource, match="sigma or scale"):
        read_reports(tmp_path / "t.npz")
    np.savez(tmp_path / "u.npz", sigma=1.0, **arrays)
    with pytest.raises(MissingResource, match="wpriv privatize"):
        read_reports(tmp_path / "u.npz")


@pytest.mark.parametrize(
    "changed",
    [
        *({"sigma": value} for value in (np.nan, np.inf, 0.0, -1.0)),
        *({"x": value} for value in (1.0, np.zeros(3), np.array([["a"]]), np.zeros((2, 2)) * 1j)),
        {"p": 7},
        {"statement": "[1]"},
    ],
    ids=str,
)
def test_reports_whose_noise_or_records_cannot_be_are_refused(tmp_path, changed):
    wpriv.privatize(X, "local-gauss", radius=2, sigma=3, delta=1e-5, out=tmp_path / "g.npz")
    with np.load(tmp_path / "g.npz") as arrays:
        np.savez(tmp_path / "h.npz", **{**arrays, **changed})
    with pytest.raises(MissingResource, match="privatize wrote"):
        data.read("privatized", root=tmp_path, file="h.npz")


def test_reports_that_contradict_their_own_statement_are_refused(tmp_path):
    wpriv.privatize(X, "local-gauss", radius=2, sigma=3, delta=1e-5, out=tmp_path / "g.npz")
    stored = dict(np.load(tmp_path / "g.npz"))
    changes = {
        "sigma": 0.3, "radius": 20.0, "center": 0.5, "epsilon": 0.1, "delta": 1e-9, "domain": "dct",
        "mechanism": "local-laplace", "x": stored["x"][:5],
    }  # fmt: skip
    for name, value in changes.items():
        np.savez(tmp_path / "changed.npz", **(stored | {name: value}))
        with pytest.raises(MissingResource, match="contradicts its own statement"):
            read_reports(tmp_path / "changed.npz")
    statement = str(stored["statement"])
    for old, new in (('"sigma": 3.0', '"sigma": 30.0'), ('"radius": 2.0', '"radius": 0.2'), ('"clip"', '"clap"')):
        np.savez(tmp_path / "changed.npz", **(stored | {"statement": statement.replace(old, new)}))
        with pytest.raises(MissingResource, match="statement"):
            read_reports(tmp_path / "changed.npz")
    np.savez(tmp_path / "same.npz", **stored)
    assert np.array_equal(read_reports(tmp_path / "same.npz").x, stored["x"])


def test_the_statements_of_several_reports_add_up(tmp_path):
    one = wpriv.privatize(X, "local-gauss", radius=2, sigma=9, delta=1e-5).statement
    two = wpriv.privatize(X, "local-laplace", radius=2, scale=7).statement
    (tmp_path / "one.json").write_text(json.dumps(one))
    (tmp_path / "all.json").write_text(json.dumps([one, two, one]))
    alone = wpriv.budget(history=tmp_path / "one.json", delta=1e-5)
    assert alone.epsilon.upper == pytest.approx(one["guarantees"][0]["epsilon"], rel=1e-6)
    steps = [wpriv.Step(LocalGauss(sigma=9, radius=2), 2), wpriv.Step(LocalLaplace(scale=7, radius=2), 1)]
    expected = wpriv.budget(wpriv.Process(tuple(steps)), delta=1e-5)
    together = wpriv.budget(history=tmp_path / "all.json", delta=1e-5)
    assert together.epsilon.upper == pytest.approx(expected.epsilon.upper, rel=1e-6)
    (tmp_path / "other.json").write_text(json.dumps({**one, "task": "classify"}))
    with pytest.raises(UsageError, match=r"ledger\.jsonl"):
        wpriv.budget(history=tmp_path / "other.json", delta=1e-5)
