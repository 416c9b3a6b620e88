"""Records that are declared public are never the protected ones, under whatever name or in whatever container."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from wpriv.errors import UsageError
from wpriv.training.local.privatize import _public
from wpriv.training.local.records import Records, records

SECRET = np.random.default_rng(0).normal(size=(200, 5))


@pytest.fixture
def protected(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", SECRET)
    np.savez("b.npz", x=SECRET)
    np.savetxt("c.csv", SECRET, delimiter=",", fmt="%.17g", header="p,q,r,s,t", comments="")
    np.save("single.npy", SECRET.astype(np.float32))
    np.save("part.npy", SECRET[50:90])
    np.save("shuffled.npy", SECRET[::-1])
    np.save("with_more.npy", np.concatenate([SECRET, np.random.default_rng(1).normal(size=(150, 5))]))
    shutil.copy("a.npy", "copy.npy")
    os.symlink("a.npy", "link.npy")
    os.link("a.npy", "hard.npy")
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        "a.npy", "./a.npy", "link.npy", "hard.npy", "copy.npy", "b.npz", "c.csv", "single.npy", "part.npy",
        "shuffled.npy", "with_more.npy",
    ],
)  # fmt: skip
def test_the_protected_records_are_refused_as_public_ones(protected, name):
    with pytest.raises(UsageError, match="protected records"):
        _public(records(name, None), records("a.npy", None))


@pytest.mark.parametrize("few", [1, 5])
def test_a_file_of_few_records_is_refused_under_another_name(protected, few):
    np.save("few.npy", SECRET[:few])
    with pytest.raises(UsageError):
        _public(records("./few.npy", None), records("few.npy", None))


def test_other_records_pass():
    rng = np.random.default_rng(2)
    private = Records(SECRET, "a")
    for other in (rng.normal(size=(300, 5)), SECRET[:30] + 1e-3, rng.normal(size=(300, 4)), SECRET[:1]):
        assert _public(Records(other, "b"), private).name == "b"


def test_counts_that_are_alike_by_chance_pass():
    rng = np.random.default_rng(3)
    one, other = (rng.integers(0, 5, size=(500, 1)) for _ in range(2))
    assert _public(Records(other, "b"), Records(one, "a")).name == "b"
    with pytest.raises(UsageError):
        _public(Records(one[:100], "b"), Records(one, "a"))
