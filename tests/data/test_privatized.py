"""Privatised records are read back with what is known of their noise."""

from __future__ import annotations

import numpy as np
import pytest

import wpriv
from wpriv import data
from wpriv.data.privatized import reports
from wpriv.errors import MissingResource

X = np.random.default_rng(0).random((12, 1, 4, 4))


def test_records_and_the_law_of_their_noise_come_back(tmp_path):
    gauss = wpriv.privatize(X, "local-gauss", radius=2, sigma=3, delta=1e-5, out=tmp_path / "g.npz", dtype="float64")
    laplace = wpriv.privatize(X, "local-laplace", radius=2, scale=0.5, dct=True, out=tmp_path / "l.npz")
    one, other = reports(tmp_path / "g.npz"), reports(tmp_path / "l.npz")
    assert (one.mechanism, one.p, one.noise, one.radius, one.domain) == ("local-gauss", 2, 3.0, 2.0, "as read")
    assert (other.mechanism, other.p, other.noise, other.domain, other.delta) == ("local-laplace", 1, 0.5, "dct", 0.0)
    assert (one.lam, other.lam) == (18.0, 0.5)  # 2 sigma^2 and b
    assert one.statement == gauss.statement
    assert other.epsilon == laplace.statement["guarantees"][0]["epsilon"] == 8.0
    assert one.labels is None


def test_they_are_a_data_set_to_train_on_that_says_it_is_noisy(tmp_path):
    source = tmp_path / "s.npz"
    np.savez(source, x=X, y=np.arange(12) % 3 + 5)
    asked = {"radius": 2, "eps": 5, "delta": 1e-5, "root": tmp_path}
    wpriv.privatize("s.npz", "local-gauss", out=tmp_path / "a.npz", **asked)
    found = data.read("privatized", root=tmp_path, file="a.npz")
    assert (found.shape, found.records, len(found.x_test), found.classes) == ((1, 4, 4), 12, 0, ("0",))
    assert np.array_equal(found.x_train, np.load(tmp_path / "a.npz")["x"])
    assert "post-processing" in found.notes[0]
    wpriv.privatize("s.npz", "local-gauss", out=tmp_path / "b.npz", public_labels=True, **asked)
    labelled = data.read("privatized", root=tmp_path, file="b.npz")
    assert labelled.classes == ("5", "6", "7")
    assert labelled.y_train.tolist() == (np.arange(12) % 3).tolist()


def test_other_files_are_refused_in_words(tmp_path):
    np.savez(tmp_path / "s.npz", x=X)
    with pytest.raises(MissingResource, match="it lacks mechanism, p, radius"):
        data.read("privatized", root=tmp_path, file="s.npz")
    whole = {
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
    np.savez(tmp_path / "t.npz", **whole)
    with pytest.raises(MissingResource, match="it lacks sigma or scale"):
        reports(tmp_path / "t.npz")
    np.savez(tmp_path / "u.npz", sigma=1.0, **whole)
    with pytest.raises(MissingResource, match="not a file that wpriv privatize wrote"):
        reports(tmp_path / "u.npz")
